"""A large cluster and what its detector says on a bad day: faults with everything that follows from them, and look-alikes.

Shapes and amounts are those of real reports: a lost GPU brings its XID, the recovery action, clean-up codes from every process
that is torn down, and, a collective's timeout later, one watchdog line from each rank that waited for it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from streams.model.entity import Entity, Gpu, JobRef, PodRef
from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, PodFact
from streams.model.signal import MAX_BATCH, Attribute, Evidence, Severity, Signal, SignalState, signal

CLUSTER = "bench"
GPUS = 8
NICS = 8
NODES_A_LEAF = 32
BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

_CODES: dict[int, tuple[str, str, str]] = {
    31: ("FIFO_ERROR_MMU_ERR_FLT", "restart_app", "application"),
    43: ("RESETCHANNEL_VERIF", "ignore", "application"),
    45: ("PREEMPTIVE_REMOVAL", "workflow_xid_45", "application"),
    48: ("GPU_ECC_DBE", "workflow_xid_48", "gpu_memory"),
    63: ("ROW_REMAP", "ignore", "gpu_memory"),
    79: ("GPU_HAS_FALLEN_OFF_THE_BUS", "restart_bm", "gpu_off_bus"),
    119: ("GSP_RPC_TIMEOUT", "reset_gpu", "gpu_fault"),
    154: ("GPU_RECOVERY_ACTION_CHANGED", "none", "gpu_fault"),
}
_HARDWARE = ((79, "gpu_off_bus"), (48, "gpu_memory"), (119, "gpu_fault"))


def moment(seconds: float) -> datetime:
    """Seconds after the beginning."""
    return BEGIN + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Fault:
    """One injected fault: its truth, and what is said because of it."""

    family: str
    node: str | None
    job: str
    signals: list[Signal]


@dataclass
class Cluster:
    """Nodes of eight GPUs and as many NICs, and jobs with a pod on each of their nodes."""

    nodes: int
    jobs: int
    nodes_a_job: int
    seed: int = 20261121
    nics: int = NICS
    """Cables of a node that are in the inventory."""
    _offset: int = 0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        if self.jobs * self.nodes_a_job > self.nodes:
            raise ValueError("a node takes one job")
        self.chance = random.Random(self.seed)

    def node(self, number: int) -> str:
        """A node's name."""
        return f"gpu-{number:05d}"

    def members(self, job: int) -> list[str]:
        """The nodes of a job, by the number of their pod."""
        return [self.node(job * self.nodes_a_job + i) for i in range(self.nodes_a_job)]

    @staticmethod
    def job(number: int) -> JobRef:
        """A job's name."""
        return JobRef("PyTorchJob", "train", f"run-{number:04d}", f"uid-run-{number:04d}")

    def facts(self) -> Iterator[Fact]:
        """The inventory: nodes, cables, jobs and their pods."""
        long_ago = moment(-7200)
        for number in range(self.nodes):
            name, leaf = self.node(number), f"leaf-{number // NODES_A_LEAF:03d}"
            yield NodeFact(CLUSTER, name, f"uid-{name}", long_ago, ready_since=long_ago, gpus=GPUS, leaf=leaf)
            for nic in range(self.nics):
                port = f"Ethernet{(number % NODES_A_LEAF) * NICS + nic}"
                yield LinkFact(CLUSTER, leaf, port, long_ago, node=name, nic=f"mlx5_{nic}")
        for number in range(self.jobs):
            job, members = self.job(number), self.members(number)
            yield JobFact(CLUSTER, job, long_ago, pods=len(members), world=len(members) * GPUS)
            for i, name in enumerate(members):
                yield PodFact(
                    CLUSTER,
                    "train",
                    f"{job.name}-worker-{i}",
                    f"uid-{job.name}-{i}",
                    long_ago,
                    node=name,
                    job=job,
                    phase="Running",
                    ready=True,
                    gpus=GPUS,
                    rank=i * GPUS,
                    ranks=GPUS,
                    scheduled_at=long_ago,
                )

    # Faults.

    def fault(self, number: int, job: int, seconds: float) -> Fault:
        """The next of all kinds of faults, that hits this job."""
        kinds = (self.lost_gpu, self.silent_node, self.own_code, self.lost_gpu, self.storm)
        return kinds[number % len(kinds)](job, seconds)

    def lost_gpu(self, job: int, seconds: float) -> Fault:
        """A GPU fails; its ranks die and everybody else waits for them."""
        code, family = self.chance.choice(_HARDWARE)
        members = self.members(job)
        victim = self.chance.randrange(len(members))
        index = self.chance.randrange(GPUS)
        node = members[victim]
        said = [self.xid(node, index, code, seconds + 0.2 * i) for i in range(3)]
        said.append(self.xid(node, index, 154, seconds + 1, action="reset_gpu"))
        silent = range(victim * GPUS, victim * GPUS + GPUS)
        waiting = [rank for rank in range(len(members) * GPUS) if rank not in silent]
        said += self.timeouts(job, waiting, seconds + 600)
        said += self.teardown(members, seconds + 601)
        return Fault(family, node, self.job(job).name, said)

    def silent_node(self, job: int, seconds: float) -> Fault:
        """A node's ranks stop without a word of the hardware."""
        members = self.members(job)
        victim = self.chance.randrange(len(members))
        waiting = [rank for rank in range(len(members) * GPUS) if rank // GPUS != victim]
        said = self.timeouts(job, waiting, seconds + 600)
        said += [self.summary(job, rank, seconds + 602) for rank in waiting]
        said += self.teardown([m for m in members if m != members[victim]], seconds + 603)
        return Fault("silent_node", members[victim], self.job(job).name, said)

    def own_code(self, job: int, seconds: float) -> Fault:
        """A kernel of the job reads where it must not, on every node."""
        members = self.members(job)
        said = [
            self.xid(node, index, 31, seconds + 0.05 * i)
            for i, node in enumerate(members)
            for index in range(GPUS)
        ]
        said += self.teardown(members, seconds + 2)
        return Fault("application", None, self.job(job).name, said)

    def storm(self, job: int, seconds: float) -> Fault:
        """A NIC pauses its switch without end; the job's ranks fail on the network."""
        members = self.members(job)
        victim, nic = self.chance.randrange(len(members)), self.chance.randrange(NICS)
        node = members[victim]
        number = int(node.rpartition("-")[2])
        leaf, port = f"leaf-{number // NODES_A_LEAF:03d}", f"Ethernet{(number % NODES_A_LEAF) * NICS + nic}"
        said = [self.paused_port(leaf, port, seconds + 5 * i) for i in range(4)]
        said += [self.pause(node, nic, "sent", seconds + 15 * i) for i in range(1, 4)]
        said += [
            self.pause(name, self.chance.randrange(NICS), "received", seconds + 15 + 0.1 * i)
            for i, name in enumerate(members)
            if name != node
        ]
        said += [self.network_error(job, rank, seconds + 40) for rank in range(len(members) * GPUS)]
        return Fault("pfc_storm", node, self.job(job).name, said)

    def look_alike(self, number: int, seconds: float) -> list[Signal]:
        """What looks like a fault and is none, on one node. Only one node of a job has a lone code: on two it is a fault."""
        node = self.node(number)
        match self.chance.randrange(5) if number % self.nodes_a_job else 5:
            case 0:  # a kubelet restarts
                return [self.readiness(node, seconds, ready=False), self.readiness(node, seconds + 12)]
            case 1:  # a process was killed
                return [self.xid(node, index, 45, seconds) for index in range(GPUS)]
            case 2:  # rows are remapped: it is what they are for
                return [self.xid(node, self.chance.randrange(GPUS), 63, seconds)]
            case 3:  # a busy receiver is told to wait
                return [self.pause(node, self.chance.randrange(NICS), "received", seconds)]
            case 5:  # one process ended
                return [self.xid(node, self.chance.randrange(GPUS), 43, seconds)]
            case _:  # a burst on a port, restored at once
                leaf, port = f"leaf-{number // NODES_A_LEAF:03d}", f"Ethernet{number % NODES_A_LEAF * NICS}"
                cleared = self.paused_port(leaf, port, seconds + 0.3, cleared=True)
                return [self.paused_port(leaf, port, seconds), cleared]

    # Single signals.

    def teardown(self, members: Sequence[str], seconds: float) -> list[Signal]:
        """Every process that is killed leaves a code on its GPU."""
        return [
            self.xid(node, index, 45 if index % 4 else 43, seconds + 0.1 * index)
            for node in members
            for index in range(GPUS)
        ]

    def xid(self, node: str, index: int, code: int, seconds: float, *, action: str = "") -> Signal:
        """A kernel line."""
        mnemonic, usual, family = _CODES[code]
        gpu = Gpu(pci=f"0000:{0x10 + index:02x}:00")
        attributes: dict[str, Attribute] = {
            "xid": code,
            "mnemonic": mnemonic,
            "action": action or usual,
            "family": family,
            "pid": self.chance.randrange(1000, 60000),
        }
        text = (
            f"NVRM: Xid (PCI:{gpu.pci}): {code}, pid={attributes['pid']}, name=python3, channel 0x{index:08x}"
        )
        return self._signal("gpu.xid", Entity(CLUSTER, node=node, gpu=gpu), seconds, attributes, text)

    def timeouts(self, job: int, ranks: Iterable[int], seconds: float) -> list[Signal]:
        """The watchdogs of these ranks, within two seconds."""
        return [self.timeout(job, rank, seconds + 2 * self.chance.random()) for rank in ranks]

    def timeout(self, job: int, rank: int, seconds: float) -> Signal:
        """A watchdog line in the pod's own log."""
        attributes: dict[str, Attribute] = {
            "rank": rank,
            "pg": "0",
            "seq": 4711,
            "op": "ALLREDUCE",
            "timeout_ms": 600000,
            "elapsed_ms": 600000 + self.chance.randrange(900),
        }
        text = (
            f"[rank{rank}]:[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, Timeout(ms)=600000) ran for {attributes['elapsed_ms']} ms"
        )
        return self._signal("nccl.timeout", self._rank(job, rank), seconds, attributes, text)

    def summary(self, job: int, rank: int, seconds: float) -> Signal:
        """How far a rank had come, told on its way out."""
        attributes: dict[str, Attribute] = {
            "rank": rank,
            "pg": "0",
            "seq": 4711,
            "last_enqueued": 4714,
            "last_completed": 4710,
            "subtype": "summary",
        }
        text = f"[rank{rank}]: last enqueued work: 4714, last completed work: 4710"
        return self._signal("nccl.timeout", self._rank(job, rank), seconds, attributes, text)

    def network_error(self, job: int, rank: int, seconds: float) -> Signal:
        """A completion with an error."""
        attributes: dict[str, Attribute] = {"rank": rank, "status": 12}
        text = "NET/IB : Got completion from peer 10.0.0.7<4791> with status=12 opcode=0 len=0 vendor err 129"
        when = seconds + 2 * self.chance.random()
        return self._signal("nccl.error", self._rank(job, rank), when, attributes, text)

    def progress(self, job: int, seconds: float) -> Signal:
        """An iteration line of the job's first pod."""
        pod = PodRef("train", f"{self.job(job).name}-worker-0")
        attributes: dict[str, Attribute] = {"step": int(seconds) + 10000}
        return self._signal(
            "job.progress", Entity(CLUSTER, pod=pod), seconds, attributes, "", severity=Severity.INFO
        )

    def paused_port(self, switch: str, port: str, seconds: float, *, cleared: bool = False) -> Signal:
        """A PFC watchdog line of a switch."""
        attributes: dict[str, Attribute] = {"queue": 3, "direction": "received_by_switch"}
        entity = Entity(CLUSTER, switch=switch, port=port)
        text = f"PFC Watchdog detected PFC storm on port {port}, queue index 3"
        return self._signal("fabric.pfc_storm", entity, seconds, attributes, text, cleared=cleared)

    def pause(self, node: str, nic: int, direction: str, seconds: float) -> Signal:
        """A host's own counter."""
        attributes: dict[str, Attribute] = {"priority": 3, "direction": direction, "fraction": 0.97}
        entity = Entity(CLUSTER, node=node, nic=f"mlx5_{nic}")
        return self._signal("fabric.pfc_storm", entity, seconds, attributes, "")

    def readiness(self, node: str, seconds: float, *, ready: bool = True) -> Signal:
        """An event of the API server."""
        attributes: dict[str, Attribute] = {"reason": "NodeReady" if ready else "NodeNotReady"}
        entity = Entity(CLUSTER, node=node)
        return self._signal("node.not_ready", entity, seconds, attributes, "", cleared=ready)

    def _rank(self, job: int, rank: int) -> Entity:
        pod = PodRef("train", f"{self.job(job).name}-worker-{rank // GPUS}")
        return Entity(CLUSTER, pod=pod, rank=rank)

    def _signal(
        self,
        kind: str,
        entity: Entity,
        seconds: float,
        attributes: dict[str, Attribute],
        text: str,
        *,
        cleared: bool = False,
        severity: Severity = Severity.ERROR,
    ) -> Signal:
        self._offset += 1
        return signal(
            kind,
            entity,
            severity=severity,
            occurred_at=moment(seconds),
            observed_at=moment(seconds + 0.2 + 0.6 * self.chance.random()),
            state=SignalState.CLEARED if cleared else SignalState.FIRING,
            attributes=attributes,
            evidence=(Evidence("raw.node-logs", self._offset % 16, self._offset, text),),
        )


def bad_day(cluster: Cluster, faults: int, every_s: float) -> tuple[list[Fault], list[Signal]]:
    """Faults one after the other, each on a job of its own, with look-alikes and progress between; signals as observed."""
    hit = cluster.chance.sample(range(cluster.jobs), min(faults, cluster.jobs))
    injected = [cluster.fault(i, job, i * every_s) for i, job in enumerate(hit)]
    streams = [sorted(fault.signals, key=_observed) for fault in injected]
    until = faults * every_s + 700
    spare = range(cluster.jobs * cluster.nodes_a_job, cluster.nodes) or range(cluster.nodes)
    noise: list[Signal] = []
    for i in range(faults * 9):
        noise += cluster.look_alike(spare[i % len(spare)], until * cluster.chance.random())
    well = sorted(set(range(cluster.jobs)) - set(hit)) or [0]
    noise += [
        cluster.progress(cluster.chance.choice(well), until * i / (faults * 30)) for i in range(faults * 30)
    ]
    return injected, list(heapq.merge(*streams, sorted(noise, key=_observed), key=_observed))


def batches(signals: Sequence[Signal], size: int = MAX_BATCH) -> Iterator[Sequence[Signal]]:
    """Cut as the detector writes when it has much to tell."""
    return (signals[i : i + size] for i in range(0, len(signals), size))


def _observed(one: Signal) -> datetime:
    return one.observed_at
