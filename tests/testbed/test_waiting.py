"""A look costs what it costs, and waiting for it to say yes must not cost a core."""

from __future__ import annotations

import pytest

from tests.testbed import waiting


class Clock:
    """Time that passes only where somebody looks or sleeps."""

    def __init__(self, look_s: float) -> None:
        self.now, self.look_s, self.slept = 0.0, look_s, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds

    def look(self) -> bool:
        self.now += self.look_s
        return len(self.slept) == 3


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.001, 0.05), (0.3, 0.3), (7.0, 1.0)])
def test_between_two_looks_it_waits_as_long_as_a_look_takes(
    look_s: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(look_s)
    monkeypatch.setattr(waiting, "time", clock)
    assert waiting.until(clock.look, "the third pause is over")
    assert clock.slept == [pause_s] * 3


def test_what_never_comes_true_ends_with_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.5)
    monkeypatch.setattr(waiting, "time", clock)
    with pytest.raises(TimeoutError, match="not within 2 s: the moon is blue"):
        waiting.until(lambda: clock.look() and False, "the moon is blue", timeout_s=2)
