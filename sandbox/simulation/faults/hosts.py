"""Faults of hosts: panics, power, processors, memory, disks, and notices that a host will be taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sandbox.simulation.faults.kinds import FaultPlace, Kind, some_gpu, write_down
from sandbox.simulation.job_failure import again, crash, hang, retries, teardown
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS
from sandbox.simulation.truth import TrueRoot

GRACE_S = (40.0, 58.0)
"""Until the node controller gives up a silent kubelet: 40 s, 50 s from Kubernetes 1.32 on, and its own period."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _ranks(place: FaultPlace) -> range:
    assert place.job is not None
    first = place.job.nodes.index(place.node) * GPUS
    return range(first, first + GPUS)


def _dead(kind: str, last_words: Iterable[str]) -> Kind:
    """A host stops at once. Its peers' sends go unanswered (after the transport's own timeout), or their watchdogs speak."""
    words = tuple(last_words)

    def play(stage: Stage, at: datetime) -> bool:
        place = some_gpu(stage, at, idle_share=0)
        if place is None or place.job is None:
            return False
        if words and stage.rng.random() < 0.7:  # the end of the log may not leave the machine
            stage.kernel(place.node, at, *words)
        stage.not_ready(place.node, at + _seconds(stage.rng.uniform(*GRACE_S)))
        nodes = place.job.nodes
        dead = list(_ranks(place))
        if stage.rng.random() < 0.6:
            retries(stage, place.job, at, dead)
            until = crash_all(stage, place, at + _seconds(stage.rng.uniform(30, 45)))
        else:
            until = hang(stage, place.job, at, dead, avoid=[place.node])
        write_down(
            stage, kind, at, until, "node_down", TrueRoot(node=place.node.name),
            jobs=[place.job], nodes=nodes, may_cordon=[place.node],
        )  # fmt: skip
        return True

    return play


def crash_all(stage: Stage, place: FaultPlace, at: datetime) -> datetime:
    """Everybody gives up because a peer does not answer; the dead host itself says nothing more."""
    assert place.job is not None
    teardown(stage, place.job, at, spared=_ranks(place))
    return again(stage, place.job, at + _seconds(10), [place.node])


def _host(
    kind: str,
    tell: Callable[[Stage, FaultPlace, datetime], None],
    *,
    ends: str,
    accepted: tuple[str, ...] = (),
) -> Kind:
    """A host gets ill and says so. `ends`: its ranks hang, one of them dies, or the job goes on until a person moves it."""

    def play(stage: Stage, at: datetime) -> bool:
        place = some_gpu(stage, at, idle_share=0)
        if place is None or place.job is None:
            return False
        nodes, job = place.job.nodes, place.job
        tell(stage, place, at)
        if ends == "hang":
            until = hang(stage, job, at + _seconds(5), list(_ranks(place)), avoid=[place.node])
        elif ends == "crash":
            until = crash(stage, job, at + _seconds(2), place.rank, None, exit_code=-7, avoid=[place.node])
        else:
            until = again(stage, job, at + timedelta(minutes=4), [place.node])
        write_down(
            stage, kind, at, until, "host_fault", TrueRoot(node=place.node.name),
            jobs=[job], nodes=nodes, may_cordon=[place.node], accepted=accepted,
        )  # fmt: skip
        return True

    return play


def _machine_check(stage: Stage, place: FaultPlace, at: datetime) -> None:
    cpu, assert_job = stage.rng.randrange(96), place.job
    assert assert_job is not None
    pid = assert_job.pod_of(place.rank).pid(place.rank)
    stage.kernel(
        place.node, at,
        "mce: [Hardware Error]: Machine check events logged",
        f"mce: [Hardware Error]: CPU {cpu}: Machine Check: 0 Bank 7: bd80000000100134",
        "mce: [Hardware Error]: TSC 0 ADDR 10af3e5440 MISC 200001c0086",
        "mce: Uncorrected hardware memory error in user-access at 10af3e5440",
        f"Memory failure: 0x10af3e5: Sending SIGBUS to python3:{pid} due to hardware memory corruption",
        vital=True,
    )  # fmt: skip


def _uncorrected_memory(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.kernel(
        place.node, at,
        "EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 "
        "(channel:0 slot:0 page:0x8a5e1f offset:0x240 grain:32)",
        "Memory failure: 0x8a5e1f: recovery action for dirty LRU page: Recovered",
        vital=True,
    )  # fmt: skip


def _lockup(stage: Stage, place: FaultPlace, at: datetime) -> None:
    cpu = stage.rng.randrange(96)
    for number, seconds in enumerate((23, 49, 75)):
        text = f"watchdog: BUG: soft lockup - CPU#{cpu} stuck for {seconds}s! [python3:{30_000 + cpu}]"
        stage.kernel(place.node, at + _seconds(26 * number), text, vital=True)
    stall = f"rcu: INFO: rcu_sched self-detected stall on CPU {cpu}"
    stage.kernel(place.node, at + _seconds(60), stall)


def _read_only(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.kernel(
        place.node, at,
        "EXT4-fs error (device nvme0n1p2): ext4_journal_check_start:83: comm containerd: Detected aborted journal",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
        vital=True,
    )  # fmt: skip
    moment = at + _seconds(stage.rng.uniform(5, 40))
    text = "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"
    stage.event(
        moment,
        "Node",
        place.node.name,
        "FilesystemIsReadOnly",
        text,
        component="kernel-monitor",
        host=place.node.name,
    )


def _disk(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.kernel(
        place.node, at,
        "nvme nvme1: I/O tag 114 (1072) opcode 0x1 (I/O Cmd) QID 12 timeout, aborting req_op:WRITE(1) size:131072",
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        vital=True,
    )  # fmt: skip
    text = "I/O error, dev nvme1n1, sector 190287616 op 0x1:(WRITE) flags 0x800 phys_seg 16 prio class 2"
    stage.kernel(
        place.node,
        at + _seconds(31),
        "nvme nvme1: Disabling device after reset failure: -19",
        text,
        vital=True,
    )


def _bus_error(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.kernel(
        place.node, at,
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        "nvme 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
        "pcieport 0000:40:01.1: AER: device recovery failed",
        vital=True,
    )  # fmt: skip


def _spot(stage: Stage, at: datetime) -> bool:
    """A cloud takes a host back: a notice two minutes before, then the host is gone."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    node, job = place.node, place.job
    nodes = job.nodes
    gone = at + timedelta(minutes=2)
    text = f"Spot ITN received. Instance will be interrupted at {gone:%Y-%m-%dT%H:%M:%SZ}"
    stage.event(
        at, "Node", node.name, "SpotInterruption", text, component="aws-node-termination-handler", vital=True
    )
    taint = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
    stage.node_changes(node, at + _seconds(2), spec={"unschedulable": True, "taints": [taint]})
    until = crash_all(stage, place, at + _seconds(20))
    stage.not_ready(node, gone + _seconds(stage.rng.uniform(*GRACE_S)))
    write_down(
        stage, "spot_notice", at, max(until, gone + timedelta(minutes=2)), "preemption", TrueRoot(node=node.name),
        jobs=[job], nodes=nodes, may_cordon=[node],
    )  # fmt: skip
    return True


PANIC = (
    "BUG: unable to handle page fault for address: ffffa1c2e4b51000",
    "Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "Kernel panic - not syncing: Fatal exception in interrupt",
)

KINDS: dict[str, Kind] = {
    "node_panic": _dead("node_panic", PANIC),
    "node_power_off": _dead("node_power_off", ()),
    "host_machine_check": _host("host_machine_check", _machine_check, ends="crash"),
    "host_memory": _host("host_memory", _uncorrected_memory, ends="crash"),
    "host_lockup": _host("host_lockup", _lockup, ends="hang", accepted=("silent_node", "node_down")),
    "host_read_only": _host("host_read_only", _read_only, ends="goes on"),
    "host_disk": _host("host_disk", _disk, ends="goes on"),
    "host_bus_error": _host("host_bus_error", _bus_error, ends="goes on"),
    "spot_notice": _spot,
}
