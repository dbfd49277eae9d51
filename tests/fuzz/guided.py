"""One target under the coverage-guided fuzzer. Started by `python -m tests.fuzz`, with the target's name and its folder."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["streams"]):
    from tests.fuzz.targets import TARGETS, Target

_LARGE = 65_536
_BOUND_S = 0.5
"""For 64 KB under instrumentation, which makes Python some ten times slower; quadratic work takes minutes."""
_EVERY = 50
"""Timing costs many times a plain call, so only this often."""


def _timed(target: Target, data: bytes) -> float:
    begun = time.perf_counter()
    target(data)
    return time.perf_counter() - begun


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    target = TARGETS[name]
    calls = 0

    def one(data: bytes) -> None:
        nonlocal calls
        calls += 1
        target(data)
        if calls % _EVERY or not data:
            return
        for unit in (data, data[: len(data) // 2 or 1], data[:16]):
            large = (unit * (_LARGE // len(unit) + 1))[:_LARGE]
            if all(_timed(target, large) > _BOUND_S for _ in range(3)):
                (folder / f"slow-{hashlib.sha1(large).hexdigest()}").write_bytes(large)

    atheris.Setup([sys.argv[0], *sys.argv[3:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
