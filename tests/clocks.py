"""Clocks that a test sets."""


class Watch:
    """Seconds; a test moves `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
