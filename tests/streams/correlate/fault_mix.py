"""What can go wrong in a small cluster, each with the signals it leaves, made from a seed: for tests that need many stories."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from streams.model.facts import Fact
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    at,
    cluster,
    link,
    nccl_error,
    nic,
    not_ready,
    pause,
    pods,
    port,
    progress,
    storm,
    summary,
    timeout,
    timeouts,
    xid,
)

LLAMA, GEMMA = ["n1", "n2", "n3", "n4"], ["m1", "m2"]
WORLD = {"llama": 32, "gemma": 16}


@dataclass(frozen=True)
class Trouble:
    """One thing that happens: what it is, when, and the seed of its details."""

    what: str
    start: float
    seed: int

    def signals(self) -> list[Signal]:
        """What is seen of it."""
        return TROUBLES[self.what](random.Random(self.seed), self.start)


def _gpu(chance: random.Random, start: float) -> list[Signal]:
    node, code = chance.choice(LLAMA + GEMMA), chance.choice([79, 48, 95, 119, 74, 94, 999])
    seen = [xid(node, code, start, index=chance.randrange(3))]
    if chance.random() < 0.4:
        seen.append(xid(node, 154, start + 1, action=chance.choice(["restart_bm", "reset_gpu"])))
    if chance.random() < 0.4:
        seen.append(
            xid(
                node,
                chance.choice([79, 74, 119]),
                start + chance.choice([3, 60, 200, 500]),
                index=chance.randrange(3),
            )
        )
    if chance.random() < 0.3:
        seen.append(xid(node, code, start + chance.choice([60, 200, 500]), cleared=True))
    return seen


def _node(chance: random.Random, start: float) -> list[Signal]:
    node = chance.choice(LLAMA + GEMMA)
    seen = [not_ready(node, start)]
    if chance.random() < 0.7:
        seen.append(not_ready(node, start + chance.choice([10, 40, 200, 400]), ready=True))
    return seen


def _hang(chance: random.Random, start: float) -> list[Signal]:
    name = chance.choice(["llama", "gemma"])
    everybody = range(WORLD[name])
    ranks = chance.choice(
        [
            [r for r in everybody if r // 8 != 1],
            list(everybody),
            [r for r in everybody if r != 9],
            list(range(8)),
            [r for r in everybody if r // 8 > 1] or [0, 1],
        ]
    )
    if chance.random() < 0.5:
        ranks = [r for r in ranks if r % 4 == 0] or ranks
    waited, seq = chance.choice([600, 600, 300, 2]), chance.choice([100, 200])
    seen = timeouts(name, ranks, start, waited=waited, seq=seq)
    if chance.random() < 0.3:
        seen += [summary(name, r, start + 2, enqueued=chance.choice([103, 103, 101]), seq=100) for r in ranks]
    if chance.random() < 0.2:
        seen.append(timeout(name, ranks[-1], start + 1, op="BROADCAST", waited=waited))
    if chance.random() < 0.4:
        seen.append(progress(name, start + chance.choice([30, 100, 400]), 7))
    if chance.random() < 0.4:
        later = chance.choice([3, 70, 130, 400])
        seen += [nccl_error(name, r, start + later) for r in ranks[:6]]
    return seen


def _application(chance: random.Random, start: float) -> list[Signal]:
    nodes, code = chance.choice([LLAMA, LLAMA[:2], LLAMA[:1], GEMMA]), chance.choice([31, 13, 43])
    seen = [xid(node, code, start + 0.3 * i) for i, node in enumerate(nodes)]
    if chance.random() < 0.4:
        later = chance.choice([100, 280, 310, 500])
        seen += [xid(node, code, start + later) for node in nodes[:2]]
    return seen


def _teardown(chance: random.Random, start: float) -> list[Signal]:
    return [xid(node, 45, start + 0.1 * i, index=chance.randrange(3)) for i, node in enumerate(LLAMA)]


def _storm(chance: random.Random, start: float) -> list[Signal]:
    seen = [storm("leaf-1", "Ethernet8", start)]
    if chance.random() < 0.5:
        seen.append(storm("leaf-1", "Ethernet120", start + chance.choice([-20, 1, 30])))
    if chance.random() < 0.5:
        seen.append(pause("n1", "mlx5_2", "sent", start + 15))
    if chance.random() < 0.5:
        seen.append(pause("m1", "mlx5_0", "received", start + 15))
    if chance.random() < 0.3:
        seen.append(pause("n3", "mlx5_0", "sent", start + 5))
    if chance.random() < 0.5:
        seen.append(storm("leaf-1", "Ethernet8", start + chance.choice([0.5, 60, 200]), cleared=True))
    return seen


def _link(chance: random.Random, start: float) -> list[Signal]:
    node, device = chance.choice(LLAMA + GEMMA), chance.choice(["eth2", "eth2", "mlx5_2"])
    seen = []
    for i in range(chance.choice([1, 1, 1, 4])):
        down, lasts = start + 40 * i, chance.choice([2, 15, 60, 400])
        seen.append(nic(node, device, down))
        if chance.random() < 0.7:
            seen.append(nic(node, device, down + lasts, cleared=True))
    if chance.random() < 0.4:
        seen.append(port("leaf-1", "Ethernet8", start + chance.choice([-1, 0.5, 30])))
    if chance.random() < 0.3:
        subtype = chance.choice(["symbol_errors", "module_error", "health", "temperature", "link_downed"])
        seen.append(nic(node, device, start + chance.choice([-60, 10, 300]), subtype=subtype))
    if chance.random() < 0.6:
        seen += [nccl_error("llama", r, start + chance.choice([8, 31, 200])) for r in range(6)]
    return seen


def _switch(chance: random.Random, start: float) -> list[Signal]:
    nodes = chance.choice([LLAMA, LLAMA[:3], LLAMA[:2], LLAMA + GEMMA])
    seen = [nic(n, "eth3", start + chance.choice([0, 1, 20]) * i) for i, n in enumerate(nodes)]
    if chance.random() < 0.5:
        seen += [nic(n, "eth3", start + 200 + i, cleared=True) for i, n in enumerate(nodes)]
    if chance.random() < 0.4:
        seen.append(port("leaf-1", "Ethernet120", start + chance.choice([0, 5, 70])))
    if chance.random() < 0.3:
        seen += [not_ready(n, start + 45) for n in nodes[:2]]
    if chance.random() < 0.5:
        seen += [nccl_error("gemma", r, start + 31) for r in range(6)]
    return seen


def _progress(chance: random.Random, start: float) -> list[Signal]:
    name = chance.choice(["llama", "gemma"])
    return [progress(name, start + 20 * i, 100 + i, pod=chance.randrange(2)) for i in range(3)]


TROUBLES: dict[str, Callable[[random.Random, float], list[Signal]]] = {
    "gpu": _gpu,
    "node": _node,
    "hang": _hang,
    "application": _application,
    "teardown": _teardown,
    "storm": _storm,
    "link": _link,
    "switch": _switch,
    "progress": _progress,
}


def surroundings(*, moved: bool) -> list[Fact]:
    """The cluster they happen in; `moved`: the larger job is started again on another node in the middle."""
    facts = [
        *cluster({"llama": LLAMA, "gemma": GEMMA}, spare=["n9"]),
        link("leaf-1", "Ethernet8", "n1", "mlx5_2"),
        link("leaf-1", "Ethernet120", peer="spine-1"),
    ]
    if moved:
        facts += [replace(pod, ended_at=at(880), observed_at=at(881)) for pod in pods("llama", LLAMA)]
        facts += pods("llama", ["n1", "n9", "n3", "n4"], since=900, attempt=2)
    return facts
