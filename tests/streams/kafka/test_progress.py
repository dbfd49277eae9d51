"""What an operator is told of a long reading."""

from streams.kafka.read_progress import ReadProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_is_told_every_few_seconds_with_the_time_that_is_left() -> None:
    clock = Clock()
    progress = ReadProgress(64_000, every_s=5, clock=clock)
    clock.now = 4.9
    assert progress.told(33_000) == ""
    clock.now = 40.0
    assert progress.told(33_000) == "31,000 of 64,000 records, about 43 s left"
    assert progress.told(32_900) == ""


def test_before_anything_is_done_nobody_knows_how_long_it_takes() -> None:
    clock = Clock()
    progress = ReadProgress(10, every_s=5, clock=clock)
    clock.now = 5.0
    assert progress.told(12) == "0 of 12 records"


def test_a_reading_of_a_moment_is_not_worth_a_line() -> None:
    clock = Clock()
    progress = ReadProgress(10, clock=clock)
    clock.now = 1.9
    assert not progress.worth_telling
    clock.now = 2.0
    assert progress.worth_telling
