"""Services that several jobs share: one incident of the service, and what only looks like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streams.correlate.job_rules.services import mount_of, registry_of, thinned
from streams.correlate.sightings import sighting
from streams.model.entity import Entity, JobRef
from streams.model.facts import Fact, JobFact, PodFact
from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    all_ended,
    at,
    cluster,
    failed,
    job,
    nccl_error,
    node_fact,
    pods,
    progress,
    sign,
    xid,
)

LLAMA, GEMMA = ["n1", "n2"], ["n3", "n4"]
BOTH = {"llama", "gemma"}
REGISTRY = "registry.east.example"
HOOK = "pod-defaults"


def pulls(name: str, seconds: float, registry: str | None = REGISTRY, times: int = 6) -> list[Signal]:
    """A kubelet that tries again for six minutes; with no registry it only says that the image is not there."""
    more: dict[str, Any] = {"registry": registry} if registry else {}
    return [failed(name, 1, seconds + 70 * i, "image_pull", reason="Failed", **more) for i in range(times)]


def refused(
    name: str, seconds: float, hook: str = HOOK, *, child: bool = True, times: int = 6
) -> list[Signal]:
    """A Job that a JobSet made cannot create its pods."""
    ref = JobRef("Job", "train", f"{name}-workers-0") if child else JobRef("JobSet", "train", name)
    found = []
    for i in range(times):
        one = failed(name, 0, seconds + 70 * i, "create_refused", reason="FailedCreate", service=hook)
        found.append(replace(one, entity=Entity(CLUSTER, job=ref)))
    return found


def unresolved(
    name: str, seconds: float, reason: str = "Temporary failure in name resolution"
) -> list[Signal]:
    return [
        failed(name, 1, seconds, "name_resolution", reason=reason),
        failed(name, 1, seconds + 2, exitcode=1, local_rank=0),
        failed(name, 1, seconds + 3, exitcode=-6, local_rank=1),
    ]


def full(name: str, seconds: float, path: str = "/fs/shared/{}/step_9/a.pt") -> list[Signal]:
    where: dict[str, Any] = {"path": path.format(name)} if path else {}
    return [failed(name, 0, seconds, "no_space", rank=0, **where), failed(name, 0, seconds + 3, exitcode=1)]


def of(name: str) -> JobFact:
    return JobFact(CLUSTER, JobRef("JobSet", "train", name, f"uid-{name}"), at(-100))


def facts() -> list[Fact]:
    made = cluster({"llama": LLAMA, "gemma": GEMMA}, spare=["n5"])
    return [*made, of("qwen"), of("qwen-2")]


ONE: dict[str, tuple[list[Signal], str, str]] = {
    "a registry": ([*pulls("llama", 0), *pulls("gemma", 200)], "platform_fault", f"part/registry/{REGISTRY}"),
    "a webhook": ([*refused("qwen", 0), *refused("qwen-2", 200)], "platform_fault", f"part/webhook/{HOOK}"),
    "the resolver": ([*unresolved("llama", 0), *unresolved("gemma", 100)], "platform_fault", "cluster"),
    "a storage without space": (
        [*full("llama", 0), *full("gemma", 60)],
        "storage_fault",
        "storage//fs/shared",
    ),
    "a storage of which the next try names no file": (
        [*full("llama", 0), *full("gemma", 60), *full("gemma", 500, path="")],
        "storage_fault",
        "storage//fs/shared",
    ),
}
VICTIMS = {"a webhook": {"qwen", "qwen-2"}}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_what_jobs_share_is_one_incident_and_they_are_its_victims(
    name: str, backwards: bool, restart: bool
) -> None:
    signals, family, root = ONE[name]
    signals = sorted(signals, key=lambda s: s.occurred_at)
    world = World(facts())
    for i, signal in enumerate(reversed(signals) if backwards else signals):
        world.see(signal)
        if restart and i == len(signals) // 2:
            world.restart()
    world.pass_to(900, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key) == (family, root)
    assert {j.name for j in incident.jobs} == VICTIMS.get(name, BOTH)


OWN: dict[str, list[Signal]] = {
    "one job that a registry refuses": pulls("llama", 0),
    "two jobs that two registries refuse": [*pulls("llama", 0), *pulls("gemma", 60, "other.example")],
    "two jobs whose images are not there": [
        *pulls("llama", 0, registry=None),
        *pulls("gemma", 60, registry=None),
    ],
    "two jobs hours apart": [*unresolved("llama", 0), *unresolved("gemma", 2400)],
    "names that are not there": [
        *unresolved("llama", 0, "Name or service not known"),
        *unresolved("gemma", 60, "Name or service not known"),
    ],
    "storages mounted side by side": [
        *full("llama", 0, "/mnt/{}/step_9/a.pt"),
        *full("gemma", 60, "/mnt/{}/step_9/a.pt"),
    ],
    "the nodes' own directories": [*full("llama", 0, "/tmp/{}/a.pt"), *full("gemma", 60, "/tmp/{}/a.pt")],
}


@pytest.mark.parametrize("name", OWN)
def test_what_jobs_do_not_share_stays_theirs(name: str) -> None:
    world = World(facts())
    for signal in sorted(OWN[name], key=lambda s: s.occurred_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=20)
        world.see(signal)
    world.pass_to(3600, step=20)
    assert {i.root.kind for i in world.incidents()} <= {"job"}
    assert all(len(i.jobs) == 1 for i in world.incidents())


def test_jobs_that_complain_and_go_on_have_nobody_called() -> None:
    world = World(facts())
    world.see(unresolved("llama", 0)[0], unresolved("gemma", 30)[0])
    world.see(*pulls("llama", 60, times=2), *pulls("gemma", 60, times=2))
    world.pass_to(3600, step=20)
    assert world.incidents() == []


def test_a_job_that_was_told_alone_becomes_a_victim_of_what_others_suffer_too() -> None:
    world = World(facts())
    for signal in pulls("llama", 0):
        world.see(signal)
    world.pass_to(400, step=5)
    alone = world.only()
    assert alone.root.key == f"job/{job('llama').key}"
    for signal in pulls("gemma", 420):
        world.see(signal)
    world.pass_to(800, step=5)
    assert world.published[alone.id].state is IncidentState.MERGED
    assert {j.name for j in world.only().jobs} == BOTH


def test_a_webhook_that_cannot_be_called_is_the_root_also_for_one_job() -> None:
    world = World(facts())
    for signal in refused("qwen-2", 0):
        world.see(signal)
    world.pass_to(500, step=5)
    assert world.only().root.key == "part/webhook/pod-defaults"
    assert {j.name for j in world.only().jobs} == {"qwen-2"}


@pytest.mark.parametrize("child", [False, True])
def test_what_is_told_of_an_object_counts_for_its_job_also_when_that_is_known_later(child: bool) -> None:
    world = World(cluster({"llama": LLAMA}))
    for signal in refused("qwen", 0, child=child):
        world.see(signal)
    world.tell(of("qwen"))
    world.pass_to(500, step=5)
    assert {j.name for j in world.only().jobs} == {"qwen"}


def test_hardware_under_one_of_the_jobs_stays_its_own_incident() -> None:
    world = World(facts())
    world.see(xid("n1", 79, 0), *unresolved("llama", 5), *unresolved("gemma", 20))
    world.pass_to(900, step=5)
    assert {i.family for i in world.incidents()} == {"gpu_off_bus", "platform_fault"}


def test_errors_of_the_store_follow_from_a_resolver_that_does_not_answer() -> None:
    world = World(facts())
    world.see(unresolved("llama", 0)[0], nccl_error("llama", 8, 1), *unresolved("gemma", 30))
    world.pass_to(900, step=5)
    assert {j.name for j in world.only().jobs} == BOTH


def test_a_thousand_ranks_that_say_the_same_are_one_complaint_a_minute() -> None:
    lines = [sighting(failed("llama", 0, i / 10, "no_space", rank=i)) for i in range(1000)]
    kept = thinned([s for s in lines if s is not None])
    assert [s.at for s in kept] == [at(0), at(60), lines[-1].at if lines[-1] else None]


def test_the_fault_is_over_when_no_job_complains_any_more() -> None:
    world = World(facts())
    world.see(*full("llama", 0), *full("gemma", 60))
    world.pass_to(300, step=5)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(1300, step=20)
    assert world.only().state is IncidentState.RESOLVED
    assert world.only().fault_at - at(0) == timedelta()


MOUNTS: Sequence[tuple[str, str | None]] = [
    ("/fs/llm/a.pt", "/fs"),
    ("/mnt/weka/llm/a.pt", "/mnt/weka"),
    ("/mnt/a.pt", None),
    ("/tmp/a.pt", None),
    ("/mnt/local/x/a.pt", None),
    ("a.pt", None),
    ("", None),
]


@pytest.mark.parametrize(("path", "mount"), MOUNTS)
def test_a_path_tells_where_its_storage_is_mounted(path: str, mount: str | None) -> None:
    assert mount_of(path) == mount


EVICTED: dict[str, Any] = {"resource": "ephemeral-storage", "threshold": "90Gi", "left": "40Gi"}


def evicted(
    seconds: float, used: str = "12Mi", name: str = "llama", pod: int = 1, node: str = "n2"
) -> Signal:
    one = failed(name, pod, seconds, "evicted", reason="Evicted", used=used, **EVICTED)
    return replace(one, entity=replace(one.entity, node=node))


def test_a_node_that_evicts_for_what_it_lacks_is_the_root_however_often() -> None:
    world = World(facts())
    for seconds in (0, 900, 1800):
        world.see(evicted(seconds), failed("llama", 0, seconds + 8, exitcode=-6))
        world.pass_to(seconds + 300, step=10)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("platform_fault", "node/n2")
    assert [j.name for j in incident.jobs] == ["llama"]


def test_a_pod_that_used_up_what_is_missing_says_nothing_of_its_node() -> None:
    world = World(facts())
    world.see(evicted(0, used="210Gi"))
    world.pass_to(300, step=5)
    assert world.only().root.kind == "job"


def test_evictions_of_pods_that_are_no_training_job_are_silent() -> None:
    world = World(facts())
    world.see(*(evicted(300 * i, name="batch", pod=i) for i in range(5)))
    world.pass_to(3000, step=20)
    assert world.incidents() == []


def expired(
    name: str, pods_: Sequence[int] = (0, 1), registry: str = REGISTRY, times: int = 4
) -> list[Signal]:
    """Kubelets that are shown a certificate that has expired, and try again after 10, 20 and 40 s."""
    said: dict[str, Any] = {"registry": registry, "certificate": "certificate has expired"}
    return [
        failed(name, pod, 3 * pod + 10.0 * (2**i - 1), "image_pull", reason="Failed", **said)
        for pod in pods_
        for i in range(times)
    ]


def waiting(*signals: Signal, until: float) -> World:
    """Two jobs whose pods cannot be started."""
    world = World(map(node_fact, [*LLAMA, *GEMMA]))
    for pod in (*started("llama"), *started("gemma")):
        world.tell(replace(pod, phase="Pending", ready=False))
    world.see(*signals)
    world.pass_to(until, step=5)
    return world


def test_a_certificate_that_has_expired_by_two_nodes_is_known_within_minutes_and_by_one_job() -> None:
    incident = waiting(*expired("llama"), until=100).only()
    assert incident.root.key == f"part/registry/{REGISTRY}"
    assert [one.name for one in incident.jobs] == ["llama"]
    assert "certificate" in incident.reason


SOON: dict[str, list[Signal]] = {
    "one node, whose clock may be wrong": expired("llama", [0]),
    "one node whose clock may be wrong, and one that is not answered": [
        *expired("llama", [0]),
        *pulls("llama", 5, times=2),
    ],
    "a job that was deleted, for its image was misspelled": expired("llama", times=3),
    "a registry that does not answer": [*pulls("llama", 0, times=2), *pulls("gemma", 5, times=2)],
}


@pytest.mark.parametrize("name", SOON)
def test_what_may_be_over_soon_must_last(name: str) -> None:
    assert waiting(*SOON[name], until=200).incidents() == []


def test_the_next_job_that_needs_the_registry_is_a_victim_at_once() -> None:
    later = [
        failed(
            "gemma",
            0,
            110,
            "image_pull",
            registry=REGISTRY,
            certificate="certificate has expired",
            reason="x",
        )
    ]
    assert {one.name for one in waiting(*expired("llama"), *later, until=130).only().jobs} == BOTH


def test_what_is_refused_for_an_expired_certificate_need_not_last_once_the_webhook_is_known() -> None:
    world = World(facts())
    said = {"certificate": "certificate has expired"}
    told = [*refused("qwen", 0, times=1), *refused("qwen-2", 20, times=1)]
    world.see(*(replace(s, attributes={**s.attributes, **said}) for s in told))
    world.pass_to(60, step=5)
    assert world.only().root.key == f"part/webhook/{HOOK}"
    assert {one.name for one in world.only().jobs} == {"qwen", "qwen-2"}


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("registry.east.example", "registry.east.example"),
        ("Registry.East.Example.", "registry.east.example"),
        ("registry.east.example:443", "registry.east.example"),
        ("https://registry.east.example/v2/llm", "registry.east.example"),
        ("registry.east.example:5000", "registry.east.example:5000"),
        ("10.4.0.9:80", "10.4.0.9"),
    ],
)
def test_a_registry_is_one_however_it_is_written(named: str, meant: str) -> None:
    assert registry_of(named) == meant


def test_jobs_that_write_a_registry_with_its_port_and_without_share_it() -> None:
    world = World(facts())
    world.see(*pulls("llama", 0, f"{REGISTRY}:443"), *pulls("gemma", 200))
    world.pass_to(900, step=5)
    assert {one.name for one in world.only().jobs} == BOTH


def retries(name: str, seconds: float, asked: str = "store.data.svc", times: int = 4) -> list[Signal]:
    """A program that tries again, for the resolver did not answer it."""
    return [failed(name, 0, seconds + 30 * i, "no_resolver", peer=asked) for i in range(times)]


def dies(name: str, seconds: float) -> list[PodFact]:
    """A job whose pods end badly, and say nothing of it."""
    return all_ended(name, {"llama": LLAMA, "gemma": GEMMA}[name], seconds)


def take(world: World, one: Signal | PodFact) -> None:
    if isinstance(one, Signal):
        world.see(one)
    else:
        world.tell(one)


def crash(node: str, seconds: float) -> Signal:
    return sign("unknown", node, seconds, "resolver_crash", service="coredns")


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_jobs_that_die_while_they_try_again_to_resolve_a_name_are_victims_of_the_resolver_by_its_name(
    backwards: bool, restart: bool
) -> None:
    told: list[Signal | PodFact] = [crash("n5", -20), *retries("llama", 0), *retries("gemma", 60)]
    told += [*dies("llama", 100), *dies("gemma", 170)]
    world = World(facts())
    for i, one in enumerate(reversed(told) if backwards else told):
        take(world, one)
        if restart and i == len(told) // 2:
            world.restart()
    world.pass_to(900, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("platform_fault", "part/resolver/coredns")
    assert {j.name for j in incident.jobs} == BOTH
    assert "n5" not in incident.nodes


def unwell(node: str, seconds: float) -> Signal:
    """A pod of the resolver does not answer its node."""
    return sign("unknown", node, seconds, "resolver_unwell")


def drops(node: str, seconds: float) -> Signal:
    return sign("node.condition", node, seconds, "conntrack_full")


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("restart", [False, True])
def test_the_node_that_drops_connections_under_all_pods_of_the_resolver_that_do_not_answer_is_at_fault(
    backwards: bool, restart: bool
) -> None:
    told: list[Signal | PodFact] = [drops("n5", -60), unwell("n5", -20), drops("n5", 90), unwell("n5", 40)]
    told += [*unresolved("llama", 0), *unresolved("gemma", 100)]
    world = World(facts())
    for i, one in enumerate(reversed(told) if backwards else told):
        take(world, one)
        if restart and i == len(told) // 2:
            world.restart()
    world.pass_to(900, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("platform_fault", "node/n5")
    assert {j.name for j in incident.jobs} == BOTH
    assert incident.certainty == "likely", "no node is closed for it without a person"


ELSEWHERE: dict[str, list[Signal]] = {
    "pods of the resolver that do not answer on another node as well": [
        unwell("n5", -20),
        unwell("n1", -10),
        drops("n5", -60),
    ],
    "two nodes that both drop connections": [
        unwell("n5", -20),
        unwell("n1", -10),
        drops("n5", -60),
        drops("n1", -50),
    ],
    "a node without pods of the resolver": [unwell("n5", -20), drops("n1", -60)],
    "a busy node while its pods of the resolver answer": [drops("n5", -60)],
    "long before": [unwell("n5", -20), drops("n5", -2000)],
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_resolver_itself_is_at_fault_where_no_one_node_is_why(name: str) -> None:
    world = World(facts())
    world.see(*ELSEWHERE[name])
    world.see(*unresolved("llama", 0), *unresolved("gemma", 100))
    world.pass_to(900, step=5)
    assert world.only().root.key == "cluster"


def waits(name: str, asked: str = "store.data.svc", times: int = 4) -> list[Signal]:
    """A program that asks for a name again and again for five minutes, and gets no further."""
    return [failed(name, 0, 100 + 100.0 * i, "no_resolver", peer=asked) for i in range(times)]


def started(name: str) -> list[PodFact]:
    return pods(name, {"llama": LLAMA, "gemma": GEMMA}[name], since=0)


@pytest.mark.parametrize("fails", [False, True])
def test_jobs_that_get_no_further_at_their_start_for_want_of_names_are_victims(fails: bool) -> None:
    world = World(map(node_fact, [*LLAMA, *GEMMA]))
    for pod in (*started("llama"), *started("gemma")):
        world.tell(pod)
    world.see(*waits("llama"), *(unresolved("gemma", 200) if fails else waits("gemma")))
    world.see(progress("llama", 600, 1))
    world.pass_to(900, step=5)
    assert {j.name for j in world.only().jobs} == BOTH


GOES_ON: dict[str, list[Signal]] = {
    "it went on meanwhile": [*waits("llama"), progress("llama", 250, 7)],
    "it asks for what others serve": waits("llama", "hub.example.com"),
    "it asks for two minutes": waits("llama", times=2),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_a_job_that_goes_on_without_names_is_no_victim(name: str) -> None:
    world = World(map(node_fact, [*LLAMA, *GEMMA]))
    for pod in (*started("llama"), *started("gemma")):
        world.tell(pod)
    world.see(*GOES_ON[name], *unresolved("gemma", 200))
    world.pass_to(900, step=5)
    assert {j.name for j in world.only().jobs} == {"gemma"}


def test_a_job_that_ran_for_long_before_it_asked_is_no_victim() -> None:
    world = World(facts())
    world.see(*waits("llama"), *unresolved("gemma", 200))
    world.pass_to(900, step=5)
    assert {j.name for j in world.only().jobs} == {"gemma"}


NOBODY: dict[str, list[Signal | PodFact]] = {
    "jobs that go on": [*retries("llama", 0), *retries("gemma", 60)],
    "one job": [*retries("llama", 0), *dies("llama", 100)],
    "names that others serve": [
        *retries("llama", 0, "hub.example.com"),
        *retries("gemma", 60, "hub.example.com"),
        *dies("llama", 100),
    ],
    "names that may not be there": [
        failed("llama", 0, 0, "not_resolved", peer="a.data.svc"),
        failed("gemma", 0, 10, "not_resolved", peer="b.data.svc"),
        *dies("llama", 20),
    ],
    "a job that went on before it died": [
        *retries("llama", 0),
        *retries("gemma", 60),
        progress("llama", 150, 7),
        *dies("llama", 200),
    ],
    "a pod of the resolver that crashes while nobody complains": [crash("n5", 0), *dies("llama", 30)],
}


@pytest.mark.parametrize("name", NOBODY)
def test_retries_alone_are_nobodys_fault(name: str) -> None:
    world = World(facts())
    for one in NOBODY[name]:
        take(world, one)
    world.pass_to(3600, step=20)
    assert world.incidents() == []


def test_a_name_of_others_counts_beside_one_of_the_clusters_own() -> None:
    world = World(facts())
    world.see(*retries("llama", 0, "hub.example.com"), *retries("gemma", 20))
    for end in dies("llama", 100):
        world.tell(end)
    world.pass_to(900, step=5)
    assert world.only().root.key == "cluster"
    assert {j.name for j in world.only().jobs} == {"llama"}


def test_memory_that_ran_out_stays_the_jobs_own_while_no_name_is_resolved() -> None:
    world = World(facts())
    world.see(
        *retries("llama", 0), *retries("gemma", 20), *(failed("llama", i, 100, "cuda_oom") for i in (0, 1))
    )
    world.pass_to(900, step=5)
    assert {i.family for i in world.incidents()} <= {"application"}


def test_the_fault_of_a_resolver_keeps_its_name_when_its_pods_are_heard_of_later() -> None:
    world = World(facts())
    world.see(*retries("llama", 0), *retries("gemma", 20))
    for end in dies("llama", 100):
        world.tell(end)
    world.pass_to(200, step=5)
    first = world.only()
    world.see(crash("n5", 5))
    world.pass_to(400, step=5)
    assert (world.only().id, world.only().root.key) == (first.id, "part/resolver/coredns")


def test_a_storage_that_fills_up_stays_one_incident_while_the_first_job_goes_on_failing() -> None:
    """Of a job that says the same for hours nothing is kept from when the other one failed, too."""
    world = World(facts())
    for minutes in range(0, 120, 5):
        world.see(*full("llama", 60 * minutes), *(full("gemma", 3000) if minutes == 50 else ()))
        world.pass_to(60 * minutes + 290, step=10)
    storages = [one for one in world.published.values() if one.root.storage]
    assert [one.state for one in storages] == [IncidentState.OPEN]
    assert {j.name for j in storages[0].jobs} == BOTH
