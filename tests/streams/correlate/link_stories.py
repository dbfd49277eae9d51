"""A job on four hosts, the cables of their NICs, and a large rack: stories about links and switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streams.model.clock import to_millis
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident
from streams.model.signal import Signal
from tests.streams.correlate.world import FOUR, GPUS, World, at, cluster, link, nccl_error, nic

CABLES = [
    *(link("leaf-1", f"Ethernet{4 * i}", node, "mlx5_0") for i, node in enumerate(FOUR)),
    *(link("leaf-2", f"Ethernet{4 * i}", node, "mlx5_1") for i, node in enumerate(FOUR)),
    link("leaf-1", "Ethernet120", peer="spine-1", peer_port="Ethernet0"),
    link("leaf-2", "Ethernet120", peer="spine-1", peer_port="Ethernet4"),
]
CABLED: list[Fact] = [*cluster({"llama": FOUR}), *CABLES]
"""The job, and the cables of its hosts."""


def story(*signals: Signal, facts: Sequence[Fact] = (), until: float = 300) -> World:
    world = World([*cluster({"llama": FOUR}), *(facts or CABLES)])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds())
        world.see(one)
    world.pass_to(until)
    return world


def closes_a_node(incident: Incident) -> bool:
    return incident.certainty is Certainty.DECISIVE and incident.root.node is not None


def failing(seconds: float, ranks: Sequence[int] = range(8)) -> list[Signal]:
    return [nccl_error("llama", r, seconds + 0.1 * r) for r in ranks]


def ranks_beside(node: str) -> list[int]:
    """The ranks of the job on all of its other nodes."""
    return [r for r in range(GPUS * len(FOUR)) if FOUR[r // GPUS] != node]


def bounce(node: str, device: str, seconds: float, lasts: float) -> list[Signal]:
    """A link that its host loses, and has again so many seconds later."""
    return [nic(node, device, seconds), nic(node, device, seconds + lasts, cleared=True)]


def flapping(
    times: int, every: float = 40, lasts: float = 6, *, node: str = "n2", device: str = "eth2"
) -> list[Signal]:
    return [one for i in range(times) for one in bounce(node, device, every * i, lasts)]


def counted(node: str, device: str, seconds: float, reached: int, since: float) -> Signal:
    """A host's counter of a link's falls that rose by one between two readings, to `reached`."""
    more: dict[str, Any] = {"series": "s1", "since_ms": to_millis(at(since)), "reached": reached, "count": 1}
    return nic(node, device, seconds, subtype="link_downed", **more)


MANY = [f"g{i:02}" for i in range(64)]


def all_lose(seconds: float = 0, apart: float = 0.05, *, cleared: bool = False) -> list[Signal]:
    """What all of `MANY` report of one link each, that they lose or have again, one shortly after the other."""
    return [nic(node, "eth2", seconds + apart * i, cleared=cleared) for i, node in enumerate(MANY)]


def rack(*, labels: bool = True, jobs: int = 8) -> list[Fact]:
    size = len(MANY) // jobs
    facts = cluster({f"job{j}": MANY[j * size : (j + 1) * size] for j in range(jobs)})
    return [replace(f, leaf="leaf-1") if labels and f.kind == "node" else f for f in facts]


def suffering(jobs: int, seconds: float) -> list[Signal]:
    return [nccl_error(f"job{j}", r, seconds + 0.1 * r) for j in range(jobs) for r in range(4)]
