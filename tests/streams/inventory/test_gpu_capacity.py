"""What waits for GPUs, and what the nodes have left."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from streams.inventory.gpu_capacity import PoolCapacity, WaitingWork, pool_capacity, waiting_work
from streams.model.entity import JobRef
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.kinds import WorkloadClass

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LLAMA = JobRef("PyTorchJob", "train", "llama")


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def pod(
    name: str, node: str | None = None, *, job: JobRef | None = LLAMA, gpus: int = 8, hours: float = 2
) -> PodFact:
    return PodFact(
        "c1", "train", name, f"uid-{name}", NOW, node=node, job=job, gpus=gpus, created_at=ago(hours)
    )


def node(
    name: str, *, ready: bool = True, closed: bool = False, allocatable: int = 8, pool: str = "a"
) -> NodeFact:
    return NodeFact(
        "c1",
        name,
        "u",
        NOW,
        ready=ready,
        unschedulable=closed,
        gpus=8,
        gpus_allocatable=allocatable,
        pool=pool,
    )


def test_what_waits_is_told_by_job_longest_first() -> None:
    notebook = replace(
        pod("nb", job=None, gpus=1, hours=5), workload=WorkloadClass.NOTEBOOK, workload_guessed=True
    )
    facts = [
        *(pod(f"w{i}", hours=2 + i) for i in range(3)),
        pod("w3", "n1"),
        replace(pod("w4"), ended_at=NOW),
        pod("launcher", gpus=0),
        notebook,
    ]
    assert waiting_work(facts) == [
        WaitingWork("train", "nb", "Pod", WorkloadClass.NOTEBOOK, True, ago(5), 1, 1, 1),
        WaitingWork("train", "llama", "PyTorchJob", WorkloadClass.TRAINING, False, ago(4), 3, 5, 24),
    ]


def test_a_suspended_job_waits_without_pods_and_a_finished_one_does_not() -> None:
    job = JobFact("c1", LLAMA, ago(1), suspended=True, pods=4)
    (waits,) = waiting_work([job])
    assert (waits.name, waits.suspended, waits.of_pods, waits.gpus) == ("llama", True, 4, None)
    assert waiting_work([replace(job, finished=True)]) == []
    assert waiting_work([replace(job, suspended=False)]) == []
    assert waiting_work([job, pod("w0", "n1")]) == []


def test_free_gpus_are_those_that_somebody_could_have_now() -> None:
    facts: list[Fact] = [
        node("n1"),
        node("n2", allocatable=7),
        node("n3", closed=True),
        node("n4", ready=False),
        node("m1", pool="b"),
        pod("w0", "n1", gpus=6),
        replace(pod("w1", "n1", gpus=2), phase="Succeeded"),
    ]
    assert pool_capacity(facts) == [
        PoolCapacity("a", nodes=4, gpus=32, used=6, free=9, closed=8, lost=9),
        PoolCapacity("b", nodes=1, gpus=8, used=0, free=8, closed=0, lost=0),
    ]
