from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from faultline.replay.what_if.outages import Held, LostWork, Outage
from faultline.replay.what_if.structure import Structure, answer
from faultline.replay.what_if.structure_text import lines, rows

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HELD = Held((("Job a", 60.0), ("Job b", 40.0)))


def outage(number: int, **other: object) -> Outage:
    """A job of 8 GPUs that stood still for an hour and repeated half an hour."""
    at = NOON + number * HOUR
    made = Outage(
        incident=f"inc-{number}", fault_at=at, jobs=("Job a",), gpus=8, without_progress_s=3600.0, basis="first step",
        lost_work=(LostWork("Job a", 8, 1800.0),), queued_s=900.0, drained_s=500.0, closed=((at, at + 10 * HOUR),),
    )  # fmt: skip
    return replace(made, **other)  # type: ignore[arg-type]


def test_nothing_asked_changes_nothing() -> None:
    found = answer([outage(1)], HELD, Structure())
    assert (found.without_progress.before, found.without_progress.after) == (8.0, 8.0)
    assert (found.repeated.before, found.repeated.after) == (4.0, 4.0)
    assert found.ettr is not None
    assert found.ettr.before == pytest.approx(1 - 12 / 100)
    assert found.bases == ()


def test_half_an_interval_is_repeated_on_average_between_none_and_all_of_it() -> None:
    found = answer([outage(1), outage(2)], HELD, Structure(checkpoint_every_s=1200.0))
    assert found.repeated.before == 8.0
    assert found.repeated.after == pytest.approx(2 * 8 * 600 / 3600)
    assert found.repeated.least == 0.0
    assert found.repeated.most == pytest.approx(2 * 8 * 1200 / 3600)
    assert found.ettr is not None
    assert found.ettr.least < found.ettr.after < found.ettr.most


def test_rarer_checkpoints_cost_more() -> None:
    found = answer([outage(1)], HELD, Structure(checkpoint_every_s=7200.0))
    assert found.repeated.after == 8.0
    assert found.ettr is not None
    assert found.ettr.after < found.ettr.before


def test_a_job_without_a_known_checkpoint_is_counted_as_not_known_and_never_as_zero() -> None:
    found = answer([outage(1), outage(2, lost_work=None)], HELD, Structure(checkpoint_every_s=1200.0))
    assert found.repeated.after == pytest.approx(8 * 600 / 3600)
    assert found.unknown_repeated == 1
    assert (found.bases[0].known, found.bases[0].of, found.bases[0].share) == (1, 2, 0.5)
    assert any("what 1 incident repeated is not known" in line for line in lines(found))


def test_with_a_free_spare_a_job_waits_as_short_as_the_shortest_wait_seen() -> None:
    found = answer([outage(1), outage(2, queued_s=60.0)], HELD, Structure(spares=2))
    assert found.without_progress.after == pytest.approx(16.0 - 8 * (900 - 60) / 3600)
    assert "waits 60 s, the shortest wait seen here" in "\n".join(lines(found))


def test_a_spare_is_taken_until_the_closed_node_is_back() -> None:
    quick = outage(0, queued_s=60.0, closed=((NOON, NOON + timedelta(minutes=1)),))
    both = [quick, outage(1), outage(2)]
    one = answer(both, HELD, Structure(spares=1))
    assert one.without_progress.after == pytest.approx(24.0 - 8 * 840 / 3600)
    two = answer(both, HELD, Structure(spares=2))
    assert two.without_progress.after == pytest.approx(24.0 - 2 * 8 * 840 / 3600)
    assert answer(both, HELD, Structure(spares=0)).without_progress.after == 24.0


def test_a_drain_saves_what_it_took_longer_than_the_grace() -> None:
    found = answer(
        [outage(1), outage(2, drained_s=100.0), outage(3, drained_s=None)],
        HELD,
        Structure(drain_grace_s=300.0),
    )
    assert found.without_progress.after == pytest.approx(24.0 - 8 * 200 / 3600)
    assert (found.bases[0].known, found.bases[0].of) == (2, 3)


def test_no_more_is_saved_than_was_lost() -> None:
    found = answer([outage(1, without_progress_s=100.0)], HELD, Structure(drain_grace_s=1.0, spares=5))
    assert found.without_progress.after == 0.0


def test_without_held_hours_there_is_no_ettr() -> None:
    found = answer([outage(1, gpus=None)], Held(()), Structure(spares=1))
    assert found.ettr is None
    assert found.unknown_gpus == 1
    assert [row[1] for row in rows(found)] == ["0.0", "0.0", "not known"]
