"""A webhook that fails is at fault whoever asks for pods; its restart, a test webhook and what is denied are nobody's fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.correlate.cause_sources.services import ServiceCauses
from streams.model.entity import Entity, JobRef, PodRef
from streams.model.facts import Fact, JobFact, PodFact
from streams.model.incident import IncidentState
from streams.model.kinds import WorkloadClass
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, cluster, failed

HOOK, LATE = "pod-defaults", {"late": "context deadline exceeded"}
EXPIRED = {"certificate": "certificate has expired"}
ROOT = f"part/webhook/{HOOK}"


def refused(kind: str, name: str, *seconds: float, namespace: str = "ci", **said: Any) -> list[Signal]:
    """A controller that cannot create what an object is to have, at these seconds."""
    words = {"webhook": "h.example.io", "service": HOOK, "service_namespace": "platform", **said}
    attributes = {"subtype": "create_refused", "reason": "FailedCreate", **words}
    place = Entity(CLUSTER, job=JobRef(kind, namespace, name))
    return [_signal("job.failed", place, s, attributes, severity=Severity.WARNING) for s in seconds]


def again(minutes: int, since: float = 0, every: float = 60) -> list[float]:
    return [since + every * i for i in range(int(minutes * 60 / every) + 1)]


def busy() -> list[Fact]:
    """A full cluster: eight jobs, and a notebook and a server beside them."""
    made = cluster({f"llm-{i}": [f"n{2 * i}", f"n{2 * i + 1}"] for i in range(8)})
    return [
        *made,
        created("Notebook", "home", "nb-1", -500),
        created("ReplicaSet", "serving", "chat-1", -900),
    ]


def created(kind: str, namespace: str, name: str, seconds: float) -> PodFact:
    """A pod that is no training job's and holds a GPU."""
    return PodFact(
        CLUSTER,
        namespace,
        name,
        f"uid-{namespace}-{name}",
        at(seconds),
        job=JobRef(kind, namespace, name.rpartition("-")[0] or name),
        gpus=1,
        workload=WorkloadClass.BATCH,
        created_at=at(seconds),
    )


def everyday() -> list[Signal]:
    """What a busy cluster has at any time: pulls that fail, volumes that are late, builds that crash."""
    found = []
    for i in range(30):
        pod = PodRef("ci", f"lint-{i}")
        for kind, more in (("image_pull", {"registry": "docker.io"}), ("volume", {}), ("pod_failed", {})):
            found.append(_signal("job.failed", Entity(CLUSTER, pod=pod), 20.0 * i, {"subtype": kind, **more}))
    return found


def told(*stories: list[Signal], until: float = 1500, facts: list[Fact] | None = None) -> World:
    world = World([*busy(), *(facts or [])])
    world.play([*everyday(), *(s for story in stories for s in story)], until)
    return world


FAILS: dict[str, tuple[list[Signal], Severity]] = {
    "builds": ([*refused("Job", "a", *again(4)), *refused("Job", "b", *again(4, 20))], Severity.WARNING),
    "one build after the other, each once": (
        [s for i in range(6) for s in refused("Job", f"build-{i}", 50.0 * i)],
        Severity.WARNING,
    ),
    "a single owner for minutes": (refused("ReplicaSet", "chat-7d9f8b6c5d", *again(6)), Severity.WARNING),
    "jobs that are in no inventory": (
        [*refused("MPIJob", "sim", *again(4), namespace="hpc"), *refused("Job", "a", *again(4, 20))],
        Severity.ERROR,
    ),
    "an expired certificate": (
        [*refused("Job", "a", 0, **EXPIRED), *refused("TaskRun", "b", 70, **EXPIRED)],
        Severity.WARNING,
    ),
    "answers that come too late, again": (
        [*refused("Job", "a", *again(4), **LATE), *refused("Job", "b", *again(4, 20), **LATE)],
        Severity.WARNING,
    ),
    "a kind that nobody knows": (
        [*refused("Experiment", "a", *again(4)), *refused("Experiment", "b", *again(4, 30))],
        Severity.WARNING,
    ),
}


@pytest.mark.parametrize("name", FAILS)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_webhook_that_goes_on_failing_is_at_fault_whoever_asks(name: str, seed: int | None) -> None:
    signals, severity = FAILS[name]
    world = World(busy())
    world.play([*everyday(), *signals], 700, seed)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.severity) == ("platform_fault", ROOT, severity)
    assert (incident.jobs, incident.nodes, incident.state) == ((), (), IncidentState.OPEN)
    assert incident.fault_at == min(s.occurred_at for s in signals)


def test_a_job_with_gpus_that_is_refused_makes_it_grave_and_is_its_victim() -> None:
    builds = [*refused("Job", "a", *again(4)), *refused("Job", "b", *again(4, 20))]
    qwen = JobFact(CLUSTER, JobRef("JobSet", "train", "qwen", "uid-qwen"), at(-100))
    children = refused("Job", "qwen-workers-0", 150, 200, namespace="train")
    incident = told(builds, children, facts=[qwen], until=500).only()
    assert (incident.severity, [one.name for one in incident.jobs]) == (Severity.ERROR, ["qwen"])


def test_a_job_of_volcano_is_known_by_its_own_name() -> None:
    mine = JobFact(CLUSTER, JobRef("VolcanoJob", "train", "vc", "uid-vc"), at(-100))
    incident = told(refused("Job", "vc", *again(6), namespace="train"), facts=[mine], until=800).only()
    assert [one.key for one in incident.jobs] == ["VolcanoJob/train/vc"]


RESTART = [s for i in range(40) for s in refused("Job", f"build-{i}", 0.7 * i)]
QUIET: dict[str, list[Signal]] = {
    "a rolling restart": RESTART,
    "a rolling restart, and another one later": [
        *RESTART,
        *[s for i in range(40) for s in refused("Job", f"late-{i}", 600 + 0.7 * i)],
    ],
    "one refused build": refused("Job", "a", 0),
    "one refused build that is tried again": refused("Job", "a", 0, 10, 30, 70, 150),
    "a webhook that only its own namespace asks": [
        *refused("Job", "a", *again(9), service_namespace="ci"),
        *refused("Job", "b", *again(9, 20), service_namespace="ci"),
    ],
    "an answer that comes too late now and then": [
        *refused("Job", "a", 0, **LATE),
        *refused("Job", "b", 400, **LATE),
    ],
    "the API server itself": [
        *refused("Job", "a", *again(9), webhook="", service="", service_namespace=""),
        *refused("Job", "b", *again(9, 20), webhook="", service="", service_namespace=""),
    ],
    "two webhooks, a build each": [
        *refused("Job", "a", *again(3)),
        *refused("Job", "b", *again(3), service="labels", webhook="l.example.io"),
    ],
}


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize("seed", [None, 3])
def test_what_is_over_soon_or_nobody_shares_opens_nothing(name: str, seed: int | None) -> None:
    world = World(busy())
    world.play([*everyday(), *QUIET[name]], 2500, seed)
    assert world.revisions == []


def test_a_webhook_that_lets_others_pass_meanwhile_is_not_at_fault() -> None:
    signals = [*refused("Job", "a", *again(6, every=100)), *refused("Job", "b", *again(6, 20, every=100))]
    passed = [created("Job", "ci", f"other-{i}", 100.0 * i + 50) for i in range(4)]
    world = World([*busy(), *passed])
    world.play(signals, 1500)
    assert world.revisions == []
    # What it lets pass elsewhere says nothing: it may not be asked there.
    elsewhere = [replace(fact, namespace="home") for fact in passed]
    world = World([*busy(), *elsewhere])
    world.play(signals, 300)
    assert world.only().root.key == ROOT


def test_what_was_created_before_takes_the_reason_away_when_it_is_read_later() -> None:
    world = World(busy())
    world.see(*refused("Job", "a", 0, 60, 130), *refused("Job", "b", 20))
    assert world.only().state is IncidentState.OPEN
    world.tell(created("Job", "ci", "c-0", 100))
    assert world.only().state is IncidentState.RESOLVED
    assert world.only().reason.startswith("Withdrawn")


def test_the_fault_is_over_when_nothing_is_refused_any_more_and_all_of_it_is_forgotten() -> None:
    world = told([*refused("Job", "a", *again(4)), *refused("Job", "b", *again(4, 20))], until=1500)
    assert (world.only().state, len(world.revisions)) == (IncidentState.RESOLVED, 2)
    assert _kept(world) == 2
    world.pass_to(9000, step=30)
    assert not [pod for pod in world.engine._state.pods if pod.startswith("ci/")]
    assert _kept(world) == 0


def _kept(world: World) -> int:
    """Of how many owners that the webhook refuses anything is kept."""
    (services,) = (one for one in world.engine._causes.sources if isinstance(one, ServiceCauses))
    return services.others.count(f"webhook/{HOOK}")


def test_what_was_refused_to_an_unknown_object_is_its_jobs_once_that_is_known() -> None:
    world = World(busy())
    world.play(refused("Job", "qwen-workers-0", 0, 60, namespace="train"), 100)
    assert _kept(world) == 1
    world.tell(JobFact(CLUSTER, JobRef("JobSet", "train", "qwen", "uid-qwen"), at(-100)))
    assert _kept(world) == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_webhook_that_refuses_a_single_owner_for_hours_is_one_incident_of_two_revisions(
    restarted: bool,
) -> None:
    """Of what one controller says each minute for hours only the first and the last lines are kept."""
    world = World(busy())
    signals = refused("ReplicaSet", "chat-7d9f8b6c5d", *again(180))
    for half in (signals[:90], signals[90:]):
        world.play(half, 0)
        if restarted:
            world.restart()
    assert world.only().state is IncidentState.OPEN
    world.pass_to(12_000, step=20)
    assert (world.only().state, len(world.revisions)) == (IncidentState.RESOLVED, 2)


def test_a_webhook_that_nobody_mends_for_hours_is_one_incident_of_few_revisions_and_little_memory() -> None:
    world = World(busy())
    signals = [s for i in range(600) for s in refused("Job", f"build-{i}", 30.0 * i)]
    world.play(signals, 18_000)
    incident = world.only()
    assert (incident.state, incident.fault_at) == (IncidentState.OPEN, at(0))
    assert len(world.revisions) == 1
    kept = [pod for pod in world.engine._state.pods if pod.startswith("ci/Job:")]
    assert len(kept) < 200
    world.pass_to(20_000, step=30)
    assert world.only().state is IncidentState.RESOLVED


def test_two_thousand_owners_at_once_leave_room_for_the_pods_of_jobs() -> None:
    world = World(busy())
    for second in (0.0, 70.0, 140.0):
        for start in range(0, 3000, 500):
            owners = range(start, start + 500)
            world.see(*(s for i in owners for s in refused("Job", f"build-{i}", second + i / 500)))
    world.pass_to(200)
    assert world.only().root.key == ROOT
    assert len(world.only().proofs) == 1
    kept = [pod for pod in world.engine._state.pods if pod.startswith("ci/Job:")]
    assert len(kept) == 2500
    world.see(failed("unlisted", 0, 210, exitcode=1))
    assert "train/unlisted-worker-0" in world.engine._state.pods
