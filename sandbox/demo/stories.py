"""What happens, story by story: the fault, everything that shows of it in logs, counters and events, and what must become true.

A scene is pure: who stands where goes in, records with their delays come out. Each holds more noise than signal on purpose:
symptoms on healthy nodes, messages shipped twice, old values that stick, and lines that only look like faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.demo import cluster_layout
from sandbox.demo.shippers import Record, RunningPod, event, kernel_line, pod_line, sample, switch_line

TIMEOUT_MS = 2000
"""The collective timeout of the demo's jobs. Real ones are 10 or 30 minutes, and the log says the same at its end."""
STORM_NIC = 4
PRIORITY = 3


@dataclass(frozen=True, slots=True)
class Cue:
    """A record and when it is due, in seconds after the story's first line."""

    after_s: float
    record: Record


@dataclass(frozen=True, slots=True)
class Scene:
    """One story with its parts given to pods and nodes.

    `node` is the culprit, None for the application's fault; `job` the job that stands still; `unharmed` are jobs that have
    symptoms and must not be touched. The culprit breaks with the first line.
    """

    name: str
    title: str
    family: str
    job: str
    node: str | None
    cues: tuple[Cue, ...]
    unharmed: tuple[str, ...] = ()


def gpu_off_the_bus(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """XID 79 on one GPU; XID 43 and 45 and timeouts on every rank of the job follow from it."""
    mine = _of(pods, job)
    culprit, gpu = mine[2], 4
    address = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}"
    lost = f"NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    serial = uuid.uuid5(uuid.NAMESPACE_DNS, culprit.node)
    node = culprit.node
    cues = [
        *_kernel(
            node,
            begin,
            (0.0, f"NVRM: GPU at PCI:{address}: GPU-{serial}"),
            (0.0, lost),
            (0.01, f"NVRM: GPU {address}.0: GPU has fallen off the bus."),
            (0.02, f"NVRM: GPU {address}.0: GPU serial number is 1650000000000."),
            (
                0.4,
                f"NVRM: Xid (PCI:{address}): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed "
                "from 0x0 (None) to 0x2 (Node Reboot Required)",
            ),
        ),
        Cue(0.9, kernel_line(node, lost, begin)),  # the same line once more: a shipper that reconnected
        _says(culprit, _cuda_error(culprit.rank + gpu, "unspecified launch failure"), begin, 0.5),
        *_sticky_xids(node, begin),
        *_timeouts(mine, begin, seq=40_318, op="ALLREDUCE", silent={culprit.rank + gpu}),
    ]
    for pod in mine:
        cues += _teardown(pod, begin + timedelta(milliseconds=TIMEOUT_MS), after_s=TIMEOUT_MS / 1000 + 0.4)
    title = f"GPU {address} of {node} falls off the bus under {job}"
    return Scene("gpu", title, "gpu_off_bus", job, node, tuple(cues))


def silent_node(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """A node stops in the middle of a collective and says nothing; all other ranks time out."""
    mine = _of(pods, job)
    culprit = mine[1]
    quiet = set(range(culprit.rank, culprit.rank + cluster_layout.GPUS))
    cues = _timeouts(mine, begin, seq=118_204, op="_ALLGATHER_BASE", silent=quiet)
    for pod in (mine[0], mine[3]):
        cues += _kernel(pod.node, begin, (0.3, _peermem()), (0.9, _access_reg()), (1.4, _access_reg()))
    title = f"{culprit.node} goes silent in the middle of a collective of {job}"
    return Scene("silent", title, "silent_node", job, culprit.node, tuple(cues))


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
        _logs(leaf, f"startWdActionOnQueue: {watchdog}", begin, 0.0),
        _logs(leaf, "doTask: Get port statistics took 212 ms", begin, 0.2),
    ]
    near = [pod for pod in pods if pod.node in cluster_layout.neighbours(node) and pod.job != job]
    for tick in range(8):
        cues += _pauses(node, "transmitted", tick, begin, stormed=True)
        for other in cluster_layout.neighbours(node):
            cues += _pauses(other, "received", tick, begin, stormed=any(pod.node == other for pod in near))
    for pod in near:
        cues.append(_says(pod, _retry_exceeded(pod, mine[2]), begin, 1.0 + pod.rank % 3 * 0.2))
    for pod in mine:
        cues += _kernel(pod.node, begin, (0.7, _access_reg()))
    title = f"NIC mlx5_{STORM_NIC} of {node} storms {leaf} with pause frames"
    unharmed = tuple(sorted({pod.job for pod in near}))
    return Scene("pfc", title, "pfc_storm", job, node, tuple(cues), unharmed)


def application_fault(pods: Sequence[RunningPod], job: str, begin: datetime) -> Scene:
    """The same illegal address on every node of one job: its own code."""
    cues: list[Cue] = []
    for place, pod in enumerate(_of(pods, job)):
        gpu = (place * 3) % cluster_layout.GPUS
        address, pid = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}", 40_000 + pod.rank * 11
        fault = (
            f"NVRM: Xid (PCI:{address}): 31, pid={pid}, name=python3, channel 0x00000007, intr 00000000. MMU Fault: "
            "ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7f21_5a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        )
        cleanup = f"NVRM: Xid (PCI:{address}): 43, pid={pid}, name=python3, Ch 00000007"
        cues += _kernel(
            pod.node, begin, (0.1 * place, fault), (0.1 * place + 0.3, cleanup), (1.2, _peermem())
        )
        words = _cuda_error(pod.rank + gpu, "an illegal memory access was encountered")
        cues.append(_says(pod, words, begin, 0.1 * place + 0.5))
    title = f"{job} reads an illegal address on all of its nodes"
    return Scene("application", title, "application", job, None, tuple(cues))


def background(begin: datetime) -> list[Record]:
    """What a healthy cluster says all the time, and one record that no one can read."""
    records = [
        kernel_line(node, _access_reg(), begin)
        for node in cluster_layout.node_names()
        if int(node[-2:]) % 5 == 0
    ]
    for node in cluster_layout.node_names():
        records += [cue.record for cue in _pauses(node, "transmitted", 0, begin, stormed=False)]
        records += [cue.record for cue in _pauses(node, "received", 0, begin, stormed=False)]
    cut = kernel_line("gpu-16", "usb 1-1: new high-speed USB device number 4 using xhci_hcd", begin)
    return [*records, Record(cut.topic, cut.key, cut.value[:-17])]


def _of(pods: Sequence[RunningPod], job: str) -> list[RunningPod]:
    return sorted((pod for pod in pods if pod.job == job), key=lambda pod: pod.rank)


def _says(pod: RunningPod, text: str, begin: datetime, after_s: float) -> Cue:
    return Cue(after_s, pod_line(pod, text, begin + timedelta(seconds=after_s)))


def _logs(switch: str, text: str, begin: datetime, after_s: float) -> Cue:
    return Cue(after_s, switch_line(switch, text, begin + timedelta(seconds=after_s)))


def _kernel(node: str, begin: datetime, *lines: tuple[float, str]) -> list[Cue]:
    return [
        Cue(after_s, kernel_line(node, text, begin + timedelta(seconds=after_s))) for after_s, text in lines
    ]


def _timeouts(
    pods: Sequence[RunningPod], begin: datetime, *, seq: int, op: str, silent: set[int]
) -> list[Cue]:
    """The watchdog lines of every rank that can still speak, and its summary, a little apart."""
    cues = []
    for pod in pods:
        for rank in range(pod.rank, pod.rank + cluster_layout.GPUS):
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
    """Channels that are torn down when a job aborts: on every healthy node of it."""
    cues = []
    for gpu in (0, 5):
        address, pid = f"0000:{cluster_layout.NVIDIA_PCI[gpu]}", 30_000 + pod.rank * 7 + gpu
        for code, extra_s in ((43, 0.0), (45, 0.1)):
            at = begin + timedelta(seconds=0.4 + extra_s)
            text = f"NVRM: Xid (PCI:{address}): {code}, pid={pid}, name=python3, Ch 0000000{gpu}"
            cues.append(Cue(after_s + extra_s, kernel_line(pod.node, text, at)))
    return cues


def _sticky_xids(culprit: str, begin: datetime) -> list[Cue]:
    """DCGM shows each GPU's last code for ever: an old 43 here and there, on nodes that have nothing to do with it."""
    cues = []
    for node in ("gpu-13", "gpu-14"):
        if node == culprit:
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
    labels = {
        "device": f"mlx5_{STORM_NIC}",
        "instance": f"{node}:9100",
        "job": "node-exporter",
    }
    name = f"node_ethtool_{way}_prio{PRIORITY}_pause_duration"
    return [Cue(float(tick), sample(name, value, labels, at))]


def _retry_exceeded(pod: RunningPod, peer: RunningPod) -> str:
    return (
        f"{pod.name}:218:944 [{STORM_NIC}] net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer {peer.ip}<41022> with "
        f"status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{pod.ip} remoteGids::ffff:{peer.ip} hca mlx5_{STORM_NIC}"
    )


def _cuda_error(rank: int, what: str) -> str:
    return f"[rank{rank}]: RuntimeError: CUDA error: {what}"


def _access_reg() -> str:
    return (
        "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed, "
        "status bad operation(0x2), syndrome (0x305684), err(-22)"
    )


def _peermem() -> str:
    return "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"


def not_schedulable(node: str, at: datetime) -> Record:
    """The event that follows from a cordon, ours included."""
    text = f"Node {node} status is now: NodeNotSchedulable"
    return event("Node", "", node, "NodeNotSchedulable", text, at)
