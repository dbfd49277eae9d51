"""A full, busy, healthy cluster: what holds GPUs without being a training job has a normal of its own, and opens nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import JobRef
from streams.model.facts import Fact, JobFact, PodFact
from streams.model.kinds import WorkloadClass
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    failed,
    job,
    nccl_error,
    node_fact,
    pods,
    progress,
    sign,
    timeouts,
    xid,
)

ILLEGAL = "an illegal memory access was encountered"
OTHERS = [kind for kind in WorkloadClass if kind is not WorkloadClass.TRAINING]


def other(
    name: str, kind: WorkloadClass, node: str | None, *, since: float = -3000, gpus: int = 1, attempt: int = 1
) -> PodFact:
    """A pod of something that is no training job; its name is like that of a job's worker."""
    return PodFact(
        CLUSTER,
        "train",
        f"{name}-worker-0",
        f"{name}-{attempt}",
        at(since),
        node=node,
        job=JobRef("ReplicaSet", "train", name),
        phase="Running" if node else "Pending",
        ready=node is not None,
        gpus=gpus,
        workload=kind,
        created_at=at(since),
        scheduled_at=at(since) if node else None,
    )


def trouble(name: str, seconds: float) -> list[Signal]:
    """All that goes wrong in a pod on a usual day."""
    return [
        failed(name, 0, seconds, "cuda_oom"),
        failed(name, 0, seconds + 1, "cuda_error", reason=ILLEGAL),
        failed(name, 0, seconds + 2, exitcode=1),
        *(failed(name, 0, seconds + 60 * i, "image_pull", reason="BackOff") for i in range(8)),
        *(failed(name, 0, seconds + 70 * i, "volume") for i in range(8)),
        *(failed(name, 0, seconds + 70 * i, "sandbox") for i in range(8)),
        *(failed(name, 0, seconds + 300 * i, "unschedulable", kind="job.stalled") for i in range(6)),
        failed(name, 0, seconds + 9, "evicted", resource="memory"),
    ]


def placed(node: str, *signals: Signal) -> list[Signal]:
    """The same as a kubelet's Events tell them, with their node."""
    return [replace(s, entity=replace(s.entity, node=node)) for s in signals]


@pytest.mark.parametrize("kind", OTHERS)
def test_the_trouble_of_what_is_no_training_opens_nothing(kind: WorkloadClass) -> None:
    world = World([*cluster({"llama": FOUR}, spare=["n9"]), other("nb", kind, "n9")])
    world.see(*placed("n9", *trouble("nb", 0)))
    world.see(*(xid("n9", code, 5) for code in (13, 31, 43, 45)))
    world.see(sign("node.memory", "n9", 6, "oom", process="python"))
    world.see(*timeouts("nb", range(4), 620))
    world.pass_to(2400, step=10)
    assert world.incidents() == []


@pytest.mark.parametrize("kind", [*OTHERS, None])
def test_a_pod_that_comes_to_be_known_after_its_trouble_is_judged_by_what_it_is(
    kind: WorkloadClass | None,
) -> None:
    known = replace(other("nb", kind or WorkloadClass.TRAINING, "n9"), gpus=32)
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(failed("nb", 0, 0, "cuda_oom"))
    world.pass_to(30)
    assert world.incidents() == [], "nobody knows what it belongs to"
    world.tell(replace(known, workload=kind))
    world.pass_to(160)
    assert [i.family for i in world.incidents()] == ([] if kind else ["application"])


def test_a_pod_that_no_inventory_knows_is_no_job() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*trouble("build", 0), *timeouts("build", range(4), 620))
    world.pass_to(2400, step=10)
    assert world.incidents() == []


@pytest.mark.parametrize("kind", OTHERS)
def test_hardware_that_fails_under_it_is_still_hardware_but_has_no_victim(kind: WorkloadClass) -> None:
    world = World([*cluster({"llama": FOUR}, spare=["n9"]), other("nb", kind, "n9")])
    world.see(xid("n9", 79, 0), *placed("n9", failed("nb", 0, 2, "cuda_error", reason=ILLEGAL)))
    world.pass_to(120)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("gpu_off_bus", "n9")
    assert (incident.jobs, incident.impact.gpus) == ((), 0)


def test_a_code_on_a_node_that_a_notebook_shares_is_not_laid_to_the_job() -> None:
    shared = World([*cluster({"llama": FOUR}), other("nb", WorkloadClass.NOTEBOOK, "n2")])
    alone = World(cluster({"llama": FOUR}))
    for world in (shared, alone):
        world.see(xid("n2", 31, 0))
        world.end("llama", FOUR, 8)
        world.pass_to(200)
    assert shared.incidents() == []
    assert [i.family for i in alone.incidents()] == ["application"]


def test_a_code_on_many_nodes_of_a_job_is_its_own_whoever_stands_beside_it() -> None:
    world = World([*cluster({"llama": FOUR}), other("nb", WorkloadClass.NOTEBOOK, "n2")])
    world.see(*(xid(node, 31, 0.5 * i) for i, node in enumerate(FOUR)))
    world.pass_to(60)
    assert (world.only().family, world.only().root.job) == ("application", job("llama"))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_notebook_that_is_known_late_takes_a_code_off_the_job(backwards: bool) -> None:
    beside = other("nb", WorkloadClass.NOTEBOOK, "n2")
    world = World(cluster({"llama": FOUR}))
    if backwards:
        world.tell(beside)
    world.see(xid("n2", 31, 0))
    world.pass_to(200)
    if not backwards:
        world.tell(beside)
        world.pass_to(210)
    assert [i for i in world.incidents() if not i.state.is_over] == []


UID = "0c1f2a3b-1111-2222-3333-0123456789ab"


def killed(uid: str = "") -> Signal:
    named = {"pod_uid": uid} if uid else {}
    return sign("node.memory", "n3", 0, "oom", process="python", **named)  # type: ignore[arg-type]


def test_a_process_that_the_kernel_killed_is_the_jobs_if_its_pod_is_named_or_the_job_feels_it() -> None:
    facts: list[Fact] = [
        replace(f, uid=UID) if isinstance(f, PodFact) and f.node == "n3" else f
        for f in cluster({"llama": FOUR})
    ]
    stories: list[tuple[Sequence[Signal], bool]] = [
        ([killed(UID)], True),
        ([killed(UID.replace("0c1f", "ffff"))], False),
        ([killed()], False),
        ([killed(), failed("llama", 2, 1, exitcode=-9)], True),
        ([killed(), failed("llama", 2, 1200, exitcode=-9)], False),
    ]
    for signals, opens in stories:
        world = World(facts)
        world.see(*signals)
        world.pass_to(1400, step=10)
        assert [i.family for i in world.incidents()] == (["application"] if opens else [])


def ended(phase: str, seconds: float) -> PodFact:
    """Llama's pod on n3 when it is over."""
    pod = replace(pods("llama", FOUR)[2], uid=UID, ready=False, phase=phase)
    return replace(pod, ended_at=at(seconds), observed_at=at(seconds + 1))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_process_that_was_killed_counts_only_if_something_of_the_job_really_failed(backwards: bool) -> None:
    facts: list[Fact] = [
        replace(f, uid=UID) if isinstance(f, PodFact) and f.node == "n3" else f
        for f in cluster({"llama": FOUR})
    ]
    stories: list[tuple[Signal, Signal | PodFact, bool]] = [
        (killed(), ended("Failed", 4), True),
        (killed(), ended("Succeeded", 4), False),
        (killed(), ended("Failed", 200), False),
        (killed(UID), ended("Failed", 4), True),
        (killed(UID), ended("Succeeded", 60), False),
        (killed(UID), progress("llama", 60, 2), False),
    ]
    for kill, after, opens in stories:
        world = World(facts)
        for one in (after, kill) if backwards else (kill, after):
            if isinstance(one, Signal):
                world.see(one)
            else:
                world.tell(one)
        world.pass_to(400, step=10)
        assert [i.family for i in world.incidents()] == (["application"] if opens else []), after


def test_a_build_that_was_killed_minutes_before_a_job_fails_is_not_why() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(killed(), *(nccl_error("llama", r, 130) for r in range(8)))
    world.see(*(failed("llama", p, 138 + 0.1 * p, exitcode=-6) for p in range(4)))
    world.pass_to(400, step=10)
    assert "killed" not in world.only().reason


def test_rows_of_pods_that_are_gone_are_forgotten_whatever_they_were() -> None:
    world = World(cluster({}, spare=["n9"]))
    pods = [
        other("nb", WorkloadClass.NOTEBOOK, "n9"),
        replace(other("bare", WorkloadClass.UNKNOWN, "n9"), job=None),
        other("waits", WorkloadClass.BATCH, None),
    ]
    for pod in pods:
        world.tell(pod)
    for pod in pods:
        world.gone(pod, 10)
    world.pass_to(3600, step=60)
    assert not [key for key in world.rows if key.startswith("pod/")]


def some_work(name: str, node: str, start: float, chance: random.Random) -> list[tuple[float, Signal | Fact]]:
    """A workload that comes up on a node and has a bad half hour; a build nearby is killed for memory."""
    signals = chance.sample(placed(node, *trouble(name, start + 20)), 12)
    signals.append(xid(node, chance.choice((13, 31, 43, 45)), start + 30))
    near = chance.choice([node, "n2"])
    signals.append(sign("node.memory", near, start + 40, "oom", process="java"))
    fact = other(name, chance.choice(OTHERS), node, since=start)
    return [(start, fact), *(((s.occurred_at - at(0)).total_seconds(), s) for s in signals)]


def test_a_full_busy_healthy_day_opens_nothing() -> None:
    """Twenty-four hours of a hundred other workloads around two training jobs that go on."""
    chance = random.Random(7)
    nodes = [f"m{i}" for i in range(8)]
    world = World([*cluster({"llama": FOUR, "gemma": ["n5", "n6"]}, spare=nodes)])
    told: list[tuple[float, Signal | Fact]] = []
    for hour in range(24):
        begin = hour * 3600.0
        for i in range(4):
            told += some_work(f"w{hour}-{i}", chance.choice(nodes), begin + chance.uniform(0, 2400), chance)
        for name in ("llama", "gemma"):
            told += [(begin + 300 * i, progress(name, begin + 300 * i, hour * 12 + i)) for i in range(12)]
        drained = node_fact(chance.choice(nodes), since=begin + 3000)
        told.append((begin + 3000, replace(drained, unschedulable=True)))
        told.append((begin + 3300, replace(drained, observed_at=at(begin + 3300))))
    for seconds, one in sorted(told, key=lambda t: t[0]):
        world.pass_to(seconds - 1, step=30)
        if isinstance(one, Signal):
            world.see(one)
        else:
            world.tell(one)
    world.pass_to(25 * 3600, step=30)
    assert world.incidents() == []


def removed(seconds: float, *numbers: int) -> list[PodFact]:
    """Pods of llama that somebody asked to go then."""
    return [replace(pods("llama", FOUR)[i], removed_at=at(seconds), observed_at=at(seconds)) for i in numbers]


STOPPED: dict[str, list[Signal]] = {
    "a program that ends by itself": [failed("llama", p, 2 + p, exitcode=1) for p in range(4)],
    "peers that lose a pod": [nccl_error("llama", r, 3) for r in range(8, 32)],
    "ranks that wait for a pod": timeouts("llama", range(8, 32), 605),
}


@pytest.mark.parametrize("name", STOPPED)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_job_whose_pods_are_taken_away_on_purpose_has_no_fault(name: str, backwards: bool) -> None:
    for fact_at, opens in ((0, False), (-600, True), (None, True)):
        told = removed(fact_at, 0) if fact_at is not None else []
        world = World(cluster({"llama": FOUR}))
        if not backwards:
            for pod in told:
                world.tell(pod)
        for signal in STOPPED[name]:
            world.see(signal)
        if backwards:
            for pod in told:
                world.tell(pod)
        world.pass_to(900, step=5)
        standing = [i for i in world.incidents() if not i.reason.startswith("Withdrawn")]
        assert bool(standing) is opens, fact_at


@pytest.mark.parametrize("name", STOPPED)
@pytest.mark.parametrize("how", ["suspended", "deleted", "finished"])
def test_a_job_that_is_stopped_on_purpose_has_no_fault(name: str, how: str) -> None:
    fact = next(f for f in cluster({"llama": FOUR}) if isinstance(f, JobFact))
    world = World(cluster({"llama": FOUR}))
    if how == "suspended":
        world.tell(replace(fact, suspended=True, observed_at=at(0)))
    elif how == "deleted":
        world.gone(fact, 0)
    world.see(*STOPPED[name])
    world.pass_to(900, step=5)
    if how == "suspended":
        world.restart()
        world.tell(replace(fact, observed_at=at(880)))
        world.pass_to(910)
    assert bool(world.incidents()) is (how == "finished")


def test_pods_that_are_taken_away_for_a_hang_do_not_excuse_it() -> None:
    """A suspend or a drain for the very hang, before clocks' skew has passed since the ranks began to wait."""
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [*range(8), *range(16, 32)], 2, waited=2))
    world.pass_to(4)
    fact = next(f for f in cluster({"llama": FOUR}) if isinstance(f, JobFact))
    world.tell(replace(fact, suspended=True, observed_at=at(4.9)))
    for pod in removed(4, 0, 1, 2, 3):
        world.tell(replace(pod, observed_at=at(5)))
    world.pass_to(160)
    assert world.only().family == "silent_node"


def test_pods_that_are_replaced_after_a_crash_do_not_excuse_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 2, 0, exitcode=1))
    for pod in removed(8, 0, 1, 2, 3):
        world.tell(pod)
    world.see(failed("llama", 1, 10, exitcode=1))
    world.pass_to(160)
    assert world.only().family == "application"


def test_memory_that_runs_out_while_a_pod_is_taken_away_is_still_told_of() -> None:
    world = World([*cluster({"llama": FOUR}), *removed(0, 0)])
    world.see(failed("llama", 2, 5, "cuda_oom"))
    world.pass_to(160)
    assert world.only().family == "application"
