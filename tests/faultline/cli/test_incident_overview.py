"""The list of incidents: open ones first, then those that keep a node closed, and nothing that is over decoded for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from aiokafka import ConsumerRecord

from faultline.cli.incident_overview import counts, overview_of, read_overview
from faultline.live_view.overview import Overview
from streams.kafka import clients, provisioning
from streams.kafka.topics import INCIDENTS, TIMELINE
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import EffectRecord, EffectState, Run, RunOutcome, RunState, StepState, Target
from tests.connectors.chat.thread_documents import NOW, incident, run
from tests.testbed.kafka import Kafka

LATER = NOW + timedelta(hours=1)


def record(topic: str, key: str, value: bytes | None, offset: int = 0) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(topic, 0, offset, 0, 0, key.encode(), value, 0, 0, 0, ())


def about(number: int, state: IncidentState) -> Incident:
    """An incident of a node of its own."""
    root = Entity("c1", node=f"node-{number:02}")
    closed_at = NOW if state.is_over else None
    opened_at = NOW + timedelta(seconds=number)
    name = incident_id("c1", root, "gpu_off_bus", 1)
    return incident(id=name, root=root, state=state, revision=2, opened_at=opened_at, closed_at=closed_at)


def closer(of: Incident) -> Run:
    """The run that has closed the incident's node and is through."""
    made = run(of, cordon=StepState.DONE, ticket=StepState.DONE)
    node = Target("Node", str(of.root.node), uid="u")
    closed = EffectRecord("k", "cordon_node", node, EffectState.CONFIRMED, NOW, NOW, confirmed_at=NOW)
    planned, *others = made.plan.steps
    step, *rest = made.steps
    return replace(
        made,
        plan=replace(made.plan, steps=(replace(planned, target=node), *others)),
        steps=(replace(step, effect=closed), *rest),
        state=RunState.SUCCEEDED,
        outcome=RunOutcome.SUCCEEDED,
    )


def node(of: Incident, **changes: object) -> NodeFact:
    fact = NodeFact("c1", str(of.root.node), "u", LATER, gpus=8, unschedulable=True, owner_incident=of.id)
    return replace(fact, **changes)  # type: ignore[arg-type]


def seen(
    incidents: Sequence[Incident], runs: Sequence[Run], nodes: Sequence[NodeFact], *, everything: bool = False
) -> list[Overview]:
    told = {
        "incidents": [record("incidents", i.id, encode(i)) for i in incidents],
        "runs": [record("runs", r.id, encode(r)) for r in runs],
        "inventory": [record("inventory", n.key, encode(FactRecord(n))) for n in nodes],
    }
    return overview_of(told, everything=everything)


def test_sixty_cordoned_nodes_stand_after_what_is_open_and_before_what_is_over() -> None:
    contained = [about(n, IncidentState.RESOLVED) for n in range(60)]
    open_, over = about(70, IncidentState.MITIGATING), about(80, IncidentState.RESOLVED)
    nodes = [*map(node, contained), node(over, unschedulable=False, owner_incident=None)]
    incidents = [over, *contained, open_]
    runs = list(map(closer, [*contained, over]))
    shown = seen(incidents, runs, nodes)
    assert [one.standing for one in shown] == ["mitigating", *["contained"] * 60]
    assert shown[1].incident == contained[-1], "the newest first"
    assert shown[1].waits_for == "repair: node-59 stays cordoned, without a repair ticket"
    assert list(counts(shown)) == ["1 open", "60 contained: a node stays cordoned until it is repaired"]
    assert [one.standing for one in seen(incidents, runs, nodes, everything=True)][-1] == "resolved"


def test_an_incident_whose_run_was_lost_waits_for_a_person() -> None:
    acted, fresh, over = (
        about(1, IncidentState.MITIGATING),
        about(2, IncidentState.OPEN),
        about(3, IncidentState.RESOLVED),
    )
    shown = {one.incident.id: one.waits_for for one in seen([acted, fresh, over], [], [node(over)])}
    assert shown[acted.id] == "manual action: a run acted for it, and is not on record any more"
    assert shown[fresh.id] == "", "its run may be planned this very moment"
    assert shown[over.id] == "repair: node-03 stays cordoned, and its run is not on record"
    held = about(4, IncidentState.AWAITING_HUMAN)
    (one,) = seen([held], [], [node(held)])
    assert one.waits_for.startswith("manual action: a run acted for it")


@pytest.mark.kafka
async def test_an_incident_that_waits_for_a_person_and_whose_runs_are_lost_says_so(kafka: Kafka) -> None:
    own = kafka.settings("overview")
    await provisioning.apply(own)
    lost, none = about(1, IncidentState.AWAITING_HUMAN), about(2, IncidentState.AWAITING_HUMAN)
    lines = [
        TimelineEntry(lost.id, "c1", NOW, "responder", "run.planned", "runbook gpu-off-bus with 3 steps"),
        TimelineEntry(
            none.id, "c1", NOW, "responder", "run.none", "manual action required: no runbook matches"
        ),
    ]
    writer = await clients.started(clients.producer(own), own)
    try:
        for one in (lost, none):
            await writer.send_and_wait(
                clients.topic_name(own, INCIDENTS), encode(one), key=one.id.encode(), partition=0
            )
        for line in lines:
            name, key = clients.topic_name(own, TIMELINE), line.incident.encode()
            await writer.send_and_wait(name, encode(line), key=key, partition=0)
    finally:
        await writer.stop()
    shown = {one.incident.id: one.waits_for for one in await read_overview(own)}
    assert shown[lost.id].endswith("its runs are lost")
    assert shown[none.id] == "manual action: no runbook applies"


def test_two_incidents_that_hold_one_node_are_both_contained() -> None:
    first = about(1, IncidentState.RESOLVED)
    second = replace(first, id="inc-second", family="gpu_ecc")
    shown = seen([first, second], [closer(first), replace(closer(second), id="run-2")], [node(first)])
    assert [one.standing for one in shown] == ["contained", "contained"]


def test_a_node_still_tells_of_its_incident_when_the_run_is_forgotten_and_ends_with_its_tombstone() -> None:
    old = about(1, IncidentState.RESOLVED)
    (one,) = seen([old], [], [node(old)])
    assert (one.standing, [owed.since for owed in one.repairs]) == ("contained", [None])
    told = {
        "incidents": [record("incidents", old.id, encode(old))],
        "runs": [record("runs", "run-1", encode(closer(old))), record("runs", "run-1", None)],
        "inventory": [
            record("inventory", "c1/node/node-01", encode(FactRecord(node(old)))),
            record("inventory", "c1/node/node-01", None),
        ],
    }
    assert overview_of(told) == []


def test_a_damaged_revision_is_named_and_the_one_before_it_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = about(1, IncidentState.OPEN)
    damaged = encode(replace(good, revision=3)).replace(b'"title":"GPU', b'"title":7,"x":"GPU')
    told = {
        "incidents": [record("incidents", good.id, encode(good)), record("incidents", good.id, damaged, 9)],
        "runs": [], "inventory": [],
    }  # fmt: skip
    (one,) = overview_of(told)
    assert one.incident == good
    assert "skipping unreadable record incidents:0:9" in capsys.readouterr().err
