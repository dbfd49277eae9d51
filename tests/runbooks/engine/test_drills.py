"""A drill has no effect: whatever the settings, the runbook, the inventory and the order of what arrives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runbooks.engine.partition_state import PartitionState
from runbooks.language.loader import load
from streams.model.conversation import Command, Verb
from streams.model.drill import PREFIX, is_drill, is_drill_host
from streams.model.entity import Entity, Gpu, Part
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily
from streams.model.run import Mode, RunState
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, NOW, at, cluster, incident

HOST = f"{PREFIX}3f9a2c51d0"


def state(*more: Fact) -> PartitionState:
    made = PartitionState(load(), AUTO, ACTIONS)
    for fact in (*cluster().nodes.values(), *more):
        made.take_fact(fact.key, fact)
    return made


def drill(family: str = "gpu_off_bus", **changes: object) -> Incident:
    root = Entity(CLUSTER, node=HOST, gpu=Gpu(pci="0000:1b:00"))
    return incident(family, root, **{"jobs": (), "nodes": (HOST,), **changes})


@pytest.mark.parametrize("family", list(IncidentFamily))
@pytest.mark.parametrize(
    "node", [None, NodeFact(CLUSTER, HOST, "uid-drill", NOW, gpus=8, gpus_allocatable=8)]
)
def test_a_drill_is_planned_in_shadow_mode_by_every_runbook(family: str, node: NodeFact | None) -> None:
    made = state(*([node] if node else []))
    made.take_incident(drill(family))
    modes = []
    for second in range(0, 4000, 400):
        made.advance(at(second))
        changes = made.collect()
        assert not changes.calls
        modes += [run.plan.mode for run in changes.runs]
    assert set(modes) == {Mode.SHADOW}


def test_the_same_incident_on_a_real_node_is_acted_on() -> None:
    made = state()
    made.take_incident(incident(jobs=()))
    made.advance(NOW)
    assert made.collect().calls, "the test would otherwise prove nothing"


def test_an_incident_that_names_a_drills_host_beside_real_nodes_is_not_acted_on() -> None:
    made = state()
    made.take_incident(incident(nodes=("node-03", HOST)))
    made.advance(NOW)
    assert not made.collect().calls


@pytest.mark.parametrize("verb", [Verb.APPROVE, Verb.STOP, Verb.RESOLVE, Verb.ACK])
def test_no_command_makes_a_drill_act(verb: Verb) -> None:
    made = state()
    made.take_incident(drill())
    made.advance(NOW)
    (run,) = made.collect().runs
    assert run.state is RunState.SHADOWED
    made.take_command(Command("c1", run.incident, CLUSTER, verb, "eve", at(5), digest=run.plan.digest))
    made.take_incident(replace(drill(), revision=2))
    made.advance(at(6))
    assert not made.collect().calls


@pytest.mark.parametrize(
    ("scope", "event"),
    [
        (f"node:{HOST}", "person.drill"),
        ("node:node-03", "person.drill_refused"),
        ("", "person.drill_refused"),
        ("node:" + "x" * 900, "person.drill_refused"),
    ],
)
def test_a_responder_confirms_only_what_it_never_acts_on(scope: str, event: str) -> None:
    made = state()
    made.take_command(Command("c1", "", CLUSTER, Verb.DRILL, "eve", NOW, scope=scope))
    made.advance(NOW)
    changes = made.collect()
    (entry,) = changes.timeline
    assert (entry.event, entry.attributes["command"], entry.incident) == (event, "c1", "")
    assert not changes.calls
    assert not changes.runs


def test_a_drill_on_a_name_that_a_node_has_is_refused() -> None:
    made = state(NodeFact(CLUSTER, HOST, "uid-drill", NOW))
    made.take_command(Command("c1", "", CLUSTER, Verb.DRILL, "eve", NOW, scope=f"node:{HOST}"))
    made.advance(NOW)
    assert [entry.event for entry in made.collect().timeline] == ["person.drill_refused"]


@pytest.mark.parametrize(
    ("root", "nodes", "expected"),
    [
        (Entity(CLUSTER, node=HOST), (), True),
        (Entity(CLUSTER, part=Part("name", "faultline-drill")), (), True),
        (Entity(CLUSTER, switch="leaf-1"), ("node-01", HOST), True),
        (Entity(CLUSTER, node="node-01"), ("node-01",), False),
        (Entity(CLUSTER, node="my-faultline-drill-1"), (), False),
    ],
)
def test_a_drill_is_known_by_any_name_in_it(root: Entity, nodes: tuple[str, ...], expected: bool) -> None:
    assert is_drill(incident(root=root, nodes=nodes)) is expected
    assert is_drill_host(None) is False
