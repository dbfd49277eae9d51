"""Lines that were old when they were read: how old the evidence of an incident is, and what is said of what is left out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import FOUR, World, at, cluster, not_ready, sign, timeouts, xid

HOUR = 3600.0


def read_at(signal: Signal, seconds: float) -> Signal:
    """The line as somebody ships it at that time of the story."""
    return replace(signal, observed_at=at(seconds))


def world() -> World:
    return World(cluster({"llama": FOUR}))


def test_an_old_line_opens_an_incident_that_says_how_old_its_evidence_is() -> None:
    told = world()
    told.see(read_at(xid("n2", 79, -2 * HOUR), 2))
    assert told.only().family == "gpu_off_bus"
    assert (told.only().evident_at, told.only().evident_read_at) == (at(-2 * HOUR), at(2))
    assert told.only().opened_at == at(2)


def test_a_watchdog_that_speaks_now_of_a_collective_of_two_hours_ago_is_new() -> None:
    told = world()
    told.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 0, waited=2 * HOUR))
    told.pass_to(60)
    incident = told.only()
    assert incident.fault_at <= at(-2 * HOUR + 5)
    assert incident.evident_at is not None
    assert incident.evident_at >= at(0)


def test_a_new_line_of_an_old_fault_makes_it_new_and_is_told_at_once() -> None:
    told = world()
    told.see(*(read_at(xid("n2", 79, -2 * HOUR + i), 2) for i in range(12)))
    before = told.only()
    told.see(read_at(xid("n2", 79, 30), 31))
    assert told.only().revision > before.revision
    assert told.only().evident_at == at(30)


def test_of_prompt_evidence_more_lines_are_no_news_by_their_times_alone() -> None:
    told = world()
    told.see(*(xid("n2", 79, i) for i in range(14)))
    told.pass_to(20)
    before = told.only().revision
    for i in range(20):
        told.see(xid("n2", 79, 100 + 100 * i))
    assert told.only().revision == before


def test_a_lesser_line_of_now_does_not_make_an_old_loss_new() -> None:
    told = world()
    told.see(read_at(xid("n2", 79, -2 * HOUR), 2))
    told.see(read_at(xid("n2", 119, 5), 6))
    assert (told.only().family, told.only().evident_at) == ("gpu_off_bus", at(-2 * HOUR))


def test_a_recovery_action_of_now_makes_new_what_it_makes_certain() -> None:
    told = world()
    told.see(read_at(xid("n2", 74, -2 * HOUR), 2))
    before = told.only()
    told.see(xid("n2", 154, 5, action="reset_gpu"))
    assert (before.evident_at, told.only().evident_at) == (at(-2 * HOUR), at(5))


def test_a_hang_that_is_read_again_is_as_old_as_its_reports() -> None:
    told = world()
    ranks = [r for r in range(32) if r // 8 != 1]
    told.see(*(read_at(line, 1) for line in timeouts("llama", ranks, -2000)))
    told.pass_to(90)
    assert told.only().family == "silent_node"
    newest = told.only().evident_at
    assert newest is not None
    assert at(-2000) <= newest <= at(-1990)


def test_a_hang_older_than_what_is_kept_opens_nothing_and_is_told_of() -> None:
    told = world()
    told.see(*(read_at(line, 1) for line in timeouts("llama", range(8, 32), -2 * HOUR)))
    told.pass_to(90)
    assert not told.incidents()
    said = [entry.attributes for entry in told.timeline if entry.event == "reports.late"]
    assert sum(int(str(numbers["reports"])) for numbers in said) == 24


def test_an_old_panic_read_again_by_a_node_that_boots_stays_old() -> None:
    told = world()
    told.see(not_ready("n2", 3))
    told.pass_to(60)
    told.see(read_at(sign("node.kernel", "n2", -2 * HOUR, "kernel_panic"), 61))
    assert told.only().facts["panic"] is True
    assert told.only().evident_at == at(-2 * HOUR)


@pytest.mark.parametrize("sorted_by_time", [True, False])
def test_two_thousand_lines_read_again_make_one_question(sorted_by_time: bool) -> None:
    told, chance = world(), random.Random(7)
    codes = [79, 79, 119, 95, 48, 74, 31, 45, 63, 154]
    ages = [chance.uniform(0.3, 23) * HOUR for _ in range(2000)]
    lines = [
        read_at(xid("n2", chance.choice(codes), -age, index=chance.randrange(8)), i / 100)
        for i, age in enumerate(sorted(ages, reverse=True) if sorted_by_time else ages)
    ]
    for start in range(0, len(lines), 100):
        told.see(*lines[start : start + 100])
    told.pass_to(300)
    standing = [i for i in told.incidents() if i.state is IncidentState.OPEN]
    assert len(standing) == 1
    assert standing[0].evident_at is not None


def test_a_fault_of_now_on_a_node_whose_log_is_read_again_is_told_beside_it() -> None:
    told = world()
    told.see(*(read_at(xid("n2", 119, -3 * HOUR, index=i), 2) for i in range(4)))
    told.see(xid("n2", 79, 5, index=6))
    told.pass_to(60)
    assert [(i.family, i.root.gpu and i.root.gpu.pci) for i in told.incidents()] == [
        ("gpu_fault", "0000:10:00"),
        ("gpu_off_bus", "0000:16:00"),
    ]


def test_old_lines_of_two_nodes_are_two_questions() -> None:
    told = world()
    told.see(*(read_at(xid(n, 119, -3 * HOUR - 600 * i, index=i), 2) for n in ("n2", "n3") for i in range(4)))
    told.pass_to(60)
    assert sorted(str(i.root.node) for i in told.incidents()) == ["n2", "n3"]
