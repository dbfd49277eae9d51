"""Reports that were old when Kafka got them are counted by who sent them, and told of now and then."""

from __future__ import annotations

import pytest

from streams.model.conversation import TimelineEntry
from tests.streams.correlate.test_old_lines import HOUR, read_at, world
from tests.streams.correlate.world import World, xid


def late_reports(told: World) -> list[TimelineEntry]:
    return [entry for entry in told.timeline if entry.event == "reports.late"]


def test_lines_that_are_left_out_are_counted_and_told_once_for_each_source_and_interval() -> None:
    told = world()
    for i in range(50):
        told.see(*(read_at(xid("n2", 79, -47 * HOUR + 60 * i + j), i) for j in range(40)))
        told.see(read_at(xid("n3", 79, -72 * HOUR + 60 * i), i))
        told.pass_to(i + 0.5)
    told.pass_to(290)
    assert not told.incidents()
    assert len(late_reports(told)) == 2
    told.pass_to(700)
    said = late_reports(told)
    assert len(said) == 4
    by_place = {place: [e for e in said if e.attributes["place"] == place] for place in ("n2", "n3")}
    left_out = [sum(int(str(e.attributes["left_out"])) for e in found) for found in by_place.values()]
    assert left_out == [2000, 50]
    assert "are left out: no incident is made of them" in said[0].text
    assert said[0].incident == ""


def test_late_lines_that_are_taken_in_are_told_of_too_and_prompt_ones_are_not() -> None:
    told = world()
    told.see(read_at(xid("n2", 79, -2.2 * HOUR), 2), xid("n3", 79, 0))
    told.pass_to(20)
    (only,) = late_reports(told)
    assert (only.attributes["place"], only.attributes["reports"], only.attributes["left_out"]) == ("n2", 1, 0)


@pytest.mark.parametrize(("hours", "words"), [(2, "+2 h"), (5.5, "+5.5 h"), (-7, "-7 h")])
def test_a_host_whose_lines_are_all_off_by_whole_hours_is_told_to_have_a_wrong_time_zone(
    hours: float, words: str
) -> None:
    told = world()
    told.see(*(read_at(xid("n2", 13, 30 * i - hours * HOUR), 30 * i + 1) for i in range(5)))
    told.pass_to(200)
    assert f"all are off by {words}: the time zone" in late_reports(told)[0].text


def test_a_log_that_is_read_again_is_not_taken_for_a_wrong_time_zone() -> None:
    told = world()
    told.see(*(read_at(xid("n2", 13, 600 * i - 9 * HOUR), 5) for i in range(40)))
    told.pass_to(20)
    assert "reads an old log again" in late_reports(told)[0].text


def test_ten_thousand_sources_that_are_late_are_told_in_a_bounded_number_of_lines() -> None:
    told = world()
    told.see(*(read_at(xid(f"host-{i}", 79, -30 * HOUR), 1) for i in range(10_000)))
    told.pass_to(200)
    said = late_reports(told)
    assert len(said) <= 65
    assert sum(int(str(e.attributes["left_out"])) for e in said) == 10_000
