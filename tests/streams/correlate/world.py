"""A small cluster to write stories in: nodes with eight GPUs, jobs with a pod on each of their nodes, signals at seconds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from streams.correlate import Changes, Config, Engine
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity, Gpu, JobRef, PodRef
from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Attribute, Evidence, Severity, Signal, SignalState, signal

CLUSTER = "east"
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
GPUS = 8

CODES: dict[int, tuple[str, str, str]] = {
    13: ("GR_EXCEPTION", "restart_app", "application"),
    31: ("FIFO_ERROR_MMU_ERR_FLT", "restart_app", "application"),
    43: ("RESETCHANNEL_VERIF", "ignore", "application"),
    45: ("PREEMPTIVE_REMOVAL", "workflow_xid_45", "application"),
    48: ("GPU_ECC_DBE", "workflow_xid_48", "gpu_memory"),
    63: ("ROW_REMAP", "ignore", "gpu_memory"),
    74: ("NVLINK_ERROR", "workflow_nvlink_err", "gpu_nvlink"),
    79: ("GPU_HAS_FALLEN_OFF_THE_BUS", "restart_bm", "gpu_off_bus"),
    94: ("CONTAINED_ERROR", "restart_app", "gpu_memory"),
    95: ("UNCONTAINED_ERROR", "reset_gpu", "gpu_memory"),
    119: ("GSP_RPC_TIMEOUT", "reset_gpu", "gpu_fault"),
    149: ("NVLINK_NETIR_ERROR", "workflow_nvlink5_err", "gpu_nvlink"),
    154: ("GPU_RECOVERY_ACTION_CHANGED", "none", "gpu_fault"),
    999: ("", "contact_support", "unknown"),
}


def at(seconds: float) -> datetime:
    """Seconds after the story's beginning."""
    return START + timedelta(seconds=seconds)


def job(name: str) -> JobRef:
    return JobRef("PyTorchJob", "train", name, f"uid-{name}")


def node_fact(name: str, *, since: float = -3600, ready: bool = True, **more: object) -> NodeFact:
    fact = NodeFact(CLUSTER, name, f"uid-{name}", at(since), ready=ready, gpus=GPUS)
    return replace(fact, **more)  # type: ignore[arg-type]


def pods(
    name: str, nodes: Sequence[str], *, since: float = -3000, attempt: int = 1, ranks: bool = True
) -> list[PodFact]:
    """A pod of eight ranks on each node, in order."""
    return [
        PodFact(
            CLUSTER,
            "train",
            f"{name}-worker-{i}",
            f"{name}-{i}-{attempt}",
            at(since),
            node=node,
            job=job(name),
            phase="Running",
            ready=True,
            gpus=GPUS,
            rank=i * GPUS if ranks else None,
            ranks=GPUS if ranks else None,
            scheduled_at=at(since),
        )
        for i, node in enumerate(nodes)
    ]


def all_ended(name: str, nodes: Sequence[str], seconds: float, phase: str = "Failed") -> list[PodFact]:
    """The pods of a job when they have ended."""
    return [
        replace(pod, ended_at=at(seconds), phase=phase, observed_at=at(seconds)) for pod in pods(name, nodes)
    ]


def cluster(jobs: dict[str, Sequence[str]], spare: Iterable[str] = ()) -> list[Fact]:
    """Facts of all nodes and pods of these jobs."""
    names = sorted({n for nodes in jobs.values() for n in nodes} | set(spare))
    facts: list[Fact] = [node_fact(n) for n in names]
    for name, nodes in sorted(jobs.items()):
        facts += [
            JobFact(CLUSTER, job(name), at(-3000), pods=len(nodes), world=len(nodes) * GPUS),
            *pods(name, nodes),
        ]
    return facts


def link(
    switch: str,
    port: str,
    node: str | None = None,
    nic: str | None = None,
    peer: str | None = None,
    peer_port: str | None = None,
    rack: str | None = None,
) -> LinkFact:
    return LinkFact(
        CLUSTER, switch, port, at(-3000), node=node, nic=nic, peer_switch=peer, peer_port=peer_port, rack=rack
    )


_offset = 0


def _signal(
    kind: str,
    entity: Entity,
    seconds: float,
    attributes: dict[str, Attribute],
    *,
    lag: float = 0.5,
    cleared: bool = False,
    severity: Severity = Severity.ERROR,
    text: str = "",
) -> Signal:
    global _offset
    _offset += 1
    return signal(
        kind,
        entity,
        severity=severity,
        occurred_at=at(seconds),
        observed_at=at(seconds + lag),
        state=SignalState.CLEARED if cleared else SignalState.FIRING,
        attributes=attributes,
        evidence=(Evidence("raw.node-logs", 0, _offset, text or f"{kind} {attributes}"),),
    )


def gpu(index: int) -> Gpu:
    return Gpu(pci=f"0000:{0x10 + index:02x}:00")


pci = gpu


def xid(
    node: str,
    code: int,
    seconds: float,
    *,
    index: int = 0,
    action: str | None = None,
    cleared: bool = False,
    **more: Attribute,
) -> Signal:
    mnemonic, usual, family = CODES[code]
    attributes: dict[str, Attribute] = {
        "xid": code,
        "mnemonic": mnemonic,
        "action": action or usual,
        "family": family,
        **more,
    }
    return _signal(
        "gpu.xid", Entity(CLUSTER, node=node, gpu=gpu(index)), seconds, attributes, cleared=cleared
    )


def off_bus(node: str, seconds: float, index: int | None = None) -> Signal:
    return _signal(
        "gpu.off_bus", Entity(CLUSTER, node=node, gpu=gpu(index) if index is not None else None), seconds, {}
    )


def timeout(
    name: str,
    rank: int,
    seconds: float,
    *,
    waited: float = 600,
    seq: int = 100,
    enqueued: int | None = None,
    pg: str = "0",
    op: str = "ALLREDUCE",
    lag: float = 0.5,
) -> Signal:
    """A watchdog line of one rank, in its own pod's log."""
    pod = PodRef("train", f"{name}-worker-{rank // GPUS}")
    attributes: dict[str, Attribute] = {
        "rank": rank,
        "pg": pg,
        "seq": seq,
        "op": op,
        "timeout_ms": int(waited * 1000),
        "elapsed_ms": int(waited * 1000) + 9,
    }
    if enqueued is not None:
        attributes["last_enqueued"] = enqueued
    return _signal("nccl.timeout", Entity(CLUSTER, pod=pod, rank=rank), seconds, attributes, lag=lag)


def summary(
    name: str, rank: int, seconds: float, *, enqueued: int, seq: int | None = None, pg: str = "0"
) -> Signal:
    pod = PodRef("train", f"{name}-worker-{rank // GPUS}")
    attributes: dict[str, Attribute] = {
        "rank": rank,
        "pg": pg,
        "last_enqueued": enqueued,
        "last_completed": enqueued - 1,
    }
    attributes["subtype"] = "summary" if seq is not None else "dump"
    if seq is not None:
        attributes["seq"] = seq
    return _signal("nccl.timeout", Entity(CLUSTER, pod=pod, rank=rank), seconds, attributes)


def nccl_error(name: str, rank: int, seconds: float) -> Signal:
    return rank_error(name, rank, seconds, {"status": 12})


def rank_error(name: str, rank: int, seconds: float, attributes: Mapping[str, Attribute]) -> Signal:
    """An error of NCCL or the store that one rank logs."""
    pod = PodRef("train", f"{name}-worker-{rank // GPUS}")
    return _signal("nccl.error", Entity(CLUSTER, pod=pod, rank=rank), seconds, {"rank": rank, **attributes})


def timeouts(name: str, ranks: Iterable[int], seconds: float, **more: object) -> list[Signal]:
    """The same watchdog line of many ranks, a tenth of a second apart."""
    return [timeout(name, r, seconds + 0.1 * i, **more) for i, r in enumerate(ranks)]  # type: ignore[arg-type]


def storm(switch: str, port: str, seconds: float, *, cleared: bool = False, **more: Attribute) -> Signal:
    return _signal(
        "fabric.pfc_storm",
        Entity(CLUSTER, switch=switch, port=port),
        seconds,
        {"queue": 3, "direction": "received_by_switch", **more},
        cleared=cleared,
    )


def pause(
    node: str, nic: str, direction: str, seconds: float, *, cleared: bool = False, **more: Attribute
) -> Signal:
    return _signal(
        "fabric.pfc_storm",
        Entity(CLUSTER, node=node, nic=nic),
        seconds,
        {"priority": 3, "direction": direction, "fraction": 0.99, **more},
        cleared=cleared,
    )


def nic(
    node: str,
    device: str,
    seconds: float,
    *,
    subtype: str = "link_down",
    cleared: bool = False,
    **more: Attribute,
) -> Signal:
    """What a host says of its own link."""
    entity = Entity(CLUSTER, node=node, nic=device)
    return _signal("fabric.link", entity, seconds, {"subtype": subtype, **more}, cleared=cleared)


def nic_names(node: str, seconds: float, device: str, **others: Attribute) -> Signal:
    """A line or labels that give one NIC of a healthy node several names (`netdev`, `rdma_device`, `pci`)."""
    entity = Entity(CLUSTER, node=node, nic=device)
    return _signal("fabric.nic_names", entity, seconds, others, severity=Severity.INFO)


def cut_off(name: str, ranks: Iterable[int], seconds: float, peer: str, device: str) -> list[Signal]:
    """Connections of these ranks to a host that fail, each at this device of the reporting rank's own host."""
    found = []
    for i, rank in enumerate(ranks):
        place = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{rank // GPUS}"), rank=rank)
        attributes: dict[str, Attribute] = {"rank": rank, "status": 12, "peer": peer, "device": device}
        found.append(_signal("nccl.error", place, seconds + 0.1 * i, attributes))
    return found


def port(
    switch: str,
    name: str,
    seconds: float,
    *,
    subtype: str = "link_down",
    cleared: bool = False,
    **more: Attribute,
) -> Signal:
    """What a switch says of the link in one of its ports."""
    entity = Entity(CLUSTER, switch=switch, port=name)
    return _signal("fabric.link", entity, seconds, {"subtype": subtype, **more}, cleared=cleared)


def not_ready(node: str, seconds: float, *, ready: bool = False) -> Signal:
    return _signal(
        "node.not_ready", Entity(CLUSTER, node=node), seconds, {"reason": "NodeStatusUnknown"}, cleared=ready
    )


def sign(
    kind: str,
    node: str,
    seconds: float,
    subtype: str = "",
    *,
    index: int | None = None,
    gpu: Gpu | None = None,
    severity: Severity = Severity.ERROR,
    cleared: bool = False,
    lag: float = 0.5,
    **more: Attribute,
) -> Signal:
    """Any other signal of a node, or of one of its GPUs by its number here or by other names."""
    place = Entity(CLUSTER, node=node, gpu=gpu or (pci(index) if index is not None else None))
    attributes: dict[str, Attribute] = {**({"subtype": subtype} if subtype else {}), **more}
    return _signal(kind, place, seconds, attributes, cleared=cleared, severity=severity, lag=lag)


def in_racks(hosts: Sequence[str], *, labelled: bool = True) -> list[Signal]:
    """What the metrics of hosts tell of their GPUs, of four hosts in each rack; unless `labelled`, without the rack."""
    return [
        sign("node.gpus", host, -600 + i, severity=Severity.INFO, shares=(rack,) if labelled else ())
        for i, host in enumerate(hosts)
        for rack in (f"rack=R{i // 4:02d}",)
    ]


def failed(
    name: str,
    pod: int,
    seconds: float,
    subtype: str = "process_exit",
    *,
    kind: str = "job.failed",
    rank: int | None = None,
    **more: Attribute,
) -> Signal:
    """A line of a launcher or program in a pod's log, or an event about the pod."""
    place = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{pod}"), rank=rank)
    return _signal(kind, place, seconds, {"subtype": subtype, **more})


def progress(name: str, seconds: float, step: int, pod: int = 0) -> Signal:
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{pod}"))
    return _signal("job.progress", entity, seconds, {"step": step}, severity=Severity.INFO)


def checkpoint(name: str, seconds: float, step: int, pod: int = 0, *, begun: bool = False) -> Signal:
    """A line of a pod that tells of a checkpoint, or that one is begun."""
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{pod}"))
    told: dict[str, Attribute] = {"step": step, **({"subtype": "begun"} if begun else {})}
    return _signal("job.checkpoint", entity, seconds, told, severity=Severity.INFO)


def busy(name: str, seconds: float, pod: int = 0) -> Signal:
    """What a process of a pod counts that is no training."""
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{pod}"))
    return _signal("job.busy", entity, seconds, {"step": int(seconds)}, severity=Severity.INFO)


def run(kind: str, incident: str, seconds: float, outcome: str = "") -> Signal:
    attributes: dict[str, Attribute] = {"incident": incident, "run": "run-1", "runbook": "x"}
    if outcome:
        attributes["outcome"] = outcome
    return _signal(f"run.{kind}", Entity(CLUSTER), seconds, attributes, severity=Severity.INFO)


class World:
    """An engine, its clock, and everything that it published."""

    def __init__(self, facts: Iterable[Fact] = (), config: Config | None = None) -> None:
        self.rows: dict[str, bytes] = {}
        self.config = config or Config()
        self.engine = Engine(CLUSTER, self.rows, self.config)
        self.now = at(-60)
        self.published: dict[str, Incident] = {}
        self.revisions: list[Incident] = []
        self.timeline: list[TimelineEntry] = []
        for fact in facts:
            self.tell(fact)

    def tell(self, fact: Fact) -> None:
        self._note(self.engine.on_fact(fact.key, fact, max(fact.observed_at, self.now)))

    def end(self, name: str, nodes: Sequence[str], seconds: float, phase: str = "Failed") -> None:
        """All pods of a job end."""
        for pod in all_ended(name, nodes, seconds, phase):
            self.tell(pod)

    def gone(self, fact: Fact, seconds: float) -> None:
        self._note(self.engine.on_fact(fact.key, None, at(seconds)))

    def see(self, *signals: Signal) -> None:
        """Signals as one batch, at the moment the last of them was observed."""
        self.now = max(self.now, *(s.observed_at for s in signals))
        self._note(self.engine.on_signals(signals, self.now))

    def pass_to(self, seconds: float, step: float = 1.0) -> None:
        """Tick until then."""
        while self.now < at(seconds):
            self.now = min(self.now + timedelta(seconds=step), at(seconds))
            self._note(self.engine.on_tick(self.now))

    def play(self, signals: Iterable[Signal], until: float, seed: int | None = None) -> None:
        """See each signal at its time; with a seed all at once, in any order, before a restart. Then pass on to `until`."""
        ordered = sorted(signals, key=lambda s: s.observed_at)
        if seed is not None:
            random.Random(seed).shuffle(ordered)
            self.see(*ordered)
            self.restart()
        else:
            for one in ordered:
                self.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
                self.see(one)
        self.pass_to(until, step=20)

    def restart(self) -> None:
        """A new process on the same rows."""
        self.engine = Engine(CLUSTER, self.rows, self.config)

    def incidents(self) -> list[Incident]:
        """What stands: everything that was not merged into something else."""
        found = [i for i in self.published.values() if i.state is not IncidentState.MERGED]
        return sorted(found, key=lambda i: (i.fault_at, i.id))

    def only(self) -> Incident:
        """The one incident that stands."""
        found = self.incidents()
        assert len(found) == 1, [(i.family, str(i.root), i.state.value, i.reason) for i in found]
        return found[0]

    def _note(self, changes: Changes) -> None:
        for incident in changes.incidents:
            before = self.published.get(incident.id)
            assert incident.revision == (before.revision + 1 if before else 1)
            self.published[incident.id] = incident
            self.revisions.append(incident)
        self.timeline += changes.timeline


FOUR = ["n1", "n2", "n3", "n4"]
