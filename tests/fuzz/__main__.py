"""`python -m tests.fuzz --minutes 60` feeds all readers of frames, led by the code that each input reaches.

A crash, a fault, an input that takes longer than ten seconds, or memory that grows by more than 256 MB ends it, with
the input beside the corpus. Needs atheris (the extra `dev`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from types import FunctionType

import psutil

INPUT_SECONDS = 10
MOST_MEGABYTES = 256
LONGEST_INPUT = 1 << 16


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--corpus", type=Path, help="inputs found so far, and where new ones go")
    options = parser.parse_args()

    import atheris

    with atheris.instrument_imports(include=["pi_workflows_nb.wire"]):
        from pi_workflows_nb.wire import canonical_json
        from tests.fuzz import mutations
        from tests.fuzz.targets import STREAM, TARGETS

    # What the package imports by name while it is imported itself is not met by the line above.
    for function in vars(canonical_json).values():
        if isinstance(function, FunctionType):
            atheris.instrument_func(function)

    targets = [*TARGETS, STREAM]
    corpus = options.corpus or Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus.mkdir(exist_ok=True)
    for number, target in enumerate(targets):
        for index, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}-{index}").write_bytes(bytes([number]) + seed)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Every second input is spoilt as a frame is, the others as libFuzzer likes."""
        chance = random.Random(seed)
        if not data or chance.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        target = targets[data[0] % len(targets)]
        return (data[:1] + mutations.spoilt(data[1:], target.seeds, chance))[:most]

    me, begun, counted, taken, largest = psutil.Process(), time.monotonic(), 0, 0, 0
    idle = 0
    told = begun

    def one(data: bytes) -> None:
        nonlocal counted, taken, largest, idle, told
        if not data:
            return
        counted += 1
        taken += targets[data[0] % len(targets)].check(data[1:])
        if counted == 20_000:
            idle = me.memory_info().rss
        if counted % 20_000 == 0:
            largest = max(largest, me.memory_info().rss)
            assert largest - idle < MOST_MEGABYTES << 20, "memory grows"
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(f"{(told - begun) / 60:.0f} min: {counted:,} inputs, {taken:,} taken,"
                      f" {(largest - idle) >> 20} MB above the start", flush=True)  # fmt: skip

    arguments = [
        sys.argv[0], str(corpus), f"-max_total_time={int(options.minutes * 60)}", f"-timeout={INPUT_SECONDS}",
        f"-max_len={LONGEST_INPUT}", "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={corpus}/",
        "-verbosity=0", "-close_fd_mask=0",
    ]  # fmt: skip
    atheris.Setup(arguments, one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
