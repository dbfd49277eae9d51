"""Faults of hosts: panics, power, processors, memory, disks, and notices that a host will be taken away."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sandbox.simulation.faults.kinds import FaultPlace, Kind, on_busy_gpu
from sandbox.simulation.job_failure import crash, hang, restart_job, retries, teardown
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node
from sandbox.simulation.workload import Job

GRACE_S = (40.0, 58.0)
"""Until the node controller declares a silent kubelet lost: 40 s, 50 s from Kubernetes 1.32 on, and its own period."""


def _dead(kind: str, last_lines: tuple[str, ...] = ()) -> Kind:
    """A host stops at once. Its peers' sends go unanswered (after the transport's own timeout), or their watchdogs fire."""

    def play(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
        if last_lines and sim.rng.random() < 0.7:  # the end of the log may not leave the machine
            sim.kernel(place.node, at, *last_lines)
        sim.not_ready(place.node, at + seconds(sim.rng.uniform(*GRACE_S)))
        if sim.rng.random() < 0.6:
            retries(sim, job, at, place.ranks)
            return _abort(sim, place, job, at + seconds(sim.rng.uniform(30, 45)))
        return hang(sim, job, at, place.ranks, avoid=[place.node])

    return on_busy_gpu(kind, "node_down", play)


def _abort(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """All ranks abort because a peer does not answer; the dead host itself logs nothing more."""
    teardown(sim, job, at, spared=place.ranks)
    return restart_job(sim, job, at + seconds(10), [place.node])


def _host(
    kind: str,
    log: Callable[[Simulation, Node, datetime], None],
    *,
    ends: str,
    accepted: tuple[str, ...] = (),
) -> Kind:
    """A host logs a fault of its own. `ends`: its ranks hang, one of them dies, or the job goes on until it is moved."""

    def play(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
        log(sim, place.node, at)
        if ends == "hang":
            return hang(sim, job, at + seconds(5), place.ranks, avoid=[place.node])
        if ends == "crash":
            return crash(sim, job, at + seconds(2), place.rank, None, exit_code=-7, avoid=[place.node])
        return restart_job(sim, job, at + timedelta(minutes=4), [place.node], by_hand=True)

    return on_busy_gpu(kind, "host_fault", play, accepted=accepted)


def _machine_check(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    cpu, pid = sim.rng.randrange(96), job.pod_of(place.rank).pid(place.rank)
    sim.kernel(
        place.node, at,
        "mce: [Hardware Error]: Machine check events logged",
        f"mce: [Hardware Error]: CPU {cpu}: Machine Check: 0 Bank 7: bd80000000100134",
        "mce: [Hardware Error]: TSC 0 ADDR 10af3e5440 MISC 200001c0086",
        "mce: Uncorrected hardware memory error in user-access at 10af3e5440",
        f"Memory failure: 0x10af3e5: Sending SIGBUS to python3:{pid} due to hardware memory corruption",
        vital=True,
    )  # fmt: skip
    return crash(sim, job, at + seconds(2), place.rank, None, exit_code=-7, avoid=[place.node])


def _uncorrected_memory(sim: Simulation, node: Node, at: datetime) -> None:
    sim.kernel(
        node, at,
        "EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 "
        "(channel:0 slot:0 page:0x8a5e1f offset:0x240 grain:32)",
        "Memory failure: 0x8a5e1f: recovery action for dirty LRU page: Recovered",
        vital=True,
    )  # fmt: skip


def _lockup(sim: Simulation, node: Node, at: datetime) -> None:
    cpu = sim.rng.randrange(96)
    for number, stuck_s in enumerate((23, 49, 75)):
        text = f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for {stuck_s}s! [python3:{30_000 + cpu}]"
        sim.kernel(node, at + seconds(26 * number), text, vital=True)
    sim.kernel(node, at + seconds(60), f"rcu: INFO: rcu_sched self-detected stall on CPU {cpu}")


def _read_only(sim: Simulation, node: Node, at: datetime) -> None:
    text = "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"
    sim.kernel(
        node, at,
        "EXT4-fs error (device nvme0n1p2): ext4_journal_check_start:83: comm containerd: Detected aborted journal",
        text,
        vital=True,
    )  # fmt: skip
    moment = at + seconds(sim.rng.uniform(5, 40))
    sim.event(
        moment, "Node", node.name, "FilesystemIsReadOnly", text, component="kernel-monitor", host=node.name
    )


def _disk(sim: Simulation, node: Node, at: datetime) -> None:
    sim.kernel(
        node, at,
        "nvme nvme1: I/O tag 114 (1072) opcode 0x1 (I/O Cmd) QID 12 timeout, aborting req_op:WRITE(1) size:131072",
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        vital=True,
    )  # fmt: skip
    sim.kernel(
        node, at + seconds(31),
        "nvme nvme1: Disabling device after reset failure: -19",
        "I/O error, dev nvme1n1, sector 190287616 op 0x1:(WRITE) flags 0x800 phys_seg 16 prio class 2",
        vital=True,
    )  # fmt: skip


def _bus_error(sim: Simulation, node: Node, at: datetime) -> None:
    sim.kernel(
        node, at,
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        "nvme 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
        "pcieport 0000:40:01.1: AER: device recovery failed",
        vital=True,
    )  # fmt: skip


def _spot(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """A cloud takes a host back: a notice two minutes before, then the host is gone."""
    node, gone = place.node, at + timedelta(minutes=2)
    text = f"Spot ITN received. Instance will be interrupted at {gone:%Y-%m-%dT%H:%M:%SZ}"
    sim.event(
        at, "Node", node.name, "SpotInterruption", text, component="aws-node-termination-handler", vital=True
    )
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
    sim.show_node(node, at + seconds(2), spec={"unschedulable": True, "taints": [taint]})
    until = _abort(sim, place, job, at + seconds(20))
    sim.not_ready(node, gone + seconds(sim.rng.uniform(*GRACE_S)))
    return max(until, gone + timedelta(minutes=2))


PANIC = (
    "BUG: unable to handle page fault for address: ffffa1c2e4b51000",
    "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "Kernel panic - not syncing: Fatal exception in interrupt",
)

KINDS: dict[str, Kind] = {
    "node_panic": _dead("node_panic", PANIC),
    "node_power_off": _dead("node_power_off"),
    "host_machine_check": on_busy_gpu("host_machine_check", "host_fault", _machine_check),
    "host_memory": _host("host_memory", _uncorrected_memory, ends="crash"),
    "host_lockup": _host("host_lockup", _lockup, ends="hang", accepted=("silent_node", "node_down")),
    "host_read_only": _host("host_read_only", _read_only, ends="goes on"),
    "host_disk": _host("host_disk", _disk, ends="goes on"),
    "host_bus_error": _host("host_bus_error", _bus_error, ends="goes on"),
    "spot_notice": on_busy_gpu("spot_notice", "preemption", _spot),
}
