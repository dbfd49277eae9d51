"""What is no training job and a shared fault keeps from starting is named beside its incident, and opens none."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from streams.correlate.cause_sources.services import ServiceCauses
from streams.correlate.job_rules.other_workloads import OtherWorkloads
from streams.correlate.publish.other_workloads import MOST
from streams.model.entity import Entity, JobRef, PodRef
from streams.model.facts import JobFact, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.test_refusals import again, busy, everyday, refused, told
from tests.streams.correlate.world import CLUSTER, World, _signal, at, job, sign

REGISTRY = "registry.east.example"


def pulls(pod: PodRef, seconds: float, registry: str = REGISTRY, times: int = 6) -> list[Signal]:
    said: dict[str, Any] = {"subtype": "image_pull", "reason": "Failed", "registry": registry}
    return [_signal("job.failed", Entity(CLUSTER, pod=pod), seconds + 70.0 * i, said) for i in range(times)]


def jobs_refused_by_registry() -> list[Signal]:
    return [s for i in (0, 1) for s in pulls(PodRef("train", f"llm-{i}-worker-1"), 40.0 * i)]


BUILD, NOTEBOOK = PodRef("ci", "build-7-x2v5k"), PodRef("home", "nb-1")


@pytest.mark.parametrize("seed", [None, 4, 5])
def test_what_else_a_registry_keeps_from_starting_is_named_beside_its_incident(seed: int | None) -> None:
    world = World(busy())
    others = [*pulls(BUILD, 10), *pulls(NOTEBOOK, 30), *pulls(PodRef("ci", "other-1"), 20, "docker.io")]
    world.play([*everyday(), *jobs_refused_by_registry(), *others], 600, seed)
    incident = world.only()
    assert incident.root.key == f"part/registry/{REGISTRY}"
    assert [one.name for one in incident.jobs] == ["llm-0", "llm-1"]
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == ("Notebook home/nb", "Pod ci/build-7-x2v5k")


def expired(pod: PodRef, node: str, seconds: float, registry: str = REGISTRY) -> list[Signal]:
    said: dict[str, Any] = {
        "subtype": "image_pull",
        "registry": registry,
        "certificate": "certificate has expired",
    }
    return [
        _signal("job.failed", Entity(CLUSTER, node=node, pod=pod), seconds + 40.0 * i, said) for i in range(3)
    ]


@pytest.mark.parametrize("seed", [None, 4, 5])
def test_an_expired_certificate_of_a_registry_is_known_by_one_job_and_a_build_on_another_node(
    seed: int | None,
) -> None:
    """No clock of a node is why, so it is the registry, and not the image of that one job."""
    world = World(busy())
    job_s = expired(PodRef("train", "llm-0-worker-1"), "n1", 0)
    world.play([*everyday(), *job_s, *expired(BUILD, "n7", 20)], 400, seed)
    incident = world.only()
    assert incident.root.key == f"part/registry/{REGISTRY}"
    assert [one.name for one in incident.jobs] == ["llm-0"]
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == ("Pod ci/build-7-x2v5k",)


BUILDS_ALONE: dict[str, list[Signal]] = {
    "two builds": [*expired(BUILD, "n7", 0), *expired(PodRef("ci", "build-8"), "n8", 20)],
    "another registry": [
        *expired(PodRef("train", "llm-0-worker-1"), "n1", 0), *expired(BUILD, "n7", 20, "registry.west.example")
    ],
    "the same node": [*expired(PodRef("train", "llm-0-worker-1"), "n1", 0), *expired(BUILD, "n1", 20)],
    "hours before": [*expired(BUILD, "n7", -9000), *expired(PodRef("train", "llm-0-worker-1"), "n1", 0)],
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDS_ALONE)
def test_no_registry_is_at_fault_by_what_builds_say_alone(name: str) -> None:
    world = World(busy())
    world.play([*everyday(), *BUILDS_ALONE[name]], 200)
    assert [one for one in world.incidents() if one.root.part is not None] == []


def _decided(incident: Incident) -> Incident:
    # Signals are numbered as they are made, so their ids differ between two stories.
    return replace(incident, proofs=(), other_workloads=None)


def test_other_workloads_open_nothing_at_a_registry_and_change_nothing_but_what_is_shown() -> None:
    many = [s for i in range(40) for s in pulls(PodRef("ci", f"build-{i}"), 5.0 * i)]
    assert told(many).revisions == []
    plain, with_others = (
        told(jobs_refused_by_registry(), until=600),
        told(jobs_refused_by_registry(), many, until=600),
    )
    shown = with_others.only()
    assert len(with_others.revisions) == len(plain.revisions)
    assert _decided(shown) == _decided(plain.only())
    assert shown.other_workloads is not None
    assert (shown.other_workloads.count, len(shown.other_workloads.first)) == (40, MOST)
    assert list(shown.other_workloads.names) == sorted(shown.other_workloads.names)


def test_more_of_them_make_no_revision_and_are_shown_by_the_next_that_there_is() -> None:
    world = told(jobs_refused_by_registry(), until=500)
    before = len(world.revisions)
    assert world.only().other_workloads is None
    world.see(*(s for i in range(40) for s in pulls(PodRef("ci", f"build-{i}"), 500, times=1)))
    world.pass_to(700, step=10)
    assert len(world.revisions) == before
    world.pass_to(2000, step=10)
    assert world.only().state is IncidentState.RESOLVED
    others = world.only().other_workloads
    assert others is not None
    assert others.count == 40


def test_a_pod_that_turns_out_to_be_a_training_jobs_is_its_jobs() -> None:
    world = World(busy())
    world.play([*jobs_refused_by_registry(), *pulls(PodRef("train", "new-worker-0"), 30)], 200)
    known = next(fact for fact in busy() if isinstance(fact, PodFact) and fact.name == "llm-0-worker-0")
    world.tell(replace(known, name="new-worker-0", uid="u", job=job("new"), node=None, observed_at=at(210)))
    world.pass_to(700, step=10)
    assert [one.name for one in world.only().jobs] == ["llm-0", "llm-1", "new"]
    assert world.only().other_workloads is None


def test_a_deployment_goes_by_its_name_whatever_its_replica_sets_are_called() -> None:
    signals = [
        *refused("ReplicaSet", "chat-7d9f8b6c5d", *again(4), namespace="serving"),
        *refused("ReplicaSet", "chat-6c8b7d5f9c", *again(4, 20), namespace="serving"),
        *refused("StatefulSet", "db", *again(4, 10), namespace="serving"),
    ]
    others = told(signals, until=500).only().other_workloads
    assert others is not None
    assert others.names == ("Deployment serving/chat", "StatefulSet serving/db")


def test_what_pods_name_is_kept_once_and_forgotten_with_them() -> None:
    world = World(busy())
    index = OtherWorkloads(world.engine._state)
    names = [f"ci/build-{i}" for i in range(50)]
    world.see(*(s for name in names for s in pulls(PodRef(*name.split("/")), 0, times=1)))
    for name in random.Random(1).sample(names, 50):
        told_by = [s for group in world.engine._state.pods[name].seen.values() for s in group]
        assert index.put(name, told_by) == {f"registry/{REGISTRY}"}
        assert index.put(name, told_by) == set()
    assert index.count(f"registry/{REGISTRY}") == 50
    for name in names:
        index.put(name, [])
    assert index.count(f"registry/{REGISTRY}") == 0


SERVER = "10.3.0.9"


def unmounted(name: str, server: str, seconds: float = 60) -> Signal:
    said: dict[str, Any] = {"subtype": "volume", "reason": "FailedMount", "server": server}
    return _signal("job.failed", Entity(CLUSTER, pod=PodRef("home", name)), seconds, said)


def test_what_cannot_mount_a_storage_that_is_gone_is_named_where_it_names_its_server() -> None:
    nodes = [f"n{i}" for i in range(8)]
    gone = [sign("node.storage", node, 0.5 * i, "nfs", server=SERVER) for i, node in enumerate(nodes)]
    incident = told(gone, [unmounted("nb-1", SERVER), unmounted("own-1", "10.3.0.77")], until=200).only()
    assert incident.root.storage == SERVER
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == ("Notebook home/nb",)


def test_what_cannot_be_given_its_gpus_for_a_rollout_is_named_by_it() -> None:
    found = []
    for number in range(4):
        place = Entity(CLUSTER, node=f"n{number}", pod=PodRef("serving", f"gen-{number}"))
        said: dict[str, Any] = {"subtype": "version_mismatch", "reason": "Failed"}
        found += [_signal("job.failed", place, 60.0 * number + 140 * i, said) for i in range(4)]
    (incident,) = told(found, until=2400).incidents()
    assert incident.root.part is not None
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == tuple(f"Pod serving/gen-{number}" for number in range(4))


def test_what_a_webhook_refuses_is_named_but_for_the_jobs_that_are_its_victims() -> None:
    builds = [*refused("Job", "a", *again(4)), *refused("Job", "b", *again(4, 20))]
    qwen = JobFact(CLUSTER, JobRef("JobSet", "train", "qwen", "uid-qwen"), at(-100))
    children = refused("Job", "qwen-workers-0", 150, 200, namespace="train")
    incident = told(builds, children, facts=[qwen], until=500).only()
    assert [one.name for one in incident.jobs] == ["qwen"]
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == ("Job ci/a", "Job ci/b")


def test_of_what_a_webhook_refuses_for_hours_the_first_names_and_a_number_are_told_at_the_end() -> None:
    world = World(busy())
    world.play([s for i in range(200) for s in refused("Job", f"build-{i}", 30.0 * i)], 9_000)
    assert (world.only().state, len(world.revisions)) == (IncidentState.RESOLVED, 2)
    others = world.only().other_workloads
    assert others is not None
    assert (len(others.first), others.count >= 60) == (MOST, True)


def test_a_pod_is_its_jobs_alone_once_that_is_known() -> None:
    world = World(busy())
    pulled = PodRef("train", "new-worker-0")
    world.see(*pulls(pulled, 110, times=1))
    known = next(fact for fact in busy() if isinstance(fact, PodFact) and fact.name == "llm-0-worker-0")
    (services,) = (one for one in world.engine._causes.sources if isinstance(one, ServiceCauses))
    assert services.others.knows(pulled.key)
    world.tell(replace(known, name=pulled.name, uid="u", job=job("new"), node=None, observed_at=at(210)))
    assert not services.others.knows(pulled.key)
