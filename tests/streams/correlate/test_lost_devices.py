"""Containers that lost their GPUs when systemd was reloaded: one fault of what their nodes share, of no node and no program."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity, JobRef, PodRef
from streams.model.facts import Fact, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.kinds import WorkloadClass
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    _signal,
    all_ended,
    at,
    cluster,
    failed,
    node_fact,
    pods,
    sign,
    xid,
)

JOBS: dict[str, Sequence[str]] = {
    "asr": ["n0"],
    "tts": ["n1"],
    "llm": ["n2", "n3", "n4", "n5"],
    "ppo": ["n6", "n7"],
}
UNKNOWN, NONE = "unknown error", "No CUDA GPUs are available"
NODES = [f"n{i}" for i in range(10)]
HOLDS_ON = "container runtime device access"


def server(name: str, node: str, *, since: float = -3000, started: float = -2990) -> PodFact:
    """A replica of a Deployment, with a GPU."""
    return PodFact(
        CLUSTER,
        "serve",
        f"{name}-7d9f8b6c5d-x2v5k",
        f"uid-{name}",
        at(since),
        node=node,
        job=JobRef("ReplicaSet", "serve", f"{name}-7d9f8b6c5d"),
        phase="Running",
        ready=True,
        gpus=1,
        scheduled_at=at(since),
        started_at=at(started),
        workload=WorkloadClass.INFERENCE,
        workload_guessed=True,
    )


def facts() -> list[Fact]:
    return [*cluster(JOBS, spare=NODES), server("embedder", "n8"), server("chat", "n9")]


def lacks(name: str, seconds: float, reason: str = UNKNOWN, pod: int = 0, ip: str | None = None) -> Signal:
    more: dict[str, Attribute] = {"ip": ip} if ip is not None else {}
    return failed(name, pod, seconds, "cuda_error", kind="job.failed", rank=None, reason=reason, **more)


def probe(name: str, node: str, seconds: float) -> Signal:
    """The kubelet tells that a probe in a container cannot open its GPU."""
    place = Entity(CLUSTER, node=node, pod=PodRef("serve", f"{name}-7d9f8b6c5d-x2v5k", f"uid-{name}"))
    said: dict[str, Attribute] = {"subtype": "gpu_access", "reason": "Unhealthy"}
    return _signal("job.failed", place, seconds, said, severity=Severity.WARNING)


def reload(*nodes: str, seconds: float = 0) -> list[Signal]:
    return [
        sign("node.condition", n, seconds + i, "systemd_reload", severity=Severity.INFO)
        for i, n in enumerate(nodes)
    ]


def world_of(signals: Iterable[Signal], until: float = 2400, made: Iterable[Fact] | None = None) -> World:
    world = World(made if made is not None else facts())
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=30)
        world.see(signal)
    world.pass_to(until, step=30)
    return world


def standing(signals: Iterable[Signal], made: Iterable[Fact] | None = None) -> list[Incident]:
    found = world_of(signals, made=made).incidents()
    return [i for i in found if i.merged_into is None and not i.for_owner]


STORY = [
    *reload("n0", "n1", "n6", "n7", "n8"),
    probe("embedder", "n8", 40),
    lacks("asr", 360),
    lacks("ppo", 540, NONE, ip="10.0.0.7"),
    lacks("tts", 800),
]


def test_containers_that_lose_their_gpus_after_a_reload_are_one_fault_of_their_runtime() -> None:
    (incident,) = standing(STORY)
    assert (incident.family, str(incident.root)) == ("platform_fault", HOLDS_ON)
    assert (incident.fault_at, incident.root.node) == (at(0), None)
    assert {"n0", "n1", "n8"} <= set(incident.nodes)
    assert "systemd was reloaded on all of them" in incident.reason
    assert "start these pods anew" in incident.reason


def test_it_names_the_jobs_that_ended_for_it_and_the_servers_that_were_killed() -> None:
    (incident,) = standing(STORY)
    assert {"asr", "tts"} <= {job.name for job in incident.jobs}
    assert "llm" not in {job.name for job in incident.jobs}
    assert incident.other_workloads is not None
    assert [job.key for job in incident.other_workloads.first] == ["Deployment/serve/embedder"]


def test_it_is_told_with_the_second_node_where_systemd_was_reloaded_before() -> None:
    (incident,) = standing([*reload("n0", "n8"), probe("embedder", "n8", 40), lacks("asr", 360)])
    assert incident.opened_at < at(460)


def test_without_a_reload_in_the_log_it_takes_three_nodes() -> None:
    two = [probe("embedder", "n8", 40), lacks("asr", 360)]
    assert not standing(two)
    (incident,) = standing([*two, lacks("tts", 800)])
    assert str(incident.root) == HOLDS_ON
    assert "systemd was reloaded" not in incident.reason


def metrics(*nodes: str) -> list[Signal]:
    return [sign("node.gpus", node, -600, severity=Severity.INFO) for node in nodes]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "these GPUs or their driver is not known: no metrics or kernel logs arrive from them"),
        (metrics("n0", "n1", "n8"), "nothing is wrong with these GPUs or their driver by the metrics"),
        (reload("n0", "n1", "n8"), "nothing is wrong with these GPUs or their driver by the metrics"),
        ([*metrics("n0"), *reload("n8")], "logs of 2 of these nodes; of the others (n1) that is not known"),
    ],
)
def test_that_the_gpus_are_well_is_said_only_of_nodes_that_would_have_shown_a_fault(
    more: list[Signal], says: str
) -> None:
    (incident,) = standing([*more, probe("embedder", "n8", 40), lacks("asr", 360), lacks("tts", 800)])
    assert says in incident.reason
    assert ("check `nvidia-smi` and the kernel log" in incident.reason) is ("not known" in says)


def test_two_hundred_nodes_on_which_systemd_is_reloaded_at_once_are_one_incident() -> None:
    """Their containers fail over half an hour, each when it next opens a GPU."""
    nodes = [f"w{i}" for i in range(200)]
    jobs: dict[str, Sequence[str]] = {f"job-{i}": nodes[4 * i : 4 * i + 4] for i in range(25)}
    world = World([*cluster(jobs, spare=nodes), *(server(f"s{i}", nodes[i]) for i in range(100, 200))])
    world.see(*reload(*nodes, seconds=-200))
    for minute in range(1, 31):
        failing = [probe(f"s{i}", nodes[i], 60 * minute) for i in range(100, 200) if i % 30 + 1 == minute]
        failing += [lacks(f"job-{i}", 60 * minute + 1) for i in range(25) if i % 30 + 1 == minute]
        world.see(*failing)
        world.pass_to(60 * minute + 50, step=50)
    incident = world.only()
    assert (str(incident.root), len(incident.jobs)) == (HOLDS_ON, 25)
    assert len(world.published) == 1
    assert len(world.revisions) <= 2 * 30


def test_what_a_driver_relays_is_of_the_node_whose_address_it_names() -> None:
    workers = [replace(p, ip=f"10.0.0.{6 + i}") for i, p in enumerate(pods("ppo", JOBS["ppo"], ranks=False))]
    head = replace(workers[0], name="ppo-worker-9", uid="head", gpus=0, node="n9", ip="10.0.0.99")
    lines = [*reload("n0", "n6", "n7", "n8"), probe("embedder", "n8", 40), lacks("asr", 360)]
    lines += [lacks("ppo", 540, NONE, pod=9, ip="10.0.0.7")]
    (incident,) = standing(lines, made=[*facts(), *workers, head])
    assert "containers on 3 nodes (n0, n7, n8)" in incident.reason
    assert "ppo" in {job.name for job in incident.jobs}


def test_a_large_job_that_fails_so_is_its_victim_and_no_incident_of_its_own() -> None:
    ended = [failed("llm", i, 410, exitcode=1) for i in range(4)]
    lines = [*reload("n0", "n2", "n8"), lacks("llm", 400), *ended, probe("embedder", "n8", 500)]
    (incident,) = standing([*lines, lacks("asr", 560)])
    assert str(incident.root) == HOLDS_ON
    assert {"llm", "asr"} == {job.name for job in incident.jobs}


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_and_after_a_restart_it_is_the_same(seed: int) -> None:
    straight = [(i.id, i.reason, i.jobs) for i in standing(STORY)]
    signals = list(STORY)
    random.Random(seed).shuffle(signals)
    world = World(facts())
    for signal in signals:
        world.see(signal)
        world.restart()
    world.pass_to(2400, step=30)
    assert [(i.id, i.reason, i.jobs) for i in world.incidents() if i.merged_into is None] == straight


def test_it_is_over_when_no_container_has_said_so_for_an_hour() -> None:
    found = world_of(STORY, until=3000).only()
    assert found.state is IncidentState.OPEN
    assert world_of(STORY, until=800 + 3600 + 300).only().state is IncidentState.RESOLVED


def by_smi(node: str, seconds: float, pod: str | None = None) -> Signal:
    """What nvidia-smi says of NVML, in a container or on the node itself."""
    said = sign("gpu.driver", node, seconds, "nvml_init", reason="Unknown Error")
    printed: dict[str, Attribute] = {"relayed": True, "printed_by": pod} if pod is not None else {}
    return replace(said, attributes={**said.attributes, **printed})


def test_what_nvidia_smi_says_in_a_container_is_not_of_the_nodes_driver() -> None:
    """The same words of the node's own tools are of its driver, as ever."""
    there = {"asr": "n0", "tts": "n1", "ppo": "n6"}
    (incident,) = standing(
        [by_smi(node, 60.0 * i, f"train/{job}-worker-0") for i, (job, node) in enumerate(there.items())]
    )
    assert str(incident.root) == HOLDS_ON
    own = [by_smi(node, 60.0 * i) for i, node in enumerate(there.values())]
    assert {str(i.root) for i in standing(own)} == {"gpu software nvml_init"}


def again(name: str, *seconds: float, reason: str = UNKNOWN) -> list[Signal]:
    return [lacks(name, s, reason) for s in seconds]


def newly(name: str, nodes: Sequence[str], started: float | None = 330) -> list[PodFact]:
    return [
        replace(
            p,
            uid=f"new-{p.uid}",
            started_at=at(started) if started is not None else None,
            scheduled_at=at(300),
        )
        for p in pods(name, nodes, since=300)
    ]


NOBODYS_FAULT: dict[str, tuple[list[Signal], list[Fact]]] = {
    "one container": ([*reload(*NODES), *again("asr", 360, 700, 1000)], []),
    "one program on all of its nodes": (
        [*reload(*NODES), *(lacks("llm", 360 + i, pod=i) for i in range(4))],
        [],
    ),
    "programs that ask for other GPUs than they have": (
        [
            *reload(*NODES),
            lacks("asr", 100, NONE),
            lacks("tts", 200, NONE),
            lacks("ppo", 300, NONE),
            lacks("llm", 400, NONE),
        ],
        [],
    ),
    "reloads that harm nobody": (reload(*NODES), []),
    "programs that have just started": (
        [*reload(*NODES), lacks("asr", 360), lacks("tts", 380), lacks("ppo", 390)],
        [f for name in ("asr", "tts", "ppo") for f in newly(name, JOBS[name])],
    ),
    "programs of pods that came there a minute ago": (
        [*reload(*NODES), lacks("asr", 360), lacks("tts", 380), lacks("ppo", 390)],
        [f for name in ("asr", "tts", "ppo") for f in newly(name, JOBS[name], None)],
    ),
    "a server that starts over and over": (
        [*reload(*NODES), lacks("asr", 60), *(probe("chat", "n9", s) for s in (40, 100, 160))],
        [server("chat", "n9", started=155)],
    ),
    "a program on a node whose GPU was lost, another where the driver was replaced": (
        [
            *reload(*NODES),
            xid("n0", 79, 300),
            lacks("asr", 360),
            sign("gpu.driver", "n1", 350, "version_mismatch"),
            sign("gpu.driver", "n1", 450, "version_mismatch"),
            lacks("tts", 380),
            lacks("ppo", 390),
        ],
        [],
    ),
}


@pytest.mark.parametrize("name", NOBODYS_FAULT)
def test_what_tells_of_no_lost_devices(name: str) -> None:
    signals, more = NOBODYS_FAULT[name]
    found = standing(signals, made=[*facts(), *more])
    assert not [i for i in found if str(i.root) == HOLDS_ON]


def test_nodes_that_are_worked_on_do_not_count() -> None:
    busy = [node_fact(n, since=-10, maintenance=True) for n in NODES]
    assert not [i for i in standing(STORY, made=[*facts(), *busy]) if str(i.root) == HOLDS_ON]


def test_pods_that_were_made_anew_and_hold_their_gpus_say_nothing_more() -> None:
    """The first pods say so, those that follow them run: it stays the fault of the first."""
    ended = all_ended("asr", JOBS["asr"], 372)
    fresh = [
        replace(p, uid="asr-new", started_at=at(400), scheduled_at=at(380))
        for p in pods("asr", JOBS["asr"], since=380)
    ]
    world = world_of(STORY)
    for fact in (*ended, *fresh):
        world.tell(fact)
    world.pass_to(2600, step=30)
    assert str(world.only().root) == HOLDS_ON
