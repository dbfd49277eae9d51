"""The demo's five faults, each with all it leaves in logs, counters and events, and what must be true at its end.

A scene is pure: pods and their nodes go in, records with their delays come out. Each has more noise than signal on purpose:
symptoms on healthy nodes, messages shipped twice, stale values, and lines that only look like faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.demo import cluster_layout
from sandbox.demo.shippers import Record, RunningPod, kernel_line, node_event, pod_line, sample, switch_line
from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.topology import GPUS

TIMEOUT_MS = 2000
"""The collective timeout of the demo's jobs. Real ones are 10 or 30 minutes, and the log says the same at its end."""
STORM_NIC = 4
PRIORITY = 3
HARMLESS = driver_logs.register_refused("0000:5c:00.0")


@dataclass(frozen=True, slots=True)
class Cue:
    """A record and when it is due, in seconds after the story's first line."""

    after_s: float
    record: Record


@dataclass(frozen=True, slots=True)
class Scene:
    """One story on given pods and nodes.

    `node` is the faulty one, None for the application's fault; `job` the job that stalls; `unharmed` are jobs that have
    symptoms and must not be touched. `asks` is whether its runbook asks a person first. The node breaks with the first line.
    """

    name: str
    title: str
    family: str
    job: str
    node: str | None
    cues: tuple[Cue, ...]
    unharmed: tuple[str, ...] = ()
    asks: bool = False


def gpu_off_the_bus(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """XID 79 on one GPU; XID 43 and 45 and timeouts on every rank of the job follow from it."""
    mine = _of(pods, job)
    faulty, gpu = mine[2], 4
    address = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}"
    lost = f"NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    recovery = (
        f"NVRM: Xid (PCI:{address}): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed "
        "from 0x0 (None) to 0x2 (Node Reboot Required)"
    )
    serial = uuid.uuid5(uuid.NAMESPACE_DNS, faulty.node)
    node = faulty.node
    cues = [
        *_kernel(
            node,
            begin,
            (0.0, f"NVRM: GPU at PCI:{address}: GPU-{serial}"),
            (0.0, lost),
            (0.01, f"NVRM: GPU {address}.0: GPU has fallen off the bus."),
            (0.02, f"NVRM: GPU {address}.0: GPU serial number is 1650000000000."),
            (0.4, recovery),
        ),
        Cue(0.9, kernel_line(node, lost, begin)),  # the same line once more: a shipper that reconnected
        _pod_log(
            faulty, framework_logs.cuda_error(faulty.rank + gpu, "unspecified launch failure"), begin, 0.5
        ),
        *_sticky_xids(node, begin),
        *_timeouts(mine, begin, seq=40_318, op="ALLREDUCE", silent={faulty.rank + gpu}),
    ]
    for pod in mine:
        cues += _teardown(pod, begin + timedelta(milliseconds=TIMEOUT_MS), after_s=TIMEOUT_MS / 1000 + 0.4)
    title = f"GPU {address} of {node} falls off the bus under {job}"
    return Scene("gpu", title, "gpu_off_bus", job, node, tuple(cues))


def silent_node(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """A node stops in the middle of a collective and logs nothing; all other ranks time out."""
    mine = _of(pods, job)
    faulty = mine[1]
    quiet = set(range(faulty.rank, faulty.rank + GPUS))
    cues = _timeouts(mine, begin, seq=118_204, op="_ALLGATHER_BASE", silent=quiet)
    for pod in (mine[0], mine[3]):
        cues += _kernel(
            pod.node, begin, (0.3, driver_logs.PEERMEM_TEARDOWN), (0.9, HARMLESS), (1.4, HARMLESS)
        )
    title = f"{faulty.node} goes silent in the middle of a collective of {job}"
    return Scene("silent", title, "silent_node", job, faulty.node, tuple(cues))


def pfc_storm(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """One host's NIC pauses its switch without end; hosts of other jobs behind the same leaf are throttled."""
    mine = _of(pods, job)
    node = mine[2].node
    leaf, port = cluster_layout.leaf_of(node), cluster_layout.port_of(node, STORM_NIC)
    watchdog = (
        f"PFC Watchdog detected PFC storm on port {port}, queue index {PRIORITY}, "
        "queue id 0x150000000005bb and port id 0x1000000000003"
    )
    cues = [
        _switch_log(leaf, f"startWdActionOnQueue: {watchdog}", begin, 0.0),
        _switch_log(leaf, "doTask: Get port statistics took 212 ms", begin, 0.2),
    ]
    near = [pod for pod in pods if pod.node in cluster_layout.neighbours(node) and pod.job != job]
    for tick in range(8):
        cues += _pauses(node, "transmitted", tick, begin, stormed=True)
        for other in cluster_layout.neighbours(node):
            cues += _pauses(other, "received", tick, begin, stormed=any(pod.node == other for pod in near))
    for pod in near:
        cues.append(
            _pod_log(
                pod,
                framework_logs.retry_exceeded(pod.name, 218, STORM_NIC, pod.ip, mine[2].ip),
                begin,
                1.0 + pod.rank % 3 * 0.2,
            )
        )
    for pod in mine:
        cues += _kernel(pod.node, begin, (0.7, HARMLESS))
    title = f"NIC mlx5_{STORM_NIC} of {node} storms {leaf} with pause frames"
    unharmed = tuple(sorted({pod.job for pod in near}))
    return Scene("pfc", title, "pfc_storm", job, node, tuple(cues), unharmed)


def application_fault(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """The same illegal address on every node of one job: a bug in its own code."""
    cues: list[Cue] = []
    for place, pod in enumerate(_of(pods, job)):
        gpu = (place * 3) % GPUS
        address, pid = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}", 40_000 + pod.rank * 11
        fault = (
            f"NVRM: Xid (PCI:{address}): 31, pid={pid}, name=python3, channel 0x00000007, intr 00000000. MMU Fault: "
            "ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7f21_5a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        )
        cleanup = f"NVRM: Xid (PCI:{address}): 43, pid={pid}, name=python3, Ch 00000007"
        cues += _kernel(
            pod.node,
            begin,
            (0.1 * place, fault),
            (0.1 * place + 0.3, cleanup),
            (1.2, driver_logs.PEERMEM_TEARDOWN),
        )
        words = framework_logs.cuda_error(pod.rank + gpu, "an illegal memory access was encountered")
        cues.append(_pod_log(pod, words, begin, 0.1 * place + 0.5))
    title = f"{job} reads an illegal address on all of its nodes"
    return Scene("application", title, "application", job, None, tuple(cues))


def host_memory(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """A memory module of a host fails and takes a rank along; nothing is done before a person has approved it."""
    mine = _of(pods, job)
    faulty = mine[1]
    node = faulty.node
    cues = [
        *_kernel(
            node,
            begin,
            (0.0, "mce: [Hardware Error]: Machine check events logged"),
            (0.0, "mce: [Hardware Error]: CPU 17: Machine Check: 0 Bank 7: bd80000000100134"),
            (0.0, "mce: Uncorrected hardware memory error in user-access at 10af3e5440"),
            (
                0.1,
                "Memory failure: 0x10af3e5: Sending SIGBUS to python3:41207 due to hardware memory corruption",
            ),
        ),
        *_timeouts(mine, begin, seq=52_907, op="ALLREDUCE", silent={faulty.rank + 2}),
    ]
    for pod in (mine[0], mine[2]):
        cues += _kernel(pod.node, begin, (0.4, driver_logs.PEERMEM_TEARDOWN), (0.8, HARMLESS))
    title = f"a memory module of {node} fails under {job}; its runbook asks a person"
    return Scene("memory", title, "host_fault", job, node, tuple(cues), asks=True)


def background(begin: datetime) -> list[Record]:
    """What a healthy cluster logs all the time, and one unreadable record."""
    records = [
        kernel_line(node, HARMLESS, begin) for node in cluster_layout.node_names() if int(node[-2:]) % 5 == 0
    ]
    for node in cluster_layout.node_names():
        records += [cue.record for cue in _pauses(node, "transmitted", 0, begin, stormed=False)]
        records += [cue.record for cue in _pauses(node, "received", 0, begin, stormed=False)]
    cut = kernel_line("gpu-16", "usb 1-1: new high-speed USB device number 4 using xhci_hcd", begin)
    return [*records, Record(cut.topic, cut.key, cut.value[:-17])]


def _of(pods: Sequence[RunningPod], job: str) -> list[RunningPod]:
    return sorted((pod for pod in pods if pod.job == job), key=lambda pod: pod.rank)


def _pod_log(pod: RunningPod, text: str, begin: datetime, after_s: float) -> Cue:
    return Cue(after_s, pod_line(pod, text, begin + timedelta(seconds=after_s)))


def _switch_log(switch: str, text: str, begin: datetime, after_s: float) -> Cue:
    return Cue(after_s, switch_line(switch, text, begin + timedelta(seconds=after_s)))


def _kernel(node: str, begin: datetime, *lines: tuple[float, str]) -> list[Cue]:
    return [
        Cue(after_s, kernel_line(node, text, begin + timedelta(seconds=after_s))) for after_s, text in lines
    ]


def _timeouts(
    pods: Sequence[RunningPod], begin: datetime, *, seq: int, op: str, silent: set[int]
) -> list[Cue]:
    """The watchdog lines of every rank that is not silent, and its summary, a little apart."""
    cues = []
    for pod in pods:
        for rank in range(pod.rank, pod.rank + GPUS):
            if rank in silent:
                continue
            after_s = TIMEOUT_MS / 1000 + 0.05 + rank % 7 * 0.03
            at = begin + timedelta(seconds=after_s)
            place = f"[rank{rank}]:[E{at:%m%d %H:%M:%S.%f}000 ProcessGroupNCCL.cpp:"
            group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
            ran_ms = TIMEOUT_MS + 11 + rank % 7 * 30
            caught = (
                f"{place}632] {group} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, "
                f"NumelIn=16777216, NumelOut=16777216, Timeout(ms)={TIMEOUT_MS}) ran for {ran_ms} milliseconds before timing out."
            )
            summary = (
                f"{place}1785] {group} Timeout at NCCL work: {seq}, last enqueued NCCL work: {seq}, "
                f"last completed NCCL work: {seq - 1}."
            )
            cues += [
                Cue(after_s, pod_line(pod, caught, at)),
                Cue(after_s + 0.05, pod_line(pod, summary, at + timedelta(milliseconds=50))),
            ]
    return cues


def _teardown(pod: RunningPod, begin: datetime, *, after_s: float) -> list[Cue]:
    """Channels torn down when a job aborts, on every node of it."""
    cues = []
    for gpu in (0, 5):
        address, pid = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}", 30_000 + pod.rank * 7 + gpu
        for code, extra_s in ((43, 0.0), (45, 0.1)):
            at = begin + timedelta(seconds=0.4 + extra_s)
            text = f"NVRM: Xid (PCI:{address}): {code}, pid={pid}, name=python3, Ch 0000000{gpu}"
            cues.append(Cue(after_s + extra_s, kernel_line(pod.node, text, at)))
    return cues


def _sticky_xids(faulty: str, begin: datetime) -> list[Cue]:
    """DCGM shows each GPU's last code for ever: an old 43 on nodes that have nothing to do with the fault."""
    cues = []
    for node in ("gpu-13", "gpu-14"):
        if node == faulty:
            continue
        labels = {
            "gpu": "2",
            "UUID": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, node + '/2')}",
            "pci_bus_id": f"00000000:{cluster_layout.NVIDIA_PCI[2].upper()}.0",
            "hostname": node,
        }
        for tick in range(2):
            at = begin + timedelta(seconds=tick)
            cues.append(Cue(float(tick), sample("DCGM_FI_DEV_XID_ERRORS", 43, labels, at)))
    return cues


def _pauses(node: str, way: str, tick: int, begin: datetime, *, stormed: bool) -> list[Cue]:
    """One scrape of a NIC's pause counters; under a storm it is paused nearly all of the time."""
    at = begin + timedelta(seconds=tick)
    base = 4_000_000.0 + tick * 120
    value = base + (tick * 980_000.0 if stormed else 0.0)
    labels = {"device": f"mlx5_{STORM_NIC}", "instance": f"{node}:9100", "job": "node-exporter"}
    name = f"node_ethtool_{way}_prio{PRIORITY}_pause_duration"
    return [Cue(float(tick), sample(name, value, labels, at))]


def not_schedulable(node: str, at: datetime) -> Record:
    """The event that follows from a cordon, ours included."""
    return node_event(node, "NodeNotSchedulable", f"Node {node} status is now: NodeNotSchedulable", at)
