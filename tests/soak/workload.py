"""What a cluster says for an hour or so: mostly nothing, and faults whose number is known.

Everything follows from a seed. Each record has a partition of its node's and a time; times never go back within a partition.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle, islice
from typing import Any

import orjson

from bench.chatter import ordinary
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.clock import from_millis, rfc3339

NODES = 64
LINES_PER_S = 2000
"""Of the cluster's own time."""

_FLOOD_LINES = 3000
_ORDINARY_POOL = 20_000
_SCRAPE_S = 15


@dataclass(frozen=True, slots=True)
class Sent:
    """One record: `partition` is a number that is to be taken modulo the topic's partitions."""

    topic: Topic
    partition: int
    at_ms: int
    value: bytes


@dataclass(slots=True)
class _Nic:
    """A NIC in a storm for so many more scrapes, and the GPU beside it."""

    left: int = 0
    paused_us: int = 0
    xid: int = 0


@dataclass(slots=True)
class Workload:
    """`records` makes them; `said` counts, as it goes, what was said of (kind, node, xid) in lines of the kernel.

    Args:
        seed: Of all that chance decides.
        lines: How many records there are in all.
        begin: The time of the first.
    """

    seed: int
    lines: int
    begin: datetime
    said: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    broken: int = 0
    topics: Counter[str] = field(default_factory=Counter)

    def records(self) -> Iterator[Sent]:
        """All of them, in the order of their times."""
        for sent in islice(self._endless(), self.lines):
            self.topics[sent.topic.name] += 1
            yield sent

    def _endless(self) -> Iterator[Sent]:
        r = random.Random(self.seed)
        chatter = cycle(list(islice(ordinary(self.seed, self.begin), _ORDINARY_POOL)))
        storms = {(node, number): _Nic() for node in range(NODES) for number in range(8)}
        second = 0
        while True:
            ms = round(self.begin.timestamp() * 1000) + second * 1000
            told = list(self._second(r, second, ms, storms))
            quiet = max(0, LINES_PER_S - len(told))
            every = max(1, quiet // max(1, len(told)))
            for number in range(quiet):
                yield Sent(
                    RAW_NODE_LOGS, r.randrange(NODES), ms + number * 1000 // LINES_PER_S, next(chatter)
                )
                if number % every == 0 and told:
                    yield told.pop(0)
            yield from told
            second += 1

    def _second(
        self, r: random.Random, second: int, ms: int, storms: dict[tuple[int, int], _Nic]
    ) -> Iterator[Sent]:
        """What is worth telling in one second, with a flood now and then."""
        node = r.randrange(NODES)
        for _ in range(r.randrange(4)):
            yield self._xid(ms, r.randrange(NODES), r.choice((13, 31, 43, 45, 48, 63, 79, 94)), r)
        if second % 20 == 0:
            for _ in range(_FLOOD_LINES):
                yield self._xid(ms, node, 43, r)
        if second % 7 == 0:
            yield self._recovery(ms, node, needed=r.random() < 0.5)
        if second % 5 == 0:
            yield _fabric(ms, node, r)
            yield _kube(ms, node, ready=r.random() < 0.5)
        for pod in range(4):
            yield _progress(ms, pod, second)
        if second % 11 == 0:
            yield _watchdog(ms, r.randrange(16), second)
        if second % 97 == 0:
            self.broken += 1
            yield Sent(RAW_NODE_LOGS, node, ms, b'{"log": "cut in the mid')
        if second % _SCRAPE_S == 0:
            yield from _scrape(ms, r, storms)

    def _xid(self, ms: int, node: int, code: int, r: random.Random) -> Sent:
        pid = r.randrange(1000, 100_000)
        self.said["gpu.xid", _name(node), code] += 1
        text = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name=python, Ch 0000000{pid % 8}"
        return _kernel(ms, node, text)

    def _recovery(self, ms: int, node: int, *, needed: bool) -> Sent:
        self.said["gpu.xid", _name(node), 154] += 1
        action = (
            "0x0 (None) to 0x2 (Node Reboot Required)"
            if needed
            else "0x2 (Node Reboot Required) to 0x0 (None)"
        )
        text = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from {action}"
        return _kernel(ms, node, text)


def _name(node: int) -> str:
    return f"gpu-{node:03}"


def _kernel(ms: int, node: int, message: str) -> Sent:
    line = {"@timestamp": ms / 1000, "host": _name(node), "priority": 4, "sec": 7, "usec": 1, "msg": message}
    return Sent(RAW_NODE_LOGS, node, ms, orjson.dumps(line))


def _progress(ms: int, pod: int, step: int) -> Sent:
    return _of_pod(ms, pod, f"iteration {step:8}/ 9000000 | consumed samples: {step * 512} |")


def _watchdog(ms: int, rank: int, seq: int) -> Sent:
    at = from_millis(ms)
    text = (
        f"[rank{rank}]:[E{at.month}{at:%d %H:%M:%S}.000000000 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) "
        f"Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=600000) ran for 600009 milliseconds before timing out."
    )
    return _of_pod(ms, rank // 8, text)


def _of_pod(ms: int, pod: int, text: str) -> Sent:
    kubernetes = {"pod_name": f"llm-{pod}", "namespace_name": "ml", "host": _name(pod)}
    line = {"@timestamp": ms / 1000, "log": text, "kubernetes": kubernetes}
    return Sent(RAW_JOB_LOGS, pod, ms, orjson.dumps(line))


def _fabric(ms: int, node: int, r: random.Random) -> Sent:
    port, queue = f"Ethernet{node * 4 % 256}", r.randrange(3, 5)
    what = r.choice(("detected", "restored"))
    text = f"{from_millis(ms):%b %d %H:%M:%S}.000000 leaf-{node % 4} NOTICE swss#orchagent: :- " + (
        f"startWdActionOnQueue: PFC Watchdog detected PFC storm on port {port}, queue index {queue}, queue id 0x15000000000230."
        if what == "detected"
        else f"report_pfc_restored: PFC Watchdog storm restored on port {port}, queue index {queue}, queue id 0x15000000000230."
    )
    return Sent(RAW_FABRIC, node % 4, ms, text.encode())


def _kube(ms: int, node: int, *, ready: bool) -> Sent:
    reason = "NodeReady" if ready else "NodeNotReady"
    event = {
        "metadata": {"name": f"{_name(node)}.{ms}", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": _name(node)},
        "reason": reason,
        "message": f"Node {_name(node)} status is now: {reason}",
        "type": "Normal",
        "lastTimestamp": rfc3339(from_millis(ms)),
        "source": {"component": "node-controller"},
    }
    return Sent(RAW_K8S_EVENTS, node, ms, orjson.dumps(event))


def _scrape(ms: int, r: random.Random, storms: dict[tuple[int, int], _Nic]) -> Iterator[Sent]:
    """Every NIC's pause counter, with a storm on a few of them for some scrapes, and every GPU's last Xid."""
    for place, nic in storms.items():
        node, number = place
        nic.left = nic.left - 1 if nic.left else (r.randrange(3, 8) if r.random() < 0.01 else 0)
        nic.paused_us += _SCRAPE_S * 1_000_000 if nic.left else 0
        name = "node_ethtool_transmitted_prio3_pause_duration"
        yield _sample(ms, node, name, nic.paused_us, device=f"eth{number}")
        nic.xid = r.choice((0, 43, 79)) if r.random() < 0.02 else nic.xid
        gpu = {
            "gpu": str(number),
            "UUID": f"GPU-{node}-{number}",
            "pci_bus_id": f"00000000:{number + 16:02X}:00.0",
        }
        yield _sample(ms, node, "DCGM_FI_DEV_XID_ERRORS", nic.xid, Hostname=_name(node), **gpu)


def _sample(ms: int, node: int, name: str, value: int, **labels: Any) -> Sent:
    told = {"__name__": name, "node": _name(node), "instance": f"{_name(node)}:9400", **labels}
    at = rfc3339(from_millis(ms))
    sample = {"timestamp": at, "value": str(value), "name": name, "labels": told}
    return Sent(RAW_METRICS, node, ms, orjson.dumps(sample))
