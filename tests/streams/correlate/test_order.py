"""Whatever the order, the splits, the repetitions: the same incidents in the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.correlate import Engine
from streams.model.entity import Entity, Gpu
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.kinds import WorkloadClass
from streams.model.signal import Severity, Signal
from tests.effort import tries
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    gpu,
    job,
    link,
    nccl_error,
    node_fact,
    not_ready,
    pause,
    pods,
    progress,
    run,
    sign,
    storm,
    summary,
    timeouts,
    xid,
)

Story = tuple[list[Fact], list[Signal]]


def off_bus_story() -> Story:
    noise = [xid(n, 45, 3, index=i) for n in FOUR for i in range(2)] + [xid(n, 43, 3.5) for n in FOUR]
    signals = [
        xid("n2", 79, 0, index=3),
        xid("n2", 154, 1, index=3, action="restart_bm"),
        *noise,
        not_ready("n2", 50),
    ]
    return cluster({"llama": FOUR}), [*signals, *timeouts("llama", [r for r in range(32) if r != 11], 600)]


def silent_story() -> Story:
    waiting = [r for r in range(32) if r // 8 != 2]
    return cluster({"llama": FOUR}), [
        *timeouts("llama", waiting, 600),
        *(summary("llama", r, 602, enqueued=103, seq=100) for r in waiting),
    ]


def storm_story() -> Story:
    facts = [
        *cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"]}),
        link("leaf-1", "Ethernet8", "n1", "mlx5_2"),
        link("leaf-1", "Ethernet120", peer="spine-1"),
    ]
    signals = [
        storm("leaf-1", "Ethernet8", 0),
        storm("leaf-1", "Ethernet120", 1),
        pause("n1", "mlx5_2", "sent", 15),
        pause("n3", "mlx5_0", "received", 15),
    ]
    return facts, [
        *signals,
        *(nccl_error("gemma", r, 31) for r in range(16)),
        *(nccl_error("llama", r, 32) for r in range(8, 16)),
    ]


def application_story() -> Story:
    return cluster({"llama": FOUR}), [
        *(xid(n, 31, i * 0.7) for i, n in enumerate(FOUR)),
        *(xid(n, 45, 3) for n in FOUR),
        *timeouts("llama", range(32), 602),
    ]


def moved_story() -> Story:
    """A job loses a node, is moved by a run, and loses another one later."""
    facts = cluster({"llama": FOUR}, spare=["n9"])
    after = pods("llama", ["n1", "n9", "n3", "n4"], since=120, attempt=2)
    before = [replace(p, ended_at=at(100), observed_at=at(101)) for p in pods("llama", FOUR)]
    first = incident_id("east", Entity("east", node="n2", gpu=gpu(0)), "gpu_off_bus", 1)
    signals = [
        xid("n2", 79, 0),
        run("started", first, 5),
        run("finished", first, 300, "succeeded"),
        *(xid(n, 45, 90) for n in FOUR),
    ]
    signals += [progress("llama", 290, 7), *timeouts("llama", [r for r in range(32) if r // 8 != 1], 1500)]
    return [*facts, *before, *after], signals


def two_faults_story() -> Story:
    facts = cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"]})
    return facts, [
        xid("n1", 48, 0),
        xid("n1", 95, 2),
        not_ready("n3", 40),
        *timeouts("llama", range(8, 16), 600),
        *timeouts("gemma", range(8, 16), 605),
    ]


def board_story() -> Story:
    """A GPU leaves the bus: its switches, its neighbours, the host, DCGM and an alert all tell of it, by other names."""
    whole = Gpu(pci=gpu(2).pci, uuid="GPU-7", index=2)
    signals = [
        xid("n1", 74, -2, index=5, reason="sympathetic"),
        xid("n1", 79, 0, index=2),
        *(
            sign("gpu.sxid", "n1", 12 + i, severity=Severity.CRITICAL, sxid=20034, action="reset_gpu")
            for i in range(3)
        ),
        sign("node.pcie", "n1", -1, "dpc", severity=Severity.CRITICAL),
        sign("gpu.off_bus", "n1", 30, "reads_zero", gpu=whole),
        sign("gpu.driver", "n1", 31, "gpu_missing", gpu=Gpu(uuid="GPU-7")),
        sign("node.kernel", "n1", 130, "hung_task"),
        not_ready("n1", 60),
    ]
    return cluster({"llama": FOUR}), [*signals, *timeouts("llama", range(8, 32), 610)]


def places_story() -> Story:
    """A node each with a sick host, with heat that comes and goes, and one that is taken away."""
    signals = [
        sign("node.memory", "n1", 0, "uncorrectable", severity=Severity.CRITICAL),
        sign("node.kernel", "n1", 20, "soft_lockup"),
        not_ready("n1", 70),
        *(sign("gpu.power", "n2", 10 + i, "power_brake", index=i) for i in range(3)),
        *(sign("gpu.power", "n2", 90 + i, "power_brake", index=i, cleared=True) for i in range(3)),
        sign("gpu.slow", "n2", 60, "clock_straggler", index=1, severity=Severity.WARNING),
        sign("gpu.slow", "n2", 200, "clock_straggler", index=1, severity=Severity.WARNING, cleared=True),
        sign("node.maintenance", "n3", 5, "termination"),
        not_ready("n3", 125),
    ]
    facts = cluster({"llama": ["n1", "n5"], "gemma": ["n2", "n6"], "phi": ["n3", "n7"]})
    return facts, [*signals, *timeouts("llama", range(8, 16), 610)]


def shared_story() -> Story:
    """A rack that loses its power, a file system that others do not reach, and a link with its far end in another tray."""
    racks = {"r1": ["n1", "n2", "n3"], "r2": ["n4", "n5", "n6"], "r3": ["n7", "n8"]}
    facts = cluster({"llama": racks["r1"], "gemma": racks["r2"], "phi": racks["r3"]})
    facts += [
        node_fact(n, since=-3500, rack=rack, nvlink_domain=f"d-{rack}")
        for rack, ns in racks.items()
        for n in ns
    ]
    signals = [
        sign("node.power", "n1", 0, "psu"),
        *(sign("gpu.power", n, 5, "power_brake", index=0) for n in racks["r1"]),
        *(not_ready(n, 50 + i) for i, n in enumerate(racks["r1"])),
        *(
            sign("node.storage", n, 10 * i, "lustre", target=f"lfs1-OST000{i % 2}")
            for i, n in enumerate(racks["r2"])
        ),
        sign("node.storage", "n5", 300, "lustre", target="lfs1-OST0001", cleared=True),
        *(sign("node.kernel", n, 130, "hung_task") for n in racks["r2"]),
        xid("n7", 149, 100, index=1, reason="peer device", action="reset_gpu"),
        xid("n8", 149, 102, index=4, action="reset_gpu"),
        *timeouts("llama", range(8, 24), 610),
        *timeouts("gemma", range(24), 620),
    ]
    return facts, signals


def failures_story() -> Story:
    """A program that runs out of memory, one that crashes with its XID, one whose image is gone, one on a bad GPU."""
    facts = cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"], "phi": ["n5", "n6"], "qwen": ["n7", "n8"]})
    signals = [
        sign("node.memory", "n2", 0, "oom", process="python"),
        failed("llama", 1, 1, exitcode=-9),
        *(nccl_error("llama", r, 0.4) for r in range(8)),
        xid("n3", 31, 10),
        failed("gemma", 0, 10.5, "cuda_error", reason="an illegal memory access was encountered"),
        failed("gemma", 0, 14, exitcode=-6),
        *timeouts("gemma", range(8, 16), 612),
        *(failed("phi", 1, 20 + 60 * i, "image_pull", reason="BackOff") for i in range(7)),
        xid("n7", 48, 30, index=2),
        failed("qwen", 0, 31, exitcode=1),
        *(failed("qwen", 0, 400 + 90 * i, "unschedulable", kind="job.stalled") for i in range(5)),
    ]
    return facts, signals


PHI = ["n5", "n6", "n10", "n11"]


def neighbours_story() -> Story:
    """A notebook beside a job, a job that is preempted, one that crashes again, one that waits for its lost node."""
    facts = cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"], "phi": PHI, "qwen": ["n7", "n8"]})
    beside = replace(
        pods("notebook", ["n1"])[0], job=None, gpus=1, rank=None, ranks=None, workload=WorkloadClass.NOTEBOOK
    )
    removed = [replace(p, removed_at=at(0), observed_at=at(1)) for p in pods("gemma", ["n3", "n4"])]
    waits = [
        replace(p, node=None, scheduled_at=None, phase="Pending", created_at=at(320))
        for p in pods("qwen", ["n7", "n8"], since=320, attempt=2)
    ]
    signals = [
        xid("n1", 31, 0),
        sign("node.memory", "n1", 2, "oom", process="java"),
        *(failed("notebook", 0, 60 * i, "image_pull") for i in range(8)),
        *(failed("gemma", p, 3 + p, exitcode=1) for p in range(2)),
        failed("phi", 0, 0, "cuda_oom"),
        progress("phi", 300, 2),
        failed("phi", 1, 900, "cuda_oom"),
        not_ready("n7", 0),
        *(
            failed("qwen", p, 330 + 100 * i + p, "unschedulable", kind="job.stalled")
            for i in range(5)
            for p in range(2)
        ),
    ]
    return [*facts, beside, *removed, *waits, *pods("phi", [*PHI[:3], "n9"], since=200, attempt=2)], signals


STORIES: list[Callable[[], Story]] = [
    off_bus_story,
    silent_story,
    storm_story,
    application_story,
    moved_story,
    two_faults_story,
    board_story,
    places_story,
    shared_story,
    failures_story,
    neighbours_story,
]


def essence(incident: Incident) -> tuple[Any, ...]:
    """What must not depend on the order."""
    return (
        incident.id,
        incident.root,
        incident.family,
        incident.state,
        incident.certainty,
        incident.jobs,
        incident.nodes,
        incident.reason,
        incident.fault_at,
        incident.facts,
        incident.impact,
        incident.candidates,
        [(p.signal_id, p.role, p.count) for p in incident.proofs],
    )


def outcome(steps: list[Fact | list[Signal]]) -> list[tuple[Any, ...]]:
    """Everything taken in, then time passing."""
    rows: dict[str, bytes] = {}
    engine = Engine("east", rows)
    published: dict[str, Incident] = {}
    for step in steps:
        changes = (
            engine.on_signals(step, at(1600))
            if isinstance(step, list)
            else engine.on_fact(step.key, step, at(1600))
        )
        published |= {i.id: i for i in changes.incidents}
    for second in (1601, 1630, 1700, 1900):
        published |= {i.id: i for i in engine.on_tick(at(second)).incidents}
    standing = [
        i
        for i in published.values()
        if i.state is not IncidentState.MERGED and not i.reason.startswith("Withdrawn")
    ]
    return sorted((essence(i) for i in standing), key=lambda e: str(e[0]))


@pytest.mark.parametrize("story", STORIES)
@given(data=st.data())
@settings(max_examples=tries(25))
def test_any_order_any_split_any_repetition_ends_in_the_same_incidents(
    story: Callable[[], Story], data: st.DataObject
) -> None:
    facts, signals = story()
    expected = outcome([*facts, signals])
    assert expected
    seed = data.draw(st.integers(0, 2**32), label="seed")
    repeats = data.draw(st.integers(0, 8), label="repeats")
    assert (
        outcome(mixed(facts, signals, seed, repeats, data.draw(st.integers(1, 12), label="batch")))
        == expected
    )


def mixed(
    facts: Sequence[Fact], signals: Sequence[Signal], seed: int, repeats: int, batch: int
) -> list[Fact | list[Signal]]:
    """Signals in another order and in batches, some of them twice, with facts in between."""
    chance = random.Random(seed)
    repeated = [*signals, *chance.choices(signals, k=repeats)]
    chance.shuffle(repeated)
    steps: list[Fact | list[Signal]] = [repeated[i : i + batch] for i in range(0, len(repeated), batch)]
    late = list(facts)
    chance.shuffle(late)
    for fact in late:
        steps.insert(chance.randint(0, len(steps)), fact)
    return steps


def test_a_rack_without_power_that_was_taken_for_an_outage_is_told_of_whole() -> None:
    # Three nodes are gone while only four are known; that the others stand is told last.
    facts, signals = shared_story()
    assert outcome(mixed(facts, signals, 476017207, 0, 7)) == outcome([*facts, signals])


@pytest.mark.parametrize("story", STORIES)
def test_reading_everything_a_second_time_changes_nothing(story: Callable[[], Story]) -> None:
    facts, signals = story()
    world = World(facts)
    for _ in range(2):
        world.see(*signals)
        world.pass_to(1900, step=10)
        revisions = len(world.revisions)
    world.see(*signals)
    world.pass_to(2000, step=10)
    assert len(world.revisions) == revisions


@pytest.mark.parametrize("story", STORIES)
def test_read_as_it_happens_it_ends_as_when_read_at_once(story: Callable[[], Story]) -> None:
    facts, signals = story()
    world = World(facts)
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds())
        world.see(signal)
        if len(world.revisions) % 3 == 0:
            world.restart()
    world.pass_to(1900, step=5)
    assert sorted((essence(i) for i in world.incidents()), key=lambda e: str(e[0])) == outcome(
        [*facts, signals]
    )


def test_the_stories_end_as_they_should() -> None:
    assert [
        sorted(
            (e[2], e[1].node or e[1].rack or e[1].storage or str(e[1].job))
            for e in outcome([*facts, signals])
        )
        for facts, signals in (s() for s in STORIES)
    ] == [
        [("gpu_off_bus", "n2")],
        [("silent_node", "n3")],
        [("pfc_storm", "n1")],
        [("application", str(job("llama")))],
        [("gpu_off_bus", "n2"), ("silent_node", "n9")],
        [("gpu_memory", "n1"), ("node_down", "n3")],
        [("gpu_off_bus", "n1")],
        [("host_fault", "n1"), ("power_cooling", "n2"), ("preemption", "n3")],
        [("gpu_nvlink", "n8"), ("power_cooling", "r1"), ("storage_fault", "lfs1")],
        [
            ("application", str(job("gemma"))),
            ("application", str(job("llama"))),
            ("gpu_memory", "n7"),
            ("platform_fault", str(job("phi"))),
        ],
        [("application", str(job("phi"))), ("node_down", "n7")],
    ]
