"""Which captured variables look like secrets.

A captured variable is stored with the run and stays in its file. A guess is enough for a warning: by the name, as
people name what they hide, or by the value, as issuers mark what they issue.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, Final

_NAME: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:secret|token|passwd|password|passphrase|credential|api_?key|access_?key|private_?key|bearer)s?"
    r"(?:$|[^a-z])"
)
_VALUE: Final = re.compile(
    r"sk-[\w-]{16,}|gh[opsu]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|glpat-[\w-]{16,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+|[a-z][a-z0-9+]*://[^\s/:@]+:[^\s/@]+@"
)
_OPAQUE: Final = re.compile(r"[A-Za-z0-9+/_=-]{32,256}\Z")
_BITS_PER_CHARACTER: Final = 4.2
_DEPTH: Final = 3


def looks_like_a_secret(name: str, value: Any) -> bool:
    """Whether a variable, or something a few levels inside it, looks like a password, a token or a private key."""
    return _looks(name, value, _DEPTH)


def _looks(name: str, value: Any, depth: int) -> bool:
    if isinstance(value, bytes):
        value = value[:4096].decode("latin-1")
    if isinstance(value, str):
        return bool(value) and (bool(_NAME.search(name)) or bool(_VALUE.search(value[:4096])) or _is_opaque(value))
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(_looks(f"{name}.{key}", inner, depth - 1) for key, inner in list(value.items())[:100])
    if isinstance(value, list | tuple | set | frozenset):
        return any(_looks(name, inner, depth - 1) for inner in list(value)[:100])
    return False


def _is_opaque(text: str) -> bool:
    """A long text without words: random characters carry more than 4 bits each, names and paths fewer.

    Shannon's entropy of the characters' frequencies.
    """
    if not _OPAQUE.match(text):
        return False
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares) > _BITS_PER_CHARACTER
