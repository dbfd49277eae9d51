from __future__ import annotations

from dataclasses import dataclass

import pytest

from streams.telemetry import metrics as shown
from streams.telemetry.lag import MOST_ENDS, STUCK_S, LagMeter, Processed
from streams.telemetry.registry import Metrics

PLACE = ("raw.node-logs", 3)
SERIES = ("raw.node-logs", "3")
EPOCH_S = 1_700_000_000.0


@dataclass
class Scene:
    """A meter whose two clocks move together."""

    now: float = 100.0

    def __post_init__(self) -> None:
        self.meter = LagMeter(clock=lambda: self.now, wall=lambda: EPOCH_S + self.now)

    def look(
        self, offset: int, end: int, *, after: float = 5.0, written: float | None = None, **more: bool
    ) -> None:
        """Look after so many seconds; `written` is how many seconds ago what was processed last had been written."""
        self.now += after
        written_ms = None if written is None else round((EPOCH_S + self.now - written) * 1000)
        confirmed = more.pop("confirmed", True)
        self.meter.looked({PLACE: Processed(offset, written_ms, **more)}, {PLACE: end}, confirmed=confirmed)

    @property
    def told(self) -> tuple[float, float, float]:
        """Records, seconds, and seconds stuck."""
        meter = self.meter
        return meter.records()[SERIES], meter.seconds()[SERIES], meter.stuck_seconds()[SERIES]


def test_an_idle_partition_has_no_lag_and_does_not_age() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.look(40, 40, written=7200)
    assert scene.told == (0, 0, 0)
    assert scene.meter.stuck == ""


def test_a_stuck_partition_ages_and_is_told_of() -> None:
    scene = Scene()
    scene.look(40, 40)
    for _ in range(30):
        scene.look(40, 43)
    assert scene.told == (3, 150, 145)
    assert "raw.node-logs[3]" in scene.meter.stuck
    scene.now += 60  # no look any more: an event loop that hangs
    assert scene.told[1] == 210


def test_an_hour_of_idleness_before_a_record_that_is_stuck_does_not_count() -> None:
    scene = Scene()
    scene.look(40, 40, written=3600)
    scene.look(40, 41, written=3605)
    assert scene.told == (1, 5, 0)


def test_a_partition_that_is_busy_all_the_time_is_as_old_as_its_oldest_unprocessed_record() -> None:
    """At no look is everything processed; shippers' clocks are an hour behind."""
    scene = Scene()
    for second in range(1, 200):
        scene.look(second * 1000 - 500, second * 1000, after=1, written=3600)
    assert scene.told[0] == 500
    assert scene.told[1] <= 1
    assert scene.told[2] == 0


def test_after_a_takeover_the_backlog_is_as_old_as_the_records_say() -> None:
    scene = Scene()
    scene.look(10, 1_000_000, written=3 * 3600)
    assert scene.told[1] == 3 * 3600
    scene.look(500_000, 1_000_100, written=1800)
    assert scene.told[1] == 1800
    scene.look(1_000_050, 1_000_100, written=9999)  # now the looks themselves tell
    assert scene.told[1] <= 10


def test_a_record_from_the_future_is_as_old_as_the_time_since() -> None:
    scene = Scene()
    scene.look(10, 20, written=-86_400)
    scene.now += 7
    assert scene.told[1] == pytest.approx(7)


def test_without_any_time_the_backlog_is_as_old_as_it_is_known() -> None:
    scene = Scene()
    scene.look(0, 20)
    scene.look(0, 20)
    assert scene.told == (20, 5, 5)


def test_what_is_processed_slowly_is_behind_and_not_stuck() -> None:
    scene = Scene()
    for number in range(100):
        scene.look(number, 100_000)
    assert scene.told[2] == 0
    assert scene.meter.stuck == ""


def test_while_the_broker_does_not_answer_nothing_counts_as_stuck() -> None:
    scene = Scene()
    scene.look(40, 43)
    for _ in range(100):
        scene.look(40, 43, confirmed=False)
    assert scene.told[2] == 0
    assert scene.told[1] == 500  # it has waited all the same
    scene.look(40, 43)
    assert scene.told[2] <= 15


def test_a_process_that_was_frozen_for_an_hour_was_not_stuck() -> None:
    scene = Scene()
    scene.look(40, 43)
    scene.look(40, 43, after=3600)
    assert scene.told[2] <= 15
    assert scene.meter.stuck == ""


def test_what_is_meant_to_wait_is_not_stuck() -> None:
    scene = Scene()
    for _ in range(100):
        scene.look(40, 43, waits=True)
    assert scene.told[2] == 0
    for _ in range(30):
        scene.look(40, 43)
    assert scene.told[2] > STUCK_S


def test_progress_ends_being_stuck() -> None:
    scene = Scene()
    for _ in range(60):
        scene.look(40, 43)
    assert scene.meter.stuck
    scene.look(41, 43)
    assert scene.told[2] == 0
    assert scene.meter.stuck == ""


def test_a_partition_that_is_lost_is_not_shown_and_starts_anew() -> None:
    scene = Scene()
    for _ in range(60):
        scene.look(40, 43)
    scene.meter.looked({}, {})
    assert scene.meter.records() == {}
    assert scene.meter.stuck == ""
    scene.look(40, 43)
    assert scene.told[2] == 0


def test_a_position_beyond_the_end_is_no_lag() -> None:
    """The end was asked for before more was written and read; or the topic was made anew with fewer records."""
    scene = Scene()
    scene.look(50, 43)
    assert scene.told == (0, 0, 0)


def test_a_day_of_being_stuck_while_records_come_keeps_a_bounded_memory() -> None:
    scene = Scene()
    scene.look(40, 40)
    for number in range(20_000):
        scene.look(40, 41 + number)
    ends = scene.meter._partitions[PLACE].ends
    assert len(ends) <= MOST_ENDS
    assert scene.told[1] == 20_000 * 5


def test_all_of_it_is_in_the_exposition() -> None:
    scene, metrics = Scene(), Metrics("detector")
    scene.meter.show(metrics)
    assert "faultline_lag_checked_timestamp_seconds 1" not in metrics.exposition("")[0].decode()
    scene.look(40, 40)
    scene.look(40, 43)
    assert metrics.value(shown.LAG_RECORDS, *SERIES) == 3
    assert metrics.value(shown.LAG_SECONDS, *SERIES) == 5
    assert metrics.value(shown.STUCK_SECONDS, *SERIES) == 0
    assert metrics.value(shown.LAG_CHECKED) == EPOCH_S + scene.now
