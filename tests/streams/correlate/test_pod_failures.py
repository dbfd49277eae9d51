"""Jobs that fail by themselves, jobs that the platform keeps from running, and what only looks like either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.facts import PodFact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    all_ended,
    at,
    cluster,
    failed,
    gpu,
    job,
    link,
    nccl_error,
    not_ready,
    pods,
    progress,
    run,
    sign,
    storm,
    timeouts,
    xid,
)

NAMES = ("gpu_node", "gpu_pci", "gpu_uuid")
LIKELY, WEAK = Certainty.LIKELY, Certainty.WEAK
ILLEGAL = "an illegal memory access was encountered"
ALL_BUT_POD_2 = [r for r in range(32) if r // 8 != 2]


def oom(node: str, seconds: float) -> Signal:
    return sign("node.memory", node, seconds, "oom", process="pt_main_thread")


def again(
    subtype: str, seconds: float, *, kind: str = "job.failed", pod: int = 1, times: int = 6
) -> list[Signal]:
    """An event that Kubernetes tells over and over."""
    return [
        failed("llama", pod, seconds + 70 * i, subtype, kind=kind, reason="BackOff") for i in range(times)
    ]


OWN: dict[str, tuple[list[Signal], str, Certainty]] = {
    "a program that ends by itself": ([failed("llama", 2, 0, exitcode=1, local_rank=3)], "application", WEAK),
    "GPU memory that ran out": (
        [failed("llama", 2, 0, "cuda_oom"), failed("llama", 2, 2, exitcode=1)],
        "application",
        LIKELY,
    ),
    "memory of the host that ran out": (
        [oom("n3", 0), failed("llama", 2, 1, exitcode=-9)],
        "application",
        LIKELY,
    ),
    "an address that is not there, with its XID": (
        [
            xid("n3", 31, 0),
            failed("llama", 2, 0.5, "cuda_error", reason=ILLEGAL),
            failed("llama", 2, 4, exitcode=-6),
        ],
        "application",
        LIKELY,
    ),
    "an image that cannot be pulled": (again("image_pull", 0), "platform_fault", LIKELY),
    "a volume that cannot be mounted": (again("volume", 0), "platform_fault", LIKELY),
    "a sandbox that cannot be made": (again("sandbox", 0), "platform_fault", LIKELY),
    "a GPU that the node refuses to each new pod": (
        [s for i in range(3) for s in again("unexpected_admission", 40 * i, pod=i, times=1)],
        "platform_fault",
        LIKELY,
    ),
    "a pod that was evicted because the node ran out of memory": (
        [failed("llama", 1, 0, "evicted", resource="memory")],
        "platform_fault",
        LIKELY,
    ),
    "a pod that was evicted for what it wrote": (
        [failed("llama", 1, 0, "evicted", over_limit="exceeds the total limit")],
        "application",
        LIKELY,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_job_that_nothing_under_it_explains_fails_by_itself(name: str) -> None:
    signals, family, certainty = OWN[name]
    world = World(cluster({"llama": FOUR}))
    world.see(*signals)
    world.pass_to(500, step=5)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.certainty) == (family, job("llama"), certainty)
    assert incident.root.node is None


NOTHING: dict[str, list[Signal]] = {
    "processes that were told to stop": [failed("llama", p, 0, exitcode=-15) for p in range(4)],
    "processes that were killed": [failed("llama", p, 0, exitcode=-9) for p in range(4)],
    "what a launcher says while it stops": [failed("llama", 0, 0, "abort_noise")],
    "a rendezvous that did not come about": [failed("llama", 0, 0, "rendezvous")],
    "an image that was pulled at the second try": [failed("llama", 1, 0, "image_pull")],
    "an image that was pulled after four minutes": again("image_pull", 0, times=4),
    "a volume that was attached after four minutes": again("volume", 0, times=4),
    "the same short trouble of one pod after another": [
        s for i in range(4) for s in again("image_pull", 200 * i, pod=i, times=3)
    ],
    "pods that find no node": [
        s for pod in range(4) for s in again("unschedulable", 5 * pod, kind="job.stalled", pod=pod, times=20)
    ],
    "pods that were evicted on purpose": [failed("llama", p, 0, "evicted") for p in range(4)],
    "a job that restarts": [failed("llama", 0, 0, "restarting")],
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_only_follows_or_passes_opens_nothing(name: str) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*NOTHING[name])
    world.pass_to(600, step=10)
    assert world.incidents() == []


EXPLAINED: dict[str, tuple[list[Signal], str]] = {
    "a GPU off the bus under it": (
        [xid("n3", 79, -5), failed("llama", 2, 0, exitcode=1), failed("llama", 2, 1, "cuda_oom")],
        "gpu_off_bus",
    ),
    "bad memory under it": (
        [
            xid("n3", 48, 0),
            failed("llama", 2, 0.3, "cuda_error", reason="uncorrectable ECC error encountered"),
            failed("llama", 2, 5, exitcode=-6),
        ],
        "gpu_memory",
    ),
    "a dead node under it": (
        [not_ready("n3", 0), *again("unschedulable", 400, kind="job.stalled")],
        "node_down",
    ),
    "watchdogs that spoke before": (
        [*timeouts("llama", ALL_BUT_POD_2, 600), *(failed("llama", p, 604, exitcode=-6) for p in range(4))],
        "silent_node",
    ),
    "a node that was taken away": (
        [
            sign("node.maintenance", "n3", 0, "termination"),
            failed("llama", 2, 60, exitcode=1),
            failed("llama", 2, 61, "evicted"),
        ],
        "preemption",
    ),
    "a device plugin that has no healthy GPU": (
        [sign("gpu.driver", "n2", 0, "device_unhealthy"), *again("unexpected_admission", 100)],
        "platform_fault",
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.parametrize("backwards", [False, True])
def test_hardware_under_a_job_explains_how_it_fails(name: str, backwards: bool) -> None:
    signals, family = EXPLAINED[name]
    world = World(cluster({"llama": FOUR}))
    for signal in reversed(signals) if backwards else signals:
        world.see(signal)
    world.pass_to(1000, step=10)
    assert world.only().family == family
    assert world.only().root.node is not None


def test_a_rank_that_crashed_is_not_a_node_that_went_silent() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 2, 0, exitcode=1), *timeouts("llama", ALL_BUT_POD_2, 602))
    world.pass_to(700)
    incident = world.only()
    assert (incident.family, incident.root.job) == ("application", job("llama"))


def test_a_rank_that_crashed_elsewhere_does_not_acquit_a_silent_node() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 1, 0, exitcode=1), *timeouts("llama", ALL_BUT_POD_2, 602))
    world.pass_to(700)
    assert "silent_node" in {i.family for i in world.incidents()}


def test_peers_that_lose_their_connection_first_do_not_hide_what_closed_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(nccl_error("llama", r, 0) for r in ALL_BUT_POD_2), failed("llama", 2, 1.5, "cuda_oom"))
    world.pass_to(160)
    assert (world.only().family, world.only().certainty) == ("application", LIKELY)


def test_memory_that_ran_out_where_two_jobs_stand_is_laid_to_neither() -> None:
    world = World(cluster({"llama": FOUR, "gemma": ["n3", "n5"]}))
    world.see(oom("n3", 0))
    world.pass_to(100)
    assert world.incidents() == []


def test_a_program_that_failed_is_over_when_its_job_moves_on() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 2, 0, exitcode=1))
    world.pass_to(160)
    world.see(progress("llama", 300, 7))
    world.pass_to(500, step=5)
    assert world.only().state is IncidentState.RESOLVED


def tried(pod: PodFact, *, born: float, started: float | None = None, uid: str = "") -> PodFact:
    return replace(
        pod,
        uid=uid or pod.uid,
        observed_at=at(started if started is not None else born),
        created_at=at(born),
        started_at=at(started) if started is not None else None,
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_trouble_that_a_pod_got_over_does_not_add_up_with_the_next(backwards: bool) -> None:
    signals = [*again("image_pull", 0, times=3), *again("image_pull", 400, times=3)]
    over = [tried(pods("llama", FOUR)[1], born=-10, started=200)]
    anew = [tried(pods("llama", FOUR)[1], born=-10), tried(pods("llama", FOUR)[1], born=390, uid="anew")]
    for shown, opens in ((over, False), (anew, False), ([], True)):
        world = World([*cluster({"llama": FOUR}), *shown])
        for signal in reversed(signals) if backwards else signals:
            world.see(signal)
        world.pass_to(900, step=10)
        assert bool(world.incidents()) is opens


def test_an_image_that_was_pulled_at_last_is_no_longer_in_the_way() -> None:
    worker = tried(pods("llama", FOUR)[1], born=-10)
    world = World([*cluster({"llama": FOUR}), worker])
    world.see(*again("image_pull", 0))
    world.pass_to(500, step=10)
    assert world.only().state is IncidentState.OPEN
    world.tell(tried(worker, born=-10, started=600))
    world.pass_to(900, step=10)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("started", [-2000.0, None])
def test_what_is_said_of_images_and_volumes_of_a_pod_that_has_started_holds_nothing_up(
    ends: bool, started: float | None
) -> None:
    worker = tried(pods("llama", FOUR)[1], born=-2900, started=started)
    world = World([*cluster({"llama": FOUR}), worker])
    world.see(*again("image_pull", 0), *again("volume", 20), *again("sandbox", 40))
    world.pass_to(500, step=10)
    if ends:
        world.tell(replace(worker, phase="Succeeded", ready=False, ended_at=at(550), observed_at=at(550)))
    world.pass_to(900, step=10)
    assert bool(world.incidents()) is (started is None)


def waiting(attempt: int, born: float) -> list[PodFact]:
    """New pods of the job that stand nowhere."""
    return [
        replace(p, node=None, scheduled_at=None, phase="Pending", ready=False, created_at=at(born))
        for p in pods("llama", FOUR, since=born, attempt=attempt)
    ]


def wait(world: World, hours: range) -> None:
    """The scheduler tells of the pods every five minutes."""
    for i in range(hours.start * 12, hours.stop * 12):
        world.pass_to(300 * i, step=60)
        told = (failed("llama", p, 300 * i, "unschedulable", kind="job.stalled") for p in (1, 3))
        world.see(*told)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_ran_and_waits_far_longer_than_its_kind_does_is_told_of(restarts: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    for pod in pods("llama", FOUR):
        world.gone(pod, -5)
    for pod in waiting(2, 0):
        world.tell(pod)
    wait(world, range(6))
    assert world.incidents() == []
    if restarts:
        world.restart()
    wait(world, range(6, 7))
    incident = world.only()
    assert (incident.family, incident.root.job, incident.certainty) == (
        "platform_fault",
        job("llama"),
        LIKELY,
    )
    assert "it ran before" in incident.reason
    for pod in pods("llama", FOUR, since=7 * 3600, attempt=2):
        world.tell(pod)
    world.pass_to(7 * 3600 + 400, step=10)
    assert world.only().state is IncidentState.RESOLVED


def test_a_job_that_never_ran_may_wait_for_ever() -> None:
    world = World([f for f in cluster({"llama": FOUR}) if f.kind != "pod"])
    for pod in waiting(1, 0):
        world.tell(pod)
    wait(world, range(30))
    assert world.incidents() == []


def test_a_job_that_waits_for_a_node_that_was_lost_is_that_nodes_victim() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n3", 0))
    for pod in waiting(2, 320):
        world.tell(pod)
    world.see(*(s for p in (1, 3) for s in again("unschedulable", 330, kind="job.stalled", pod=p)))
    world.pass_to(1200, step=10)
    assert (world.only().family, world.only().jobs) == ("node_down", (job("llama"),))


def test_codes_of_the_teardown_do_not_move_a_crash_to_other_nodes() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(
        oom("n3", 0),
        failed("llama", 2, 1, exitcode=-9),
        *(nccl_error("llama", r, 1.5) for r in ALL_BUT_POD_2),
        *(xid(n, 43, 4) for n in ("n1", "n2")),
        failed("llama", 0, 5, exitcode=1),
    )
    world.pass_to(100)
    incident = world.only()
    assert (incident.family, incident.certainty) == ("application", LIKELY)
    assert "n3" in incident.reason


@pytest.mark.parametrize(("after", "killed"), [(5, True), (20, False), (45, False)])
def test_what_the_kernel_kills_on_a_node_after_the_job_began_to_fail_is_no_reason(
    after: float, killed: bool
) -> None:
    """Which process it was is not known: beside its own it may be anybody's shell or build."""
    world = World(cluster({"llama": FOUR}))
    world.see(
        failed("llama", 1, 0, exitcode=-6),
        oom("n3", after),
        failed("llama", 0, after + 1, exitcode=-6),
    )
    world.pass_to(900)
    assert ("killed a process for memory" in world.only().reason) is killed


def test_an_image_that_is_gone_is_no_matter_of_the_nodes_or_the_fabric() -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n2", "mlx5_2")])
    world.see(storm("leaf-1", "Ethernet8", -30), xid("n3", 95, -20), *again("image_pull", 0))
    world.pass_to(600, step=5)
    assert {i.family for i in world.incidents()} == {"pfc_storm", "gpu_memory", "platform_fault"}


@pytest.mark.parametrize("backwards", [False, True])
def test_pods_that_are_refused_on_a_sick_node_are_its_victims_even_if_nobody_placed_them(
    backwards: bool,
) -> None:
    refused = [
        replace(s, entity=replace(s.entity, node="n9"))
        for s in (failed("probe", i, 30 + 40 * i, "unexpected_admission") for i in range(3))
    ]
    signals = [sign("gpu.driver", "n9", 0, "device_unhealthy"), *refused]
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    for signal in reversed(signals) if backwards else signals:
        world.see(signal)
    world.pass_to(300)
    assert (world.only().family, world.only().root.node) == ("platform_fault", "n9")


def crash(attempt: int, seconds: float, subtype: str = "cuda_oom", reason: str = "") -> list[Signal]:
    return [
        failed("llama", attempt % 4, seconds, subtype, reason=reason),
        failed("llama", 3, seconds + 1, exitcode=1),
    ]


def moved(world: World, attempt: int, nodes: Sequence[str], seconds: float) -> None:
    """The job is started again, on these nodes."""
    for pod in pods("llama", nodes, since=seconds, attempt=attempt):
        world.tell(pod)
    world.pass_to(seconds + 200, step=10)
    world.see(progress("llama", seconds + 200, attempt))


SETS = (FOUR, ["n1", "n2", "n5", "n6"], ["n5", "n6", "n7", "n8"])


def test_a_program_that_fails_in_the_same_way_again_is_one_fault_with_a_count() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n5", "n6", "n7", "n8"]))
    for i, nodes in enumerate(SETS):
        if i:
            moved(world, i + 1, nodes, 1200 * i)
        world.see(*crash(i, 1200 * i + 600))
        world.pass_to(1200 * i + 900, step=10)
    incident = world.only()
    assert (incident.incarnation, incident.state) == (1, IncidentState.OPEN)
    assert (incident.facts["crashes"], incident.facts["crash_node_sets"]) == (3, 3)
    assert "it failed 3 times in the same way, on 3 sets of nodes: the program" in incident.reason


def test_a_program_that_ends_for_no_known_reason_on_set_after_set_of_nodes_is_likely_to_be_at_fault() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n5", "n6", "n7", "n8"]))
    for i, nodes in enumerate(SETS):
        if i:
            moved(world, i + 1, nodes, 1200 * i)
        world.see(failed("llama", 1, 1200 * i + 600, exitcode=1))
        world.pass_to(1200 * i + 900, step=10)
        assert world.only().certainty is (LIKELY if i == 2 else WEAK)


@pytest.mark.parametrize("nodes", [FOUR, ["n5", "n6", "n7", "n8"]])
def test_crashes_count_for_a_gpu_while_they_come_back_on_it_and_for_the_program_when_they_do_not(
    nodes: list[str],
) -> None:
    world = World(cluster({"llama": FOUR}, spare=["n5", "n6", "n7", "n8"]))
    world.see(xid("n2", 31, 0, index=3), *crash(1, 0.5, "cuda_error", reason=ILLEGAL))
    moved(world, 2, nodes, 400)
    world.see(xid(nodes[1], 31, 1200, index=3), *crash(1, 1200.5, "cuda_error", reason=ILLEGAL))
    world.pass_to(1400, step=10)
    assert [i.incarnation for i in world.incidents()] == ([1, 2] if nodes is FOUR else [1])


def test_a_program_that_fails_in_another_way_has_another_fault() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*crash(0, 0))
    moved(world, 2, FOUR, 400)
    world.see(*crash(1, 1200, "cuda_error", reason=ILLEGAL))
    world.pass_to(1400, step=10)
    assert [i.incarnation for i in world.incidents()] == [1, 2]


def test_a_program_that_fails_again_after_its_incident_was_closed_has_a_new_one() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*crash(0, 0))
    world.pass_to(160)
    world.see(run("resolved", world.only().id, 300))
    moved(world, 2, FOUR, 400)
    world.see(*crash(1, 1200))
    world.pass_to(1400, step=10)
    assert [(i.incarnation, i.state) for i in world.incidents()] == [
        (1, IncidentState.RESOLVED),
        (2, IncidentState.OPEN),
    ]


def test_a_crash_that_comes_back_after_its_incident_is_forgotten_is_known_to_have_been_there() -> None:
    world = World(cluster({"llama": FOUR}))
    for i in range(3):
        world.see(*crash(i, 30_000 * i))
        world.pass_to(30_000 * i + 160, step=10)
        moved(world, i + 2, FOUR, 30_000 * i + 400)
        world.pass_to(30_000 * i + 29_000, step=60)
        world.restart()
    found = [(i.incarnation, i.facts.get("same_before"), i.facts.get("repeats")) for i in world.incidents()]
    assert found == [(1, None, None), (2, 1, None), (3, 2, None)]


def test_a_code_that_the_job_goes_on_after_is_not_its_own() -> None:
    for moves, end, opens in (
        ([30, 60, 90], None, False),
        ([], None, False),
        ([], "Failed", True),
        ([], "Succeeded", False),
    ):
        world = World(cluster({"llama": FOUR}))
        world.see(xid("n2", 31, 0))
        if end is not None:
            world.end("llama", FOUR, 8, end)
        for i in moves:
            world.pass_to(i)
            world.see(progress("llama", i, i))
        world.pass_to(300, step=5)
        assert bool(world.incidents()) is opens


def test_no_failure_of_a_job_closes_a_node() -> None:
    for signals, _, _ in OWN.values():
        world = World(cluster({"llama": FOUR}))
        world.see(*signals, *timeouts("llama", range(32), 620))
        world.pass_to(800, step=10)
        assert not [i for i in world.incidents() if i.root.node and i.certainty is Certainty.DECISIVE]


def test_severity_of_the_signal_does_not_matter_to_whose_it_is() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(replace(failed("llama", 2, 0, "cuda_oom"), severity=Severity.CRITICAL))
    world.pass_to(160)
    assert world.only().family == "application"


def test_a_crash_names_the_one_gpu_that_all_its_codes_were_seen_on() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 31, 0, index=3), xid("n2", 43, 0.2, index=3), xid("n2", 13, 1, index=3))
    world.end("llama", FOUR, 8)
    world.pass_to(200)
    crash = world.only()
    assert (crash.family, crash.root.node, crash.root.gpu) == ("application", None, None)
    assert {name: crash.facts.get(name) for name in NAMES} == {
        "gpu_node": "n2",
        "gpu_pci": gpu(3).pci,
        "gpu_uuid": None,
    }


def test_a_gpu_is_named_by_its_uuid_where_a_code_tells_it() -> None:
    world = World(cluster({"llama": FOUR}))
    told = xid("n2", 31, 0, index=3)
    named = replace(told.entity, gpu=replace(gpu(3), uuid="GPU-7c1e"))
    world.see(told, replace(xid("n2", 13, 1, index=3), entity=named))
    world.end("llama", FOUR, 8)
    world.pass_to(200)
    assert {name: world.only().facts.get(name) for name in NAMES} == {
        "gpu_node": "n2", "gpu_pci": gpu(3).pci, "gpu_uuid": "GPU-7c1e"}  # fmt: skip


@pytest.mark.parametrize(
    "seen",
    [
        [xid(node, 31, i * 0.5) for i, node in enumerate(FOUR)],
        [xid("n2", 31, 0, index=1), xid("n2", 31, 0.3, index=2)],
        [xid("n2", 31, 0, index=1), xid("n3", 43, 2, index=1)],
        [replace(one := xid("n2", 31, 0), entity=replace(one.entity, gpu=None))],
        [failed("llama", 2, 0, exitcode=1)],
    ],
    ids=["many nodes", "two GPUs of a node", "a code elsewhere", "a GPU without a name", "no code"],
)
def test_a_crash_on_several_gpus_or_on_none_that_is_known_names_none(seen: list[Signal]) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*seen)
    world.end("llama", FOUR, 8)
    world.pass_to(200)
    crash = world.only()
    assert crash.family == "application"
    assert not any(name in crash.facts for name in NAMES)


TWO = FOUR[:2]


@pytest.mark.parametrize(
    ("nodes", "since", "signals", "opens"),
    [
        (TWO, -3000, [failed("llama", 0, 0, exitcode=1), failed("llama", 1, 2, exitcode=1)], False),
        (TWO, -3000, [failed("llama", 0, 0, "cuda_oom"), xid("n1", 31, 0)], False),
        (FOUR, -3000, [failed("llama", 0, 0, exitcode=1)], True),
        (FOUR, -300, [failed("llama", 0, 0, exitcode=1)], False),
        (TWO, -13 * 3600, [failed("llama", 0, 0, exitcode=1)], True),
        (TWO[:1], -13 * 3600, [failed("llama", 0, 0, exitcode=1)], False),
        (TWO, -3000, [failed("llama", 0, t, exitcode=1) for t in (0, 400, 800)], True),
        (TWO, -3000, [failed("llama", 0, t, exitcode=1) for t in (0, 60, 120)], True),
        (TWO, -3000, [failed("llama", 0, t, exitcode=1) for t in (0, 60)], False),
        (TWO, -3000, [failed("llama", 0, 0, exitcode=1), *timeouts("llama", range(8, 16), 605)], True),
        (TWO, -3000, [sign("node.memory", "n1", 0, "oom", process="python", pod="llama-worker-0")], True),
        (TWO, -3000, [xid("n1", 31, 0), xid("n2", 31, 0.5)], True),
    ],
    ids=[
        "small and short",
        "out of memory, with its code",
        "large",
        "large, and somebody still looks at it",
        "ran for hours",
        "one node for half a day",
        "a third time",
        "a third time within minutes",
        "twice",
        "peers wait for it",
        "the kernel killed it",
        "codes on several nodes",
    ],
)  # fmt: skip
def test_a_programs_own_words_are_an_incident_only_where_they_matter_to_others(
    nodes: list[str], since: float, signals: list[Signal], opens: bool
) -> None:
    world = World([*cluster({"gemma": ["m1", "m2", "m3"]}), *cluster({}, spare=FOUR)])
    for pod in pods("llama", nodes, since=since):
        world.tell(pod)
    world.pass_to(0)
    world.see(*signals)
    last = max((s.observed_at - at(0)).total_seconds() for s in signals)
    for pod in all_ended("llama", nodes, last + 4):
        world.tell(replace(pod, scheduled_at=at(since)))
    world.pass_to(1200, step=10)
    found = world.incidents()
    assert [i.family for i in found] == (["application"] if opens else [])


PEERS = [nccl_error("llama", r, 3) for r in (0, 1, 8, 9)]


@pytest.mark.parametrize(
    ("first", "beside"),
    [
        (failed("llama", 2, 0, "cuda_oom"), []),
        (failed("llama", 2, 0, "cuda_oom"), PEERS),
        (failed("llama", 2, 0, "not_a_number"), PEERS),
        (xid(FOUR[2], 31, 0), []),
    ],
    ids=["alone", "peers", "not a number", "a code alone"],
)
@pytest.mark.parametrize(
    ("again", "goes_on", "until", "told"),
    [
        (60, 300, 1500, False),
        (60, None, 800, False),
        (60, None, 1100, True),
        (None, None, 200, True),
        (400, 600, 1500, True),
    ],
    ids=["a retry that helps", "on its way", "a retry that does not", "no retry", "a retry after it was told"],
)  # fmt: skip
def test_what_a_retry_gets_over_is_no_incident(
    again: float | None, goes_on: float | None, until: float, told: bool, beside: list[Signal], first: Signal
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(progress("llama", -100, 1))
    world.see(first, *beside)
    world.end("llama", FOUR, 8)
    if again is not None:
        world.pass_to(again, step=10)
        for pod in pods("llama", FOUR, since=again, attempt=2):
            world.tell(pod)
    if goes_on is not None:
        world.pass_to(goes_on, step=10)
        world.see(progress("llama", goes_on, 2))
    world.pass_to(until, step=10)
    found = world.incidents()
    assert [i.family for i in found] == (["application"] if told else [])
    assert [i.state.is_over for i in found] == ([goes_on is not None] if told else [])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_retry_that_finishes_within_minutes_has_got_over_it(phase: str) -> None:
    """Also of a job that prints no progress: its pods say how they ended."""
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 2, 0, "cuda_oom"))
    world.end("llama", FOUR, 8)
    world.pass_to(60, step=10)
    again = pods("llama", FOUR, since=60, attempt=2)
    for pod in again:
        world.tell(pod)
    world.pass_to(300, step=10)
    for pod in again:
        world.tell(replace(pod, ended_at=at(300), phase=phase, observed_at=at(300)))
    world.pass_to(1500, step=10)
    assert [i.family for i in world.incidents()] == ([] if phase == "Succeeded" else ["application"])


def closed(name: str, rank: int, seconds: float) -> Signal:
    """A rank that finds a peer's connection closed."""
    error = nccl_error(name, rank, seconds)
    return replace(error, id=f"closed-{rank}", attributes={"rank": rank, "subtype": "remote_closed"})


@pytest.mark.parametrize("again", [40, None])
def test_a_process_that_died_is_no_hang_when_all_peers_say_so_and_the_job_runs_again(
    again: float | None,
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(closed("llama", r, 0.1 * i) for i, r in enumerate(range(32)) if r != 9))
    world.end("llama", FOUR, 8)
    if again is not None:
        world.pass_to(again, step=10)
        for pod in pods("llama", FOUR, since=again, attempt=2):
            world.tell(pod)
    world.pass_to(1500, step=10)
    assert [i.family for i in world.incidents()] == ([] if again is not None else ["hang"])


def test_what_the_kernel_kills_beside_a_launcher_without_a_gpu_is_not_its_jobs() -> None:
    launcher = replace(pods("llama", ["cpu-1"])[0], gpus=0, ranks=None, rank=None)
    world = World([*cluster({}, spare=["cpu-1"]), launcher])
    world.see(failed("llama", 0, -5, exitcode="1"), sign("node.memory", "cpu-1", 0, "oom", process="java"))
    world.pass_to(900, step=10)
    assert not [i for i in world.incidents() if "killed a process" in i.reason]


@pytest.mark.parametrize(("nodes", "times", "told"), [(FOUR[:1], 1, 0), (FOUR[:1], 3, 1), (FOUR, 1, 1)])
def test_an_eviction_is_told_where_it_stops_others_or_comes_back(
    nodes: list[str], times: int, told: int
) -> None:
    world = World([*cluster({}, spare=FOUR), *pods("llama", nodes)])
    for attempt in range(1, times + 1):
        pod = pods("llama", nodes[:1], since=60 * attempt, attempt=attempt)[0]
        if attempt > 1:
            world.tell(pod)
        evicted = failed("llama", 0, 60 * attempt + 20, "evicted", resource="ephemeral-storage")
        entity = replace(evicted.entity, pod=replace(evicted.entity.pod, uid=pod.uid))  # type: ignore[type-var]
        world.see(replace(evicted, entity=entity))
        world.tell(replace(pod, phase="Failed", ended_at=at(60 * attempt + 20)))
        world.pass_to(60 * attempt + 40)
    world.pass_to(600, step=10)
    assert [i.family for i in world.incidents()] == ["platform_fault"] * told


@pytest.mark.parametrize(("count", "told"), [(1, 0), (2, 1)])
def test_a_process_of_a_job_of_one_pod_that_was_killed_for_memory_is_its_owners_business(
    count: int, told: int
) -> None:
    nodes = FOUR[:count]
    world = World([*cluster({}, spare=FOUR), *pods("llama", nodes)])
    killed = sign("node.memory", "n1", 0, "oom", process="python", pod_uid="llama-0-1")
    world.see(killed)
    for pod in all_ended("llama", nodes, 4):
        world.tell(pod)
    world.pass_to(900, step=10)
    assert [i.family for i in world.incidents()] == ["application"] * told
