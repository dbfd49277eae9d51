"""Which incidents share a thread: those of one shared part, and many of one cluster at once; nobody leaves again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from faultline.chat.summaries import LONGEST, MANY, Summaries
from faultline.chat.summary_messages import summary_mark, summary_message
from streams.model.drill import PREFIX
from streams.model.entity import Entity, Part
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.message import Facts, Table
from tests.connectors.chat.thread_documents import NOW, incident


def node(number: int, after_s: float = 0, cluster: str = "c1", **changes: object) -> Incident:
    return at(Entity(cluster, node=f"node-{number:03}"), after_s, **changes)


def at(root: Entity, after_s: float = 0, **changes: object) -> Incident:
    opened = NOW + timedelta(seconds=after_s)
    return incident(
        root.cluster,
        id=incident_id(root.cluster, root, "node_down", 1),
        root=root,
        opened_at=opened,
        fault_at=opened,
        **changes,
    )


def joined(incidents: Sequence[Incident], told: int = 0) -> list[str]:
    """The summary of each incident, empty for those that stay alone. The first `told` have threads already."""
    summaries, of = Summaries(), dict[str, str]()
    for number, one in enumerate(incidents):
        of |= summaries.join(one, "C1", told=number < told)
    return [of.get(one.id, "") for one in incidents]


LEAF = [at(Entity("c1", switch="leaf-3", port=f"Ethernet{n}"), after_s=600 * n) for n in range(3)]
RACK = Entity("c1", rack="r12")
DRILL = at(Entity("c1", node=f"{PREFIX}3f9a2c51d0"))
FEED = Entity("c1", part=Part("power-feed", "B"))


@pytest.mark.parametrize(
    ("incidents", "told", "together"),
    [
        ([node(n) for n in range(MANY - 1)], 0, 0),
        ([node(n) for n in range(MANY)], 0, MANY),
        ([node(n, after_s=15 * n) for n in range(MANY)], 0, MANY),
        ([node(n, after_s=16 * n) for n in range(MANY)], 0, 0),
        ([node(n, after_s=0.1 * n) for n in range(500)], 0, 500),
        ([node(n, cluster=f"c{n % 2}") for n in range(2 * MANY - 2)], 0, 0),
        ([node(n) for n in range(MANY)], MANY, 0),
        ([node(n) for n in range(MANY + 1)], MANY, MANY + 1),
        ([node(n, state=IncidentState.RESOLVED) for n in range(MANY)], 0, 0),
        (LEAF, 0, 3),
        ([at(RACK), at(FEED)], 0, 0),
        ([*(node(n) for n in range(MANY - 1)), DRILL], 0, 0),
        ([*(node(n) for n in range(MANY)), DRILL], 0, MANY),
    ],
    ids=[
        "too few", "enough", "within a minute", "slower than that", "a flood", "two clusters", "all have threads", "one has none",
        "all over", "ports of a leaf, whenever", "different parts",
        "too few but for a drill", "a drill beside them",
    ],
)  # fmt: skip
def test_what_hangs_together_shares_a_thread(incidents: list[Incident], told: int, together: int) -> None:
    summaries = [name for name in joined(incidents, told) if name]
    assert len(summaries) == together
    assert len(set(summaries)) <= 1


def test_whatever_the_order_of_arrival_all_are_told_together() -> None:
    incidents = [node(n, after_s=5 * n) for n in range(12)]
    for order in (incidents, incidents[::-1], incidents[6:] + incidents[:6]):
        assert len(set(joined(order))) == 1
        assert "" not in joined(order)


def test_what_goes_on_for_hours_is_not_one_event() -> None:
    slow = [node(n, after_s=12 * n) for n in range(200)]
    first, *_ = joined(slow)
    same = [one for one, name in zip(slow, joined(slow), strict=True) if name == first]
    assert same[-1].opened_at - same[0].opened_at <= LONGEST
    assert len(set(joined(slow))) > 1


def test_a_part_that_breaks_again_when_all_was_over_is_another_event() -> None:
    summaries = Summaries()
    for one in LEAF[:2]:
        summaries.join(one, "C1", told=False)
    over = replace(LEAF[0], state=IncidentState.RESOLVED)
    (name,) = summaries.by_id
    summaries.remember(over, name, "C1")
    assert summaries.join(LEAF[2], "C1", told=False) == {LEAF[2].id: name}
    for one in LEAF:
        summaries.remember(replace(one, state=IncidentState.RESOLVED), name, "C1")
    again = at(Entity("c1", switch="leaf-3", port="Ethernet9"), after_s=700_000)
    assert summaries.join(again, "C1", told=False) == {}


def test_a_stored_membership_counts_after_a_restart() -> None:
    incidents = [node(n) for n in range(8)]
    (name,) = set(joined(incidents[:6]))
    again = Summaries()
    for one in incidents[:6]:
        again.remember(one, name, "C1")
        again.remember(one, name, "C1")
    assert again.join(incidents[6], "C1", told=False) == {incidents[6].id: name}
    assert again.join(incidents[0], "C1", told=False) == {}
    assert len(again.by_id[name].members) == 7


def test_a_summary_counts_its_incidents_by_state_and_names_what_they_share() -> None:
    summaries = Summaries()
    states = [IncidentState.OPEN] * 30 + [IncidentState.RESOLVED] * 9 + [IncidentState.AWAITING_HUMAN]
    incidents = [node(n, state=state) for n, state in enumerate(states)]
    for one in incidents:
        summaries.remember(one, "sum-1", "C1")
    message = summary_message(summaries.by_id["sum-1"], incidents, {incidents[-1].id: True})
    assert message.summary.endswith("1 awaiting human action · 30 open · 9 resolved")
    (table,) = [block for block in message.blocks if isinstance(block, Table)]
    assert [row[:2] for row in table.rows] == [
        ("awaiting human action", "1"), ("open", "30"), ("resolved", "9"),
    ]  # fmt: skip
    (facts,) = [block for block in message.blocks if isinstance(block, Facts)]
    assert [fact.text for fact in facts.facts if fact.label == "Jobs"] == ["1: research/llm-70b"]


def test_a_summary_of_a_leaf_says_so() -> None:
    summaries = Summaries()
    for one in LEAF:
        summaries.remember(one, "sum-1", "C1")
    message = summary_message(summaries.by_id["sum-1"], LEAF, {})
    assert message.summary.startswith("🔴 3 incidents in c1, switch leaf-3")


@pytest.mark.parametrize(
    ("states", "mark"),
    [
        ([IncidentState.OPEN, IncidentState.RESOLVED], "open"),
        ([IncidentState.OPEN, IncidentState.AWAITING_HUMAN], "asking"),
        ([IncidentState.RESOLVED, IncidentState.MERGED], "over"),
    ],
)
def test_what_is_told_at_once_is_whether_anything_is_open_and_asks(
    states: list[IncidentState], mark: str
) -> None:
    assert summary_mark(node(n, state=state) for n, state in enumerate(states)) == mark


def worked_on(number: int, request: str, after_s: float = 0) -> Incident:
    one = node(number, after_s, facts={"request": request})
    return replace(one, family="planned_work", id=f"{one.id}-{request}")


def test_all_nodes_of_one_request_are_one_thread_in_whatever_wave_they_begin() -> None:
    waves = [worked_on(n, "cmd-1", after_s=3600 * (n // 2)) for n in range(6)]
    other = [worked_on(n, "cmd-2") for n in range(6, 9)]
    found = joined([*waves, *other])
    assert found[0] != ""
    assert found[:6] == [found[0]] * 6
    assert found[6:] == [found[6]] * 3
    assert found[0] != found[6]


def test_a_fault_that_opens_while_planned_work_begins_is_not_told_with_it() -> None:
    work = [worked_on(n, "cmd-1") for n in range(MANY)]
    faults = [node(n) for n in range(20, 20 + MANY - 1)]
    found = joined([*work, *faults])
    assert all(found[:MANY])
    assert found[MANY:] == [""] * (MANY - 1)
    assert joined([worked_on(1, "cmd-1")]) == [""]


def test_the_thread_of_a_request_says_whose_work_it_is() -> None:
    facts = {"request": "cmd-1", "by": "ada", "work_reason": "CHG/1142", "until": "2026-03-01T16:00:00Z"}
    work = [replace(worked_on(n, "cmd-1"), facts=facts) for n in range(2)]
    summaries = Summaries()
    for one in work:
        summaries.join(one, "C1", told=False)
    (summary,) = summaries.by_id.values()
    told = summary_message(summary, work, {}).summary
    assert "2 incidents in c1, planned work by ada: CHG/1142" in told
