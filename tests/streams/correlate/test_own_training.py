"""A LeaderWorkerSet that trains by what it logs is a victim as any training job; one that serves stays what it is taken for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from streams.model.entity import Entity, JobRef
from streams.model.facts import Fact, JobFact, PodFact
from streams.model.kinds import WorkloadClass
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, node_fact, off_bus, progress

GROUP = JobRef("LeaderWorkerSet", "train", "moe")
NODES = ["n1", "n2", "n3", "n4"]


def pods(
    *, gpus: int = 4, guessed: bool = True, workload: WorkloadClass = WorkloadClass.INFERENCE
) -> list[PodFact]:
    """A pod on each node; `progress` calls the last one `moe-worker-3`."""
    return [
        PodFact(
            CLUSTER,
            "train",
            f"moe-worker-{i}",
            f"uid-{i}",
            at(-3000),
            node=node,
            job=GROUP,
            phase="Running",
            ready=True,
            gpus=gpus,
            scheduled_at=at(-3000),
            workload=workload,
            workload_guessed=True if guessed else None,
        )
        for i, node in enumerate(NODES)
    ]


def object_of(made: list[PodFact], count: int = 4) -> JobFact:
    pod = made[0]
    return JobFact(
        CLUSTER, GROUP, at(-3000), pods=count, workload=pod.workload, workload_guessed=pod.workload_guessed
    )


def steps(since: float = -1200, first: int = 5000, each: int = 10, minutes: int = 10) -> list[Signal]:
    """Only one pod of the group logs steps, as Megatron's last rank does."""
    return [progress("moe", since + 60 * i, first + each * i, pod=3) for i in range(minutes)]


def jobs_hit(facts: list[Fact], log: list[Signal]) -> list[str]:
    world = World([*map(node_fact, NODES), *facts])
    for signal in log:
        world.see(signal)
    world.see(off_bus("n1", 0, 0))
    world.pass_to(60)
    return [job.key for job in world.only().jobs]


def test_what_logs_steps_of_a_training_on_half_a_node_each_is_a_victim() -> None:
    made = pods()
    assert jobs_hit([*made, object_of(made)], steps()) == [GROUP.key]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_whatever_order_its_object_its_pods_and_its_log_are_read(order: tuple[int, ...]) -> None:
    made = pods()
    world = World(map(node_fact, NODES))
    parts: list[Sequence[Fact | Signal]] = [[object_of(made)], made, steps()]
    for part in order:
        for one in parts[part]:
            world.see(one) if isinstance(one, Signal) else world.tell(one)
    world.restart()
    world.tell(replace(made[0], observed_at=at(-10)))
    world.see(off_bus("n1", 0, 0))
    world.pass_to(60)
    assert [job.key for job in world.only().jobs] == [GROUP.key]


NO_TRAINING: dict[str, tuple[list[PodFact], int, list[Signal]]] = {
    "it logs nothing": (pods(), 4, []),
    "a picture of fifty steps after the other": (pods(), 4, steps(first=20, each=2)),
    "weights that are loaded for two minutes": (pods(), 4, steps(first=900, minutes=3)),
    "pods of one GPU each": (pods(gpus=1), 4, steps()),
    "a single pod": (pods()[3:], 1, steps()),
    "its label says that it serves": (pods(guessed=False), 4, steps()),
    "a notebook": (pods(workload=WorkloadClass.NOTEBOOK), 4, steps()),
}


@pytest.mark.parametrize("name", NO_TRAINING)
def test_what_is_no_training_stays_what_it_is(name: str) -> None:
    made, count, log = NO_TRAINING[name]
    assert jobs_hit([*made, object_of(made, count)], log) == []


def refused(kind: str, name: str, *seconds: float) -> list[Signal]:
    words = {"webhook": "h.example.io", "service": "hook", "service_namespace": "platform"}
    attributes: dict[str, Attribute] = {
        "subtype": "create_refused",
        "reason": "FailedCreate",
        "certificate": "expired",
        **words,
    }
    place = Entity(CLUSTER, job=JobRef(kind, "train", name))
    return [_signal("job.failed", place, s, attributes, severity=Severity.WARNING) for s in seconds]


@pytest.mark.parametrize("made_by", ["moe", "moe-0"])
@pytest.mark.parametrize("trains", [True, False])
def test_pods_that_its_stateful_sets_cannot_create_are_its_own(made_by: str, *, trains: bool) -> None:
    """The leaders' StatefulSet bears the name of the object, those of the workers a group's number besides."""
    made = pods()
    world = World([*map(node_fact, NODES), *made, object_of(made)])
    lines = [
        *(steps() if trains else ()),
        *refused("StatefulSet", made_by, *range(0, 300, 30)),
        *refused("Job", "build", *range(0, 300, 30)),
    ]
    world.play(lines, 400)
    incident = world.only()
    others = [job.key for job in incident.other_workloads.first] if incident.other_workloads else []
    assert GROUP.key in ([job.key for job in incident.jobs] if trains else others)
    assert not any("StatefulSet" in key for key in others)
