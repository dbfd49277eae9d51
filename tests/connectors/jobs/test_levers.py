"""What a declaration promises the connector can do: no plan names a lever that nobody pulls."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, Object
from streams.inventory.jobs import job_fact
from streams.job_kinds.kind import Lever
from streams.job_kinds.known import KNOWN
from streams.job_kinds.kueue import INTEGRATED, ORIGIN, QUEUE_NAME

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(kind: str, **labels: str) -> Object:
    declared = KNOWN[kind]
    return {
        "apiVersion": next(iter(declared.api_versions), ""),
        "kind": declared.kind or declared.name,
        "metadata": {"name": "llm", "namespace": "research", "uid": "u1", "labels": labels},
        "spec": {"shutdownAfterJobFinishes": True},  # without it no RayJob can be moved
    }


async def test_every_lever_has_somebody_who_pulls_it() -> None:
    async with await Cluster.at("http://127.0.0.1:1") as cluster:
        # Slurm's jobs have no API server: their lever is in connectors/slurm.
        assert TrainingJobs(cluster)._levers.keys() == set(Lever) - {Lever.REQUEUE}


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_each_kind_has_a_lever_or_a_reason_for_its_owner(kind: str) -> None:
    fact = job_fact("c1", job(kind), NOW)
    assert (fact.lever is None) == bool(fact.immovable)


@pytest.mark.parametrize("kind", sorted(KNOWN.keys() & INTEGRATED))
def test_a_job_that_kueue_admits_is_moved_by_its_queue_whatever_its_kind_has(kind: str) -> None:
    fact = job_fact("c1", job(kind, **{QUEUE_NAME: "gold"}), NOW)
    assert (fact.lever, fact.immovable) == (Lever.QUEUE, None)
    assert "queue gold" in str(fact.cost)


@pytest.mark.parametrize("kind", sorted(KNOWN.keys() - INTEGRATED))
def test_a_queue_means_nothing_for_a_kind_that_kueue_does_not_run(kind: str) -> None:
    fact = job_fact("c1", job(kind, **{QUEUE_NAME: "gold"}), NOW)
    assert fact.lever is None
    assert f"Kueue has no integration for the kind {kind}" in str(fact.immovable)


def test_the_copy_of_a_job_on_a_worker_of_multikueue_is_moved_where_its_original_is() -> None:
    fact = job_fact("c1", job("Job", **{QUEUE_NAME: "gold", ORIGIN: "hub"}), NOW)
    assert fact.lever is None
    assert "MultiKueue sent here from hub" in str(fact.immovable)
