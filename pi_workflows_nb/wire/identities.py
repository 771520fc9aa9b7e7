"""Names of things: digests, ids derived from what a thing is, and fresh ids.

Derived ids are a prefix and the first 40 hex digits of a SHA-256, so two processes that never met name the same thing
alike. Fresh ids have the form of a version 7 UUID: rows made one after the other get keys that grow, which keeps the
file's indexes compact.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
import time
from datetime import UTC, datetime
from typing import Any, Final

from . import canonical_json

RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
"""What a run may be called; use `match`."""

TEXT_UNITS: Final = 8192
"""UTF-16 code units that an error text or a detail may have."""

_DIGEST_TEXT: Final = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})\Z")
_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


def utf8(text: str) -> bytes:
    """Give the UTF-8 of a text as ECMAScript does: lone surrogates become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def sha256(data: bytes) -> bytes:
    """Give the 32 bytes of the SHA-256 of `data`."""
    return hashlib.sha256(data).digest()


def sha256_hex(data: bytes) -> str:
    """Give the SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def fingerprint(value: Any) -> bytes:
    """Give the 32 bytes of the SHA-256 of a value's canonical JSON; `NotJsonError` as `canonical_json.encode`."""
    return hashlib.sha256(canonical_json.encode(value)).digest()


def digest_text(digest: bytes) -> str:
    """Show a digest as `sha256:` and hex."""
    return f"sha256:{digest.hex()}"


def digest_bytes(text: str) -> bytes | None:
    """Read a digest from 64 hex digits of either case, with or without `sha256:`; None when it is none."""
    found = _DIGEST_TEXT.match(text)
    return bytes.fromhex(found[1]) if found else None


def aggregate_id(type: str, key: str) -> str:
    """Give the id of the aggregate of a type (`run`, `effect`, `controller`, …) and key."""
    return f"{type}-{_short(type, key)}"


def managed_resource_key(project: str, manager: str, key: str, uid: str | None = None) -> str:
    """Give the key whose `controller` aggregate a managed resource is; `uid` for a later life of the same key."""
    return f"{project}:{manager}:{key}" if uid is None else f"{project}:{manager}:{key}:{uid}"


def canonical_path(path: str | os.PathLike[str]) -> str:
    """Resolve symlinks; a path that does not exist is only made absolute."""
    try:
        return os.path.realpath(path, strict=True)
    except OSError:
        return os.path.abspath(path)


def project_id(path: str | os.PathLike[str]) -> str:
    """Give the id of the project in a folder."""
    return f"project-{_short(canonical_path(path))}"


def effect_id_of_run(resource_id: str, effect_type: str, key: str) -> str:
    """Give the id of an effect whose source is the run with this aggregate."""
    return f"effect-{_short(resource_id, effect_type, key)}"


def effect_id_of_resource(resource_id: str, key: str) -> str:
    """Give the id of an effect whose source is the managed resource with this aggregate; its kind plays no part."""
    return f"effect-{_short(resource_id, key)}"


def workflow_message_id(kind: str, source_id: str, idempotency_key: str) -> str:
    """Give the id of a message to a session."""
    digest = fingerprint({"idempotencyKey": idempotency_key, "kind": kind, "sourceId": source_id})
    return f"workflow-message-{digest.hex()}"


def settings_scope_id(origin_run_id: str, mount_path: str, invocation: int) -> str:
    """Give the id of a scope of settings; the origin run is the first of its chain, `$root` the empty mount path."""
    return f"{origin_run_id}:{mount_path or '$root'}:{invocation}"


def segment_id(run_id: str, attempt_id: str | None) -> str:
    """Give the id of what a session recorded for an attempt, or for a run as a whole."""
    return f"segment-{_short(run_id, attempt_id or '')}"


def follow_up_id(run_id: str, request_id: str) -> str:
    """Give the id of a follow-up."""
    return f"follow-up-{_short(run_id, request_id)}"


def decision_id(run_id: str, node_id: str, attempt_id: str, request_digest: bytes) -> str:
    """Give the id of a decision that a person has to take; the digest binds all that is asked."""
    digest = digest_text(request_digest)
    asked = {"attemptId": attempt_id, "nodeId": node_id, "requestDigest": digest, "runId": run_id}
    return f"decision-{fingerprint(asked).hex()[:40]}"


def interactive_request_id(run_id: str, attempt_id: str) -> str:
    """Give the id of the question that an attempt puts to its session."""
    return f"interaction-{run_id}-{attempt_id}"


def restart_run_id(run_id: str, fingerprint: bytes) -> str:
    """Give the id of the restart of a run that ended with a terminal fingerprint."""
    return f"restart-{_short(workflow_message_id('terminal', f'terminal:{run_id}', fingerprint.hex()))}"


def origin_session_id(project: str, name: str) -> str:
    """Give the id of the session that a notebook, or whatever `name` stands for, is in a project (its id)."""
    return f"notebook-{_short(project, name)}"


def new_run_id(workflow_name: str, now_ms: int) -> str:
    """Make a run's id, as `20260101T000000000Z-name-1a2b3c4d`."""
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    name = _NOT_OF_A_NAME.sub("-", workflow_name)[:80] or "workflow"
    return f"{moment:%Y%m%dT%H%M%S}{now_ms % 1000:03d}Z-{name}-{secrets.token_hex(4)}"


def new_id() -> str:
    """Make a fresh id in the form of a version 7 UUID; later ones of a process sort after earlier ones."""
    now = time.time_ns() // 1_000_000
    tick = next(_tick)
    return _form % (now >> 16, now & 0xFFFF, tick >> 12 & 0xFFF, tick & 0xFFF)


def new_event_id() -> str:
    """Make a fresh id of an event."""
    return "event-" + new_id()


def new_token() -> str:
    """Make the secret of a claim: 32 random bytes, base64url without padding."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> bytes:
    """Give what may be stored of a claim's token."""
    return hashlib.sha256(utf8(token)).digest()


def utf16_units(text: str) -> int:
    """Count UTF-16 code units, as ECMAScript measures texts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_resource_name(text: str) -> bool:
    """Tell whether a managed resource's manager or key may be called so: 1 to 512 UTF-16 code units."""
    return 0 < utf16_units(text) <= 512


def cap_units(text: str, units: int = TEXT_UNITS) -> str:
    """Cut a text to at most `units` UTF-16 code units, the last of them an ellipsis; no pair is cut in two."""
    if len(text) * 2 <= units or utf16_units(text) <= units:
        return text
    kept = text.encode("utf-16-le", "surrogatepass")[: (units - 1) * 2].decode("utf-16-le", "surrogatepass")
    if kept and "\ud800" <= kept[-1] <= "\udbff":
        kept = kept[:-1]
    return kept + "…"


def _short(*parts: str) -> str:
    return hashlib.sha256(utf8("\0".join(parts))).hexdigest()[:40]


def _reseed() -> None:
    # Forked children inherit this module; two of them must not count on from the same place.
    global _form, _tick
    _form = f"%08x-%04x-7%03x-8%03x-{secrets.token_hex(6)}"
    _tick = itertools.count()


_form: str
_tick: itertools.count[int]
_reseed()
os.register_at_fork(after_in_child=_reseed)
