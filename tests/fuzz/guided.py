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
_BOUND_S = 5.0
"""Of computing, for 64 KB under instrumentation, which makes Python some ten times slower."""
_GROWTH = 3.0
"""Twice the input may cost so much more: linear work costs 2, quadratic 4 times as much."""
_SMALL_S = 0.05
"""What costs less is no matter, and measured too coarsely."""
_EVERY = 50
"""Timing costs many times a plain call, so only this often."""


def _cost_s(target: Target, data: bytes) -> float:
    """Computing time, so that other work on the machine does not count."""
    begun = time.process_time()
    target(data)
    return time.process_time() - begun


def _is_slow(target: Target, large: bytes) -> bool:
    """Whether it is slow three times in a row: a pause of the collector is in one of them at most."""
    half = large[: len(large) // 2]
    for _ in range(3):
        cost_s = _cost_s(target, large)
        if cost_s < _SMALL_S or cost_s <= min(_BOUND_S, _GROWTH * _cost_s(target, half)):
            return False
    return True


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
            if _is_slow(target, large):
                (folder / f"slow-{hashlib.sha1(large).hexdigest()}").write_bytes(large)

    atheris.Setup([sys.argv[0], *sys.argv[3:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
