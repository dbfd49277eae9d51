"""A replay says how far it is in its own time, so that a long capture in which nothing happens is seen to move on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from faultline.replay.capture import read
from faultline.replay.replay import AFTERMATH, replay_capture


class Counting:
    """A bar that counts."""

    total: int | None = None
    done = 0

    def advance(self, by: int = 1) -> None:
        self.done += by


def test_every_second_of_a_replay_is_counted_to_its_end() -> None:
    seen = Counting()

    @contextmanager
    def bar() -> Iterator[Counting]:
        yield seen

    capture = read(Path("docs/examples/gpu-off-bus"))
    replay_capture(capture, bar=bar)
    assert seen.total == seen.done
    span = timedelta(seconds=seen.done)
    assert AFTERMATH < span <= capture.meta.end - capture.meta.lead + timedelta(days=1) + AFTERMATH
