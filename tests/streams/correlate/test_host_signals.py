"""Every other kind of signal: what it opens, on which place, how sure; and what looks like it and opens nothing."""

from __future__ import annotations

import pytest

from streams.correlate.policy.families import families
from streams.model.entity import Gpu
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    gpu,
    nccl_error,
    node_fact,
    not_ready,
    off_bus,
    run,
    sign,
    timeouts,
    xid,
)

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
LIKELY, WEAK, DECISIVE = Certainty.LIKELY, Certainty.WEAK, Certainty.DECISIVE
UUID = "GPU-0a1b2c3d-0000-1111-2222-333344445555"

OPENS: dict[str, tuple[list[Signal], str, str, Certainty]] = {
    "double-bit errors that DCGM counts": (
        [sign("gpu.ecc", "n1", 0, "uncorrectable", index=2, severity=CRITICAL)],
        "gpu_memory",
        "gpu/n1/0000:12:00",
        LIKELY,
    ),
    "a row that could not be remapped": (
        [sign("gpu.row_remap", "n1", 0, "failure", index=2, severity=CRITICAL)],
        "gpu_memory",
        "gpu/n1/0000:12:00",
        LIKELY,
    ),
    "a driver that cannot start a GPU": (
        [sign("gpu.driver", "n1", 0, "rm_init_adapter", index=1, severity=CRITICAL, action="restart_bm")],
        "gpu_fault",
        "gpu/n1/0000:11:00",
        LIKELY,
    ),
    "firmware that does not answer, without an XID": (
        [sign("gpu.driver", "n1", 0, "gsp_timeout", index=1, severity=CRITICAL, action="reset_gpu")],
        "gpu_fault",
        "gpu/n1/0000:11:00",
        LIKELY,
    ),
    "a fatal error of an NVSwitch": (
        [
            sign(
                "gpu.sxid",
                "n1",
                0,
                severity=CRITICAL,
                sxid=20034,
                action="reset_gpu",
                device="nvidia-nvswitch0",
            )
        ],
        "gpu_nvlink",
        "node/n1",
        LIKELY,
    ),
    "a power brake": (
        [sign("gpu.power", "n1", 0, "power_brake", index=1)],
        "power_cooling",
        "gpu/n1/0000:11:00",
        LIKELY,
    ),
    "a power brake on all GPUs": (
        [sign("gpu.power", "n1", i, "power_brake", index=i) for i in range(8)],
        "power_cooling",
        "node/n1",
        LIKELY,
    ),
    "a hot GPU that slows itself down": (
        [sign("gpu.thermal", "n1", 0, "thermal_slowdown", index=3)],
        "power_cooling",
        "gpu/n1/0000:13:00",
        LIKELY,
    ),
    "a supply that lost its input": (
        [sign("node.power", "n1", 0, "psu")],
        "power_cooling",
        "node/n1",
        LIKELY,
    ),
    "a fan that failed": ([sign("node.thermal", "n1", 0, "fan")], "power_cooling", "node/n1", LIKELY),
    "uncorrected memory of the host": (
        [sign("node.memory", "n1", 0, "uncorrectable", severity=CRITICAL)],
        "host_fault",
        "node/n1",
        LIKELY,
    ),
    "a machine check that is fatal": (
        [sign("node.kernel", "n1", 0, "mce", severity=CRITICAL)],
        "host_fault",
        "node/n1",
        LIKELY,
    ),
    "a fatal PCIe error": (
        [sign("node.pcie", "n1", 0, "aer", severity=CRITICAL)],
        "host_fault",
        "node/n1",
        LIKELY,
    ),
    "a file system gone read-only": (
        [sign("node.storage", "n1", 0, "read_only", severity=CRITICAL)],
        "host_fault",
        "node/n1",
        LIKELY,
    ),
    "a task that hangs on and on": (
        [sign("node.kernel", "n1", at, "hung_task") for at in (0, 61, 122)],
        "host_fault",
        "node/n1",
        WEAK,
    ),
    "a container runtime that stays down": (
        [sign("node.condition", "n1", at, "container_runtime", severity=WARNING) for at in (0, 100, 200)],
        "platform_fault",
        "node/n1",
        WEAK,
    ),
    "a notice that the cloud takes the node": (
        [sign("node.maintenance", "n1", 0, "termination")],
        "preemption",
        "node/n1",
        LIKELY,
    ),
    "a driver that does not match its library": (
        [sign("gpu.driver", "n1", 0, "version_mismatch")],
        "platform_fault",
        "node/n1",
        WEAK,
    ),
    "a GPU below the median of its job": (
        [sign("gpu.slow", "n1", 0, "clock_straggler", index=5, severity=WARNING)],
        "straggler",
        "gpu/n1/0000:15:00",
        LIKELY,
    ),
    "a GPU at work whose link runs at a fraction of its job's others": (
        [sign("node.pcie", "n1", 0, "link_speed", index=5, severity=WARNING)],
        "straggler",
        "gpu/n1/0000:15:00",
        WEAK,
    ),
    "a kernel panic that nobody else saw": (
        [sign("node.kernel", "n1", 0, "kernel_panic", severity=CRITICAL)],
        "node_down",
        "node/n1",
        WEAK,
    ),
    "a kernel panic and then a kubelet that is missed": (
        [sign("node.kernel", "n1", 0, "kernel_panic", severity=CRITICAL), not_ready("n1", 45)],
        "node_down",
        "node/n1",
        DECISIVE,
    ),
}


@pytest.mark.parametrize("name", OPENS)
def test_a_fault_opens_one_incident_at_its_place(name: str) -> None:
    signals, family, root, certainty = OPENS[name]
    world = World(cluster({"llama": FOUR}))
    world.see(*signals)
    world.pass_to(1000 if "supply" in name else 400)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.certainty) == (family, root, certainty)
    assert "something" not in incident.reason
    assert "not known" not in incident.title


SAYS_NOTHING: dict[str, list[Signal]] = {
    "a task that hung": [sign("node.kernel", "n1", 0, "hung_task")],
    "tasks that hung in one moment": [sign("node.kernel", "n1", at, "hung_task") for at in (0, 1, 40)],
    "a task that hung three times in hours": [
        sign("node.kernel", "n1", at, "hung_task") for at in (0, 3600, 7200)
    ],
    "a disk that was slow twice": [sign("node.storage", "n1", at, "nvme_timeout") for at in (0, 1500)],
    "an interrupt of a disk that is lost now and then": [
        sign("node.storage", "n1", at, "nvme_timeout", action="completion polled") for at in (0, 70, 140, 210)
    ],
    "corrected memory of a GPU": [sign("gpu.ecc", "n1", 0, "correctable", index=1, severity=INFO)],
    "double-bit errors over a lifetime": [
        sign("gpu.ecc", "n1", 0, "uncorrectable", index=1, severity=WARNING, scope="aggregate")
    ],
    "a row remapped that waits for a reset": [
        sign("gpu.row_remap", "n1", 0, "pending", index=1, severity=WARNING)
    ],
    "single flits sent again": [sign("gpu.nvlink", "n1", 0, "crc", index=1, severity=WARNING)],
    "a link that was brought up again": [sign("gpu.nvlink", "n1", 0, "recovery", index=1)],
    "an error of an NVSwitch that is not fatal": [
        sign("gpu.sxid", "n1", 0, severity=WARNING, sxid=20009, action="none")
    ],
    "an NVSwitch that calls its fatal-looking code non-fatal": [
        sign("gpu.sxid", "n1", 0, severity=WARNING, sxid=12028, action="restart_app")
    ],
    "a GPU that reads zero": [sign("gpu.off_bus", "n1", 0, "reads_zero", index=1)],
    "an alert that a GPU fell off": [
        sign("gpu.off_bus", "n1", 0, index=1, severity=CRITICAL, alert="GpuLost")
    ],
    "an alert on the last XID": [xid("n1", 79, 0, alert="GpuXid")],
    "a GPU at its power cap": [sign("gpu.power", "n1", 0, "power_violation", index=1, severity=INFO)],
    "a health watch that warns of power": [sign("gpu.power", "n1", 0, "health", index=1, severity=WARNING)],
    "a GPU that is warm for a moment": [
        sign("gpu.thermal", "n1", 0, "temperature", index=1, severity=WARNING),
        sign("gpu.thermal", "n1", 60, "temperature", index=1, severity=WARNING, cleared=True),
    ],
    "a corrected machine check": [sign("node.kernel", "n1", 0, "mce", severity=INFO)],
    "corrected memory of the host": [sign("node.memory", "n1", 0, "correctable", severity=INFO)],
    "a corrected PCIe error": [sign("node.pcie", "n1", 0, "aer", severity=INFO)],
    "a PCIe error that was recovered from": [
        sign("node.pcie", "n1", 0, "aer"),
        sign("node.pcie", "n1", 4, "aer", cleared=True),
    ],
    "a disk that is nearly full": [sign("node.storage", "n1", 0, "disk_pressure", severity=WARNING)],
    "a clock that was set": [sign("node.condition", "n1", 0, "clock_step", severity=WARNING)],
    "a node that rebooted": [sign("node.condition", "n1", 0, "rebooted", severity=WARNING)],
    "memory that runs short": [sign("node.memory", "n1", 0, "memory_pressure", severity=WARNING)],
    "a recommendation to leave": [
        sign("node.maintenance", "n1", 0, "rebalance_recommendation", severity=WARNING)
    ],
    "a device plugin that restarts": [
        sign("gpu.driver", "n1", 0, "device_unhealthy"),
        sign("gpu.driver", "n1", 20, "device_unhealthy", cleared=True),
    ],
    "an error in words that no row knows": [
        sign("unknown", "n1", 0, index=1, severity=INFO, author="nvidia"),
        sign("unknown", "n1", 1, severity=INFO, author="nvme", device="nvme3"),
    ],
    "a runtime that its kubelet calls down once": [
        sign("node.condition", "n1", 0, "container_runtime", severity=WARNING)
    ],
    "a node that Slurm drained": [sign("node.condition", "n1", 0, "slurm_drain", severity=WARNING)],
    "a node that does not answer Slurm": [sign("node.condition", "n1", 0, "slurm_down")],
    "the verdict of another agent": [sign("node.condition", "n1", 0, "agent_verdict", severity=WARNING)],
    "an assertion of the driver": [sign("gpu.driver", "n1", 0, "assertion", index=1, severity=WARNING)],
    "an idle GPU": [sign("gpu.idle", "n1", 0, "allocated", index=1, severity=WARNING)],
}


@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_what_was_corrected_or_only_confirms_opens_nothing(name: str) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*SAYS_NOTHING[name])
    world.pass_to(600, step=10)
    assert world.incidents() == []


def test_a_supply_that_blinks_is_not_told_because_a_fan_was_slow_before() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.thermal", "n1", 0, "fan", severity=WARNING))
    world.pass_to(700, step=10)
    world.see(sign("node.power", "n1", 700, "psu", severity=Severity.ERROR))
    world.pass_to(710)
    world.see(sign("node.power", "n1", 710, "psu", severity=Severity.ERROR, cleared=True))
    world.pass_to(1200, step=10)
    assert world.revisions == []


OFF = xid("n1", 79, 10, index=2)
JOINED: dict[str, tuple[list[Signal], str, str]] = {
    "a GPU off the bus and all switches that lose its links": (
        [
            OFF,
            *(
                sign("gpu.sxid", "n1", 22 + i, severity=CRITICAL, sxid=20034, action="reset_gpu")
                for i in range(4)
            ),
        ],
        "gpu_off_bus",
        "gpu/n1/0000:12:00",
    ),
    "the same, the switches heard first": (
        [sign("gpu.sxid", "n1", 9, severity=CRITICAL, sxid=20034, action="reset_gpu"), OFF],
        "gpu_off_bus",
        "gpu/n1/0000:12:00",
    ),
    "a GPU off the bus and its neighbours' links": (
        [xid("n1", 74, 9, index=5, link=3), OFF, xid("n1", 74, 12, index=6)],
        "gpu_off_bus",
        "gpu/n1/0000:12:00",
    ),
    "a GPU off the bus, what the host saw of it, and what DCGM shows": (
        [
            OFF,
            sign("node.pcie", "n1", 9, "dpc", severity=CRITICAL),
            sign("gpu.off_bus", "n1", 40, "reads_zero", index=2),
            sign("gpu.driver", "n1", 41, "device_unhealthy"),
            sign("node.kernel", "n1", 140, "hung_task"),
        ],
        "gpu_off_bus",
        "gpu/n1/0000:12:00",
    ),
    "double-bit errors counted and told": (
        [
            xid("n1", 48, 0, index=2),
            sign("gpu.ecc", "n1", 20, "uncorrectable", index=2, severity=CRITICAL),
            sign("gpu.row_remap", "n1", 25, "pending", index=2, severity=WARNING),
        ],
        "gpu_memory",
        "gpu/n1/0000:12:00",
    ),
    "firmware that dies before its XID": (
        [sign("gpu.driver", "n1", 0, "gsp_timeout", index=2, severity=CRITICAL), xid("n1", 119, 1, index=2)],
        "gpu_fault",
        "gpu/n1/0000:12:00",
    ),
    "the far end of a link that failed": (
        [xid("n1", 74, 0, index=5, reason="sympathetic"), xid("n1", 74, 1, index=2)],
        "gpu_nvlink",
        "gpu/n1/0000:12:00",
    ),
    "heat that makes a GPU slow": (
        [
            sign("gpu.thermal", "n1", 0, "thermal_slowdown", index=2),
            sign("gpu.slow", "n1", 200, "clock_straggler", index=2, severity=WARNING),
        ],
        "power_cooling",
        "gpu/n1/0000:12:00",
    ),
    "memory of the host that takes the node down": (
        [sign("node.memory", "n1", 0, "uncorrectable", severity=CRITICAL), not_ready("n1", 50)],
        "host_fault",
        "node/n1",
    ),
    "a notice, and then the node goes": (
        [sign("node.maintenance", "n1", 0, "termination"), not_ready("n1", 130)],
        "preemption",
        "node/n1",
    ),
    "a panic, and what the GPUs say when it is back": (
        [
            sign("node.kernel", "n1", 0, "kernel_panic", severity=CRITICAL),
            not_ready("n1", 45),
            sign("node.kernel", "n1", -3, "soft_lockup"),
            sign("node.kernel", "n1", -1, "oops", severity=CRITICAL),
        ],
        "node_down",
        "node/n1",
    ),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("backwards", [False, True])
def test_one_fault_seen_many_times_is_one_incident_at_its_root(name: str, backwards: bool) -> None:
    signals, family, root = JOINED[name]
    world = World(cluster({"llama": FOUR}))
    for signal in reversed(signals) if backwards else signals:
        world.see(signal)
    world.pass_to(400, step=5)
    assert (world.only().family, world.only().root.key) == (family, root)


def test_a_weak_sign_is_told_of_a_hang_when_the_ranks_have_had_time_to_name_somebody() -> None:
    """Watchdogs speak as far apart as ranks came to wait: until then several nodes are silent, and one of them has a sign."""
    waiting = [r for r in range(8 * len(FOUR)) if r // 8 != 1]
    early, late = waiting[:8], waiting[8:]
    world = World(cluster({"llama": FOUR}))
    story = [
        sign("node.kernel", FOUR[1], 0, "soft_lockup"),
        *timeouts("llama", early, 605),
        *timeouts("llama", late, 640),
    ]
    for signal in story:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=5)
        world.see(signal)
    world.pass_to(900, step=5)
    assert [(i.family, i.root.node) for i in world.published.values()] == [("silent_node", FOUR[1])]


APART: dict[str, list[Signal]] = {
    "a hot GPU and, an hour later, one off the bus": [
        sign("gpu.thermal", "n1", 0, "thermal_slowdown", index=2),
        xid("n1", 79, 3600, index=5),
    ],
    "a GPU off the bus and, an hour later, bad memory of the host": [
        xid("n1", 79, 0, index=5),
        sign("node.memory", "n1", 3600, "uncorrectable", severity=CRITICAL),
    ],
    "the same trouble on two nodes": [
        sign("node.memory", "n1", 0, "uncorrectable", severity=CRITICAL),
        sign("node.memory", "n2", 0, "uncorrectable", severity=CRITICAL),
    ],
    "a kernel that died and a GPU that failed minutes later": [
        sign("node.kernel", "n1", 0, "kernel_panic", severity=CRITICAL),
        not_ready("n1", 40),
        xid("n1", 79, 120, index=5),
    ],
}


@pytest.mark.parametrize("name", APART)
def test_two_faults_stay_two(name: str) -> None:
    world = World(cluster({"llama": FOUR}))
    for signal in APART[name]:
        world.see(signal)
    world.pass_to(3800, step=60)
    assert len(world.incidents()) == 2


def test_a_gpu_is_one_by_whatever_name_it_goes() -> None:
    whole = Gpu(pci=gpu(2).pci, uuid=UUID, index=2)
    world = World(cluster({"llama": FOUR}))
    world.see(
        sign("gpu.row_remap", "n1", 0, "failure", gpu=Gpu(uuid=UUID), severity=CRITICAL),
        sign("gpu.ecc", "n1", 400, "uncorrectable", gpu=Gpu(index=2), severity=CRITICAL),
        sign("gpu.ecc", "n1", 800, "correctable", gpu=whole, severity=INFO),
        xid("n1", 95, 900, index=2),
    )
    world.pass_to(1000, step=10)
    assert world.only().root.gpu == whole
    assert world.only().facts["gpus_failed"] == 1


def test_an_index_that_two_gpus_had_is_not_believed() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(
        sign("gpu.ecc", "n1", 0, "correctable", gpu=Gpu(pci=gpu(2).pci, index=2), severity=INFO),
        sign("gpu.ecc", "n1", 1, "correctable", gpu=Gpu(pci=gpu(3).pci, index=2), severity=INFO),
        sign("gpu.ecc", "n1", 2, "uncorrectable", gpu=Gpu(index=2), severity=CRITICAL),
    )
    assert world.only().root.key == "gpu/n1/index-2"


def test_what_a_victim_of_its_link_asks_for_is_not_decisive() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 74, 0, reason="peer device"), xid("n1", 154, 2, action="drain_and_reset"))
    world.pass_to(10)
    assert (world.only().family, world.only().certainty) == ("gpu_nvlink", LIKELY)


def test_weak_signs_do_not_rename_a_fault_that_is_sure() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 119, 0, index=1), sign("gpu.nvlink", "n1", 5, "link_inactive", index=1))
    assert (world.only().family, world.only().certainty) == ("gpu_fault", DECISIVE)


def test_a_fault_that_clears_ends_and_one_that_comes_back_is_counted() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("gpu.power", "n1", 0, "power_brake", index=1))
    world.see(sign("gpu.power", "n1", 60, "power_brake", index=1, cleared=True))
    world.see(sign("gpu.power", "n1", 90, "power_brake", index=1))
    world.pass_to(95)
    assert world.only().flaps == 1
    world.see(sign("gpu.power", "n1", 300, "power_brake", index=1, cleared=True))
    world.pass_to(910)
    assert (world.only().state, world.only().closed_at) == (IncidentState.RESOLVED, at(300))
    world.see(sign("gpu.power", "n1", 1000, "power_brake", index=1))
    world.pass_to(1070)
    assert [i.incarnation for i in world.incidents()] == [1, 2]


def test_what_a_person_closed_opens_anew_only_after_a_while() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.kernel", "n1", 0, "mce", severity=CRITICAL))
    world.see(run("resolved", world.only().id, 50), sign("node.kernel", "n1", 100, "mce", severity=CRITICAL))
    assert world.only().state is IncidentState.RESOLVED
    world.see(sign("node.kernel", "n1", 900, "mce", severity=CRITICAL))
    assert [i.incarnation for i in world.incidents()] == [1, 2]


def braked_and_slow(slow_at: float, index: int = 1, over: float | None = None) -> list[str]:
    """What is open of a GPU under a power brake, and one that is slow a quarter of an hour later."""
    world = World(cluster({"llama": FOUR}))
    world.see(sign("gpu.power", "n1", 0, "power_brake", index=1))
    if over is not None:
        world.see(sign("gpu.power", "n1", over, "power_brake", index=1, cleared=True))
    world.pass_to(slow_at - 1, step=60)
    world.see(sign("gpu.slow", "n1", slow_at, "clock_straggler", index=index, severity=WARNING))
    world.pass_to(slow_at + 600, step=60)
    return sorted(i.family for i in world.incidents())


def test_a_brake_that_is_still_on_is_why_its_gpu_is_slow_however_late_that_is_seen() -> None:
    assert braked_and_slow(900) == ["power_cooling"]


@pytest.mark.parametrize(("index", "over"), [(5, None), (1, 60)])
def test_a_brake_is_not_why_another_gpu_is_slow_nor_the_same_one_later(
    index: int, over: float | None
) -> None:
    assert braked_and_slow(2400, index, over) == ["power_cooling", "straggler"]


def test_heat_does_not_explain_a_hang() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("gpu.thermal", "n1", 0, "thermal_slowdown", index=2), *timeouts("llama", range(32), 620))
    world.pass_to(700)
    assert {i.family for i in world.incidents()} == {"power_cooling", "hang"}


def test_a_slow_gpu_is_a_candidate_and_no_explanation_of_a_hang() -> None:
    world = World(cluster({"llama": FOUR}))
    slow = sign("gpu.slow", "n2", -60, "clock_straggler", index=5, severity=WARNING)
    world.see(slow, *timeouts("llama", range(32), 620))
    world.pass_to(700)
    (hang,) = (i for i in world.incidents() if i.family == "hang")
    assert ("straggler", "gpu/n2/0000:15:00", False) in {
        (c.family, c.entity.key, c.chosen) for c in hang.candidates
    }


def test_a_sick_host_explains_what_hangs_at_that_moment_and_not_what_hangs_later() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(
        sign("node.memory", "n1", 0, "uncorrectable", severity=CRITICAL),
        *timeouts("llama", range(8, 32), 610),
    )
    world.pass_to(700)
    assert (world.only().family, [j.name for j in world.only().jobs]) == ("host_fault", ["llama"])
    world.see(*(nccl_error("llama", r, 3600) for r in range(4)))
    world.pass_to(3700, step=10)
    assert {i.family for i in world.incidents()} == {"host_fault", "hang"}


def test_a_lost_gpu_without_an_address_is_the_one_that_its_xid_names() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(off_bus("n1", 0), xid("n1", 79, 1, index=4))
    assert world.only().root.key == "gpu/n1/0000:14:00"


def test_every_family_and_row_of_the_table_can_be_told() -> None:
    table = families()
    for name, row in table.families.items():
        assert row.title.format_map(dict.fromkeys(("node", "source", "job", "root", "when"), "x")), name
    assert all(rule.says for rule in table.signals)


def test_a_node_in_maintenance_that_panics_is_not_anybodys_alarm() -> None:
    world = World([*cluster({"llama": FOUR}), node_fact("n1", since=-100, maintenance=True)])
    world.see(sign("node.kernel", "n1", 0, "kernel_panic", severity=CRITICAL), not_ready("n1", 40))
    world.pass_to(120)
    assert world.only().state is IncidentState.SUPPRESSED


def test_what_a_warm_and_busy_host_says_now_and_then_is_no_fault() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.thermal", "n2", 0, "fan", severity=Severity.WARNING))
    for minute in range(20):
        world.see(sign("node.thermal", "n2", 60 * minute, "cpu_throttled"))
    world.pass_to(1800)
    assert world.incidents() == [], "a kernel tells of every second above the threshold"
    for minute in (30, 35, 40):
        world.see(sign("node.thermal", "n2", 60 * minute, "fan", severity=Severity.WARNING))
    world.pass_to(2700)
    assert world.incidents() == [], "a controller's warning may come all summer long"
    world.see(sign("node.thermal", "n2", 2760, "fan", severity=Severity.ERROR))
    world.pass_to(2900)
    assert world.only().family == "power_cooling"


@pytest.mark.parametrize(("back_at", "told"), [(400, False), (1000, True), (None, True)])
def test_a_supply_that_somebody_changes_is_told_only_when_it_stays_away(
    back_at: float | None, told: bool
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.power", "n1", 0, "psu"), sign("node.power", "n1", 4, "psu_redundancy"))
    for now in range(50, 1500, 50):
        world.pass_to(now, step=5)
        if now == back_at:
            # Its controller does not say that the supplies are redundant again.
            world.see(sign("node.power", "n1", now, "psu", cleared=True))
    assert bool(world.incidents()) is told
