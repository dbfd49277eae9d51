"""What a declaration promises the connector can do: no plan names a lever that nobody pulls."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, Object
from streams.inventory.jobs import job_fact
from streams.job_kinds.kind import QUEUE_NAME, Lever
from streams.job_kinds.known import KNOWN

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(kind: str, **labels: str) -> Object:
    declared = KNOWN[kind]
    return {
        "apiVersion": declared.api_versions[0],
        "kind": declared.kind or declared.name,
        "metadata": {"name": "llm", "namespace": "research", "uid": "u1", "labels": labels},
        "spec": {},
    }


async def test_every_lever_has_somebody_who_pulls_it() -> None:
    async with await Cluster.at("http://127.0.0.1:1") as cluster:
        assert TrainingJobs(cluster)._levers.keys() == set(Lever)


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_each_kind_has_a_lever_or_a_reason_for_its_owner(kind: str) -> None:
    fact = job_fact("c1", job(kind), NOW)
    assert (fact.lever is None) == bool(fact.immovable)


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", "JobSet", "LeaderWorkerSet"])
def test_a_job_that_kueue_admits_is_left_to_its_owner_with_what_to_do(kind: str) -> None:
    fact = job_fact("c1", job(kind, **{QUEUE_NAME: "gold"}), NOW)
    assert fact.lever is None
    assert fact.immovable is not None
    assert "queue gold" in fact.immovable
    assert "spec.active of its Workload" in fact.immovable
