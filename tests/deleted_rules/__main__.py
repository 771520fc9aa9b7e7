"""`python -m tests.deleted_rules` takes each rule of the sample out of a copy; has its test turned red?"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.deleted_rules.rules import RULES
from tests.deleted_rules.trying import attempt, copy


def main() -> int:
    """1 when a test stayed green."""
    green = 0
    with tempfile.TemporaryDirectory(prefix="deleted-rules-") as made:
        folder = copy(Path(made))
        for deleted in RULES:
            tried = attempt(deleted, folder)
            green += not tried.red
            print(f"{'red' if tried.red else 'GREEN':<6} {deleted.rule:<48} {deleted.test}", flush=True)
            if not tried.red:
                print(tried.said, flush=True)
    print(f"{len(RULES)} rules, {green} of them not noticed")
    return 1 if green else 0


if __name__ == "__main__":
    sys.exit(main())
