"""How much is tried of what has no end: examples of a property, moves of a game, seeds, scenarios.

The quick tier tries a part with every change. `TEST_EFFORT=full`, as `make nightly` sets it, tries all, and
`TEST_EFFORT=30` thirty times as much, for a hunt after a bug.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ASKED = os.environ.get("TEST_EFFORT", "")
FULL = bool(_ASKED)
"""Whether to try all."""
_TIMES = 1 if _ASKED in ("", "full") else int(_ASKED)

_PART = 5
"""The quick tier tries one in so many."""
_FEWEST = 5


def tries(full: int, *, quick: int | None = None) -> int:
    """How often to try, where `full` is enough for a night; the quick tier tries a fifth, or as often as `quick` says."""
    if FULL:
        return full * _TIMES
    return max(_FEWEST, full // _PART) if quick is None else quick


def load_profile() -> None:
    """Let properties be tried as often as this run asks for.

    How long an example takes says how busy the machine is, so there is no deadline. What else holds by default (in continuous
    integration the same examples each time) stays.
    """
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "patient", settings(), max_examples=tries(100), deadline=None, suppress_health_check=slow
    )
    settings.load_profile("patient")
