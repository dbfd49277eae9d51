"""Nodes that come back from planned work, or a reboot, without their GPUs: the node, or what several of them came back with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, NodeWork, PodFact
from streams.model.incident import Incident, IncidentState
from tests.streams.correlate.world import GPUS, World, at, cluster, node_fact

OLD, NEW = "5.14.0-427.70.1", "5.14.0-427.76.1"
NODES = [f"n{i:02d}" for i in range(4)]


def serves(node: str, seconds: float, gpus: int = GPUS, boot: str = "a", **more: object) -> NodeFact:
    kernel = NEW if boot == "b" else OLD
    fact = node_fact(node, since=seconds, gpus=gpus, gpus_allocatable=gpus, boot_id=boot, kernel=kernel)
    return replace(fact, **more)  # type: ignore[arg-type]


def rolled(node: str, begins: float, back: float, gpus: int = 0, **more: object) -> list[Fact]:
    """An operator cordons a node, boots it into a new kernel and opens it again."""
    work = NodeWork("machine-config operator", "state", "back")
    closed = serves(node, begins, unschedulable=True, work=work)
    away = replace(closed, observed_at=at(begins + 60), ready=False)
    up = serves(node, back - 30, gpus, "b", unschedulable=True, work=work, **more)
    return [serves(node, -60), closed, away, up, serves(node, back, gpus, "b", **more)]


def told(*facts: Fact, until: float = 9000) -> World:
    world = World(cluster({}, spare=[*NODES, "n90", "n91", "n92", "n93"]))
    for fact in sorted(facts, key=lambda one: one.observed_at):
        assert isinstance(fact, NodeFact | PodFact | JobFact | LinkFact)
        world.pass_to((fact.observed_at - at(0)).total_seconds(), step=30)
        world.tell(fact)
    world.pass_to(until, step=30)
    return world


def story(*facts: Fact, until: float = 9000) -> list[Incident]:
    return [i for i in told(*facts, until=until).incidents() if i.merged_into is None]


def test_a_node_that_comes_back_from_planned_work_without_gpus_is_named() -> None:
    (incident,) = story(*rolled("n00", 0, 500))
    assert (incident.family, incident.root.node) == ("platform_fault", "n00")
    assert (incident.state, incident.fault_at) == (IncidentState.OPEN, at(500))
    assert "0 of its 8 GPUs" in incident.reason


def test_it_is_named_as_well_when_only_some_are_missing_after_a_reboot_that_nobody_asked_for() -> None:
    (incident,) = story(serves("n00", -60), serves("n00", 300, 7, "b"))
    assert (incident.root.node, "7 of its 8 GPUs" in incident.reason) == ("n00", True)


def test_several_that_came_back_with_the_same_kernel_are_one_incident_of_it() -> None:
    facts = [one for i, node in enumerate(NODES[:3]) for one in rolled(node, 900 * i, 900 * i + 500)]
    (incident,) = story(*facts)
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", f"kernel {NEW}")
    assert incident.facts["nodes_hit"] == 3
    assert "without their GPUs" in incident.reason


def test_it_is_over_when_the_gpus_are_back() -> None:
    (incident,) = story(*rolled("n00", 0, 500), serves("n00", 4000, GPUS, "b"))
    assert incident.state is IncidentState.RESOLVED


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(
            [*rolled("n00", 0, 500), serves("n00", 1500, GPUS, "b")], id="driver installed meanwhile"
        ),
        pytest.param(rolled("n00", 0, 500)[:-1], id="still worked on"),
        pytest.param(
            [
                *rolled("n00", 0, 500),
                serves("n00", 1000, 0, "b", unschedulable=True),
                *(serves("n00", 4000, GPUS, "b"),),
            ],
            id="worked on again before it was missed",
        ),
        pytest.param(
            [serves("n00", 100, 0, "a", uid="new"), serves("n00", 4000, 0, "b", uid="new")], id="new"
        ),
        pytest.param([serves("n00", -60), serves("n00", 300, 0, "b", uid="made anew")], id="made anew"),
        pytest.param(rolled("n00", 0, 500, gpu_layout="mig.config=all-1g.10gb"), id="MIG on purpose"),
        pytest.param([serves("n00", -60), serves("n00", 3000, 7)], id="a plugin gives one up"),
        pytest.param([serves("n00", -60, 0), *rolled("n00", 0, 500)[1:]], id="none before"),
    ],
)
def test_what_is_on_purpose_or_on_its_way_opens_nothing(facts: list[Fact]) -> None:
    assert not story(*facts)
