"""Slurm's nodes and jobs as facts, in the words of several versions, and beside those of an API server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streams.inventory.cluster_inventory import Inventory
from streams.inventory.slurm import SlurmFacts
from streams.model import slurm
from streams.model.entity import SLURM_JOB, JobRef
from streams.model.facts import Fact, FactRecord, JobFact, NodeFact, PodFact
from streams.model.slurm import Record
from streams.model.slurm_marks import JobMark, NodeOwners
from streams.model.watch import FactsListed, KindListed, ObjectChange
from tests.streams.inventory.objects import node

NOW = datetime(2026, 3, 1, tzinfo=UTC)

NODE_2205: dict[str, Any] = {
    "name": "gpu-1", "state": "allocated", "state_flags": ["DRAIN"], "reason": "faultline inc-1: XID 79",
    "reason_set_by_user": "root", "reason_changed_at": 1772323200, "comment": "faultline[inc-1:k1]",
    "partitions": ["all", "train"], "gres": "gpu:h100:8(S:0-1)", "hostname": "gpu-1", "address": "10.0.0.1",
    "boot_time": 1772320000,
}  # fmt: skip
NODE_0040: dict[str, Any] = {
    **NODE_2205, "state": ["ALLOCATED", "DRAIN"], "reason_changed_at": {"set": True, "infinite": False, "number": 1772323200},
    "boot_time": {"set": True, "infinite": False, "number": 1772320000},
}  # fmt: skip
del NODE_0040["state_flags"]
JOB_2205: dict[str, Any] = {
    "job_id": 7, "name": "llm", "user_name": "ann", "job_state": "RUNNING", "state_reason": "None", "nodes": "gpu-[1-2]",
    "node_count": 2, "restart_cnt": 1, "requeue": True, "batch_flag": True, "priority": 100, "start_time": 1772323000,
    "tres_alloc_str": "cpu=64,gres/gpu=16,node=2", "het_job_id": 0, "excluded_nodes": "", "comment": "", "admin_comment": "",
}  # fmt: skip
JOB_0040: dict[str, Any] = {
    **JOB_2205, "job_state": ["RUNNING"], "node_count": {"set": True, "infinite": False, "number": 2},
    "priority": {"set": True, "infinite": False, "number": 100}, "het_job_id": {"set": True, "infinite": False, "number": 0},
    "start_time": {"set": True, "infinite": False, "number": 1772323000},
}  # fmt: skip


def facts_of(
    cluster: str, nodes: Sequence[Record], jobs: Sequence[Record], at: datetime, partitions: tuple[str, ...] = (), *,
    requeues: bool = True,
) -> tuple[Fact, ...]:  # fmt: skip
    return SlurmFacts(cluster, partitions, requeues=requeues)(nodes, jobs, at)


def test_what_says_the_same_again_is_the_same_fact_and_what_changed_is_not() -> None:
    facts = SlurmFacts("c1")
    first = facts([NODE_2205 | {"cpu_load": 1}], [JOB_2205], NOW)
    again = facts([NODE_2205 | {"cpu_load": 2}], [JOB_2205], NOW + timedelta(seconds=10))
    assert all(one is other for one, other in zip(first, again, strict=True))
    node_, *_ = facts([NODE_2205 | {"reason": "other"}], [JOB_2205 | {"restart_cnt": 2}], NOW)
    assert isinstance(node_, NodeFact)
    assert node_.owner_incident is None
    read: set[str] = set()

    class Reads(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            read.add(key)
            return super().get(key, default)

    slurm.node_of(Reads(NODE_2205))
    assert read == set(slurm.NODE_FIELDS)
    read.clear()
    slurm.job_of(Reads(JOB_2205 | {"user_name": ""}))
    assert read == set(slurm.JOB_FIELDS)


@pytest.mark.parametrize(("one", "other"), [(NODE_2205, NODE_0040)])
def test_a_node_means_the_same_in_every_version(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert slurm.node_of(one) == slurm.node_of(other)
    found = slurm.node_of(one)
    assert (found.drained, found.busy, found.ready, found.gpus) == (True, True, True, 8)


def test_a_job_means_the_same_in_every_version() -> None:
    assert slurm.job_of(JOB_2205) == slurm.job_of(JOB_0040)
    found = slurm.job_of(JOB_2205)
    assert (found.running, found.held, found.ended, found.gpus, found.uid) == (
        True,
        False,
        False,
        16,
        "slurm:7/ann",
    )


@pytest.mark.parametrize(
    "record", [{}, {"state": 7, "job_state": None, "partitions": None}, {"name": ["a"], "nodes": {}}]
)
def test_a_record_with_nothing_usable_in_it_is_read(record: dict[str, Any]) -> None:
    assert not slurm.node_of(record).drained
    assert not slurm.job_of(record).held


def test_nodes_and_jobs_become_the_facts_that_plans_are_made_of() -> None:
    found = facts_of("c1", [NODE_2205], [JOB_2205], NOW, partitions=("train",))
    (gpu,) = (fact for fact in found if isinstance(fact, NodeFact))
    (job,) = (fact for fact in found if isinstance(fact, JobFact))
    pods = [fact for fact in found if isinstance(fact, PodFact)]
    assert (gpu.uid, gpu.pool, gpu.gpus, gpu.unschedulable, gpu.owners) == (
        "slurm:gpu-1",
        "train",
        8,
        True,
        ("inc-1",),
    )
    assert (job.job, job.lever, job.suspended, job.owner) == (
        JobRef(SLURM_JOB, "", "7", "slurm:7/ann"),
        "requeue",
        False,
        "ann",
    )
    assert [(pod.name, pod.node, pod.gpus) for pod in pods] == [
        ("7.gpu-1", "gpu-1", 8),
        ("7.gpu-2", "gpu-2", 8),
    ]


@pytest.mark.parametrize(
    ("changes", "shows"),
    [
        ({"requeue": False}, "without --requeue"),
        ({"batch_flag": False}, "interactive"),
        ({"het_job_id": 7}, "heterogeneous"),
    ],
)
def test_a_job_that_slurm_cannot_requeue_says_why(changes: dict[str, Any], shows: str) -> None:
    (job,) = (f for f in facts_of("c1", [], [JOB_2205 | changes], NOW) if isinstance(f, JobFact))
    assert job.lever is None
    assert job.immovable is not None
    assert shows in job.immovable


def test_by_slurmrestd_alone_no_plan_promises_to_move_a_job() -> None:
    (job,) = (f for f in facts_of("c1", [], [JOB_2205], NOW, requeues=False) if isinstance(f, JobFact))
    assert job.lever is None
    assert "slurm.commands" in (job.immovable or "")


@pytest.mark.parametrize(
    "changes",
    [{"job_state": "PENDING", "nodes": "", "restart_cnt": 0}, {"node_count": 1, "tres_alloc_str": "cpu=1"}],
    ids=["never_ran", "one_node_without_a_gpu"],
)
def test_what_no_incident_is_about_is_not_told(changes: dict[str, Any]) -> None:
    assert facts_of("c1", [], [JOB_2205 | changes], NOW) == ()


def test_who_drained_a_node_is_told_unless_we_did() -> None:
    theirs = NODE_2205 | {"reason": "Kill task failed", "reason_set_by_user": "slurm", "comment": ""}
    (gpu,) = (f for f in facts_of("c1", [theirs], [], NOW) if isinstance(f, NodeFact))
    assert gpu.owner_incident is None
    assert gpu.worked_on is not None
    assert (gpu.worked_on.by, gpu.worked_on.mark) == ("slurm", "drained: Kill task failed")


def test_a_mark_that_somebody_changed_counts_as_none() -> None:
    changed = slurm.node_of(NODE_2205 | {"reason": "I look at it"})
    owners = NodeOwners.of(changed)
    assert owners is not None
    assert "changed manually" in (owners.taken_over(changed) or "")
    for broken in (
        "",
        "faultline[]",
        "faultline[inc-1]",
        "faultline[inc-1 stop=k at=x]",
        "faultline[[inc-1:k]",
    ):
        assert JobMark.of(broken) is None
    assert NodeOwners.of(slurm.node_of(NODE_2205 | {"comment": "faultline[inc-1]"})) is None


def told(*nodes: dict[str, Any], jobs: tuple[dict[str, Any], ...] = (), at: datetime = NOW) -> FactsListed:
    return FactsListed(at, "slurm", facts_of("c1", nodes, jobs, at))


def test_a_list_of_slurm_and_one_of_kubernetes_leave_each_other_alone() -> None:
    inventory = Inventory("c1")
    inventory.apply(ObjectChange(NOW, "ADDED", node("kube-1")))
    inventory.apply(KindListed(NOW, "v1/Node", frozenset({("", "kube-1")})))
    inventory.apply(KindListed(NOW, "v1/Pod", frozenset()))
    inventory.apply(told(NODE_2205, jobs=(JOB_2205,)))
    keys = {key for key, record in inventory.settle() if record}
    assert keys == {
        "c1/node/kube-1",
        "c1/node/gpu-1",
        "c1/job/SlurmJob//7",
        "c1/pod/SlurmJob/7.gpu-1",
        "c1/pod/SlurmJob/7.gpu-2",
    }
    assert inventory.apply(KindListed(NOW, "v1/Node", frozenset({("", "kube-1")}))) == []
    assert inventory.apply(KindListed(NOW, "v1/Pod", frozenset())) == []
    assert inventory.apply(told(NODE_2205, jobs=(JOB_2205,), at=NOW + timedelta(seconds=10))) == []
    gone = dict(inventory.apply(told(NODE_2205)))
    assert gone == {key: None for key in keys if "SlurmJob" in key}


def test_a_node_that_both_know_is_the_api_servers() -> None:
    inventory = Inventory("c1")
    inventory.apply(ObjectChange(NOW, "ADDED", node("gpu-1")))
    inventory.apply(told(NODE_2205))
    ((_, record),) = inventory.settle()
    assert record is not None
    assert isinstance(record.fact, NodeFact)
    assert not record.fact.uid.startswith("slurm:")


def test_what_was_published_of_slurm_stays_until_slurm_answers_after_a_restart() -> None:
    before = {fact.key: FactRecord(fact) for fact in facts_of("c1", [NODE_2205], [JOB_2205], NOW)}
    inventory = Inventory("c1")
    inventory.adopt(before)
    inventory.apply(KindListed(NOW, "v1/Node", frozenset()))
    inventory.apply(KindListed(NOW, "v1/Pod", frozenset()))
    assert inventory.settle() == []
    assert dict(inventory.apply(told())) == dict.fromkeys(before)
