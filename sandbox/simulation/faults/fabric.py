"""Faults of the network: NICs, cables, leafs, uplinks, and pause storms (sonic-swss, pfcwdorch; mlx5 counters)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from sandbox.simulation import framework_logs
from sandbox.simulation.faults.kinds import FaultPlace, Kind, all_free, on_busy_gpu, record_truth, some_gpu
from sandbox.simulation.job_failure import restart_job, retries, teardown
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, PRIORITY, Leaf, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

SCRAPE_S = 15
FULL = 0.98
"""Share of the time that a storm pauses a port."""


def port_state(
    sim: Simulation, leaf: Leaf, port: str, at: datetime, state: str, *, vital: bool = False
) -> None:
    """A switch logs that a port went up or down."""
    if leaf.vendor == "ufm":
        text = f"[WARNING] Fabric: Link went {state}: (Switch:{leaf.name}) port {port}"
        sim.switch(leaf, at, "ufm", text, vital=vital)
    elif leaf.vendor == "sonic":
        before = "down" if state == "up" else "up"
        text = f"updatePortOperStatus: Port {port} oper state set from {before} to {state}"
        sim.switch(leaf, at, "swss#orchagent", text, vital=vital)
    else:
        text = f"Line protocol on Interface {port}, changed state to {state}"
        sim.switch(leaf, at, "%LINEPROTO-5-UPDOWN", text, vital=vital)


def nic_state(
    sim: Simulation, node: Node, nic: int, at: datetime, state: str, *, vital: bool = False
) -> None:
    """A host's driver logs that a link went up or down."""
    sim.kernel(node, at, f"mlx5_core {node.nic_pci(nic)} {node.netdev(nic)}: Link {state}", vital=vital)


def watchdog(
    sim: Simulation, leaf: Leaf, port: str, at: datetime, *, restored: bool = False, vital: bool = False
) -> None:
    """A switch's PFC watchdog reports a port on which it receives pause frames without end."""
    if leaf.vendor == "sonic":
        what = "storm restored" if restored else "detected PFC storm"
        handler = "report_clear_pfc_storm" if restored else "startWdActionOnQueue"
        text = (
            f"{handler}: PFC Watchdog {what} on port {port}, queue index {PRIORITY}, queue id 0x150000000005bb and "
            "port id 0x1000000000003"
        )
        sim.switch(leaf, at, "swss#orchagent", text, vital=vital)
    else:
        what = "RESTORED" if restored else "STORM"
        text = f"Priority-flow-control watchdog: {'recovered' if restored else 'storm'} on {port} for priority {PRIORITY}"
        sim.switch(leaf, at, f"%PFC-4-PRIORITY_FLOW_CONTROL_WATCHDOG_{what}", text, vital=vital)


def pauses(sim: Simulation, node: Node, nic: int, at: datetime, way: str, fractions: Sequence[float]) -> None:
    """Scrapes of a NIC's pause counter, one for each fraction of time it was paused since the last."""
    value = 4_000_000.0 + node.number * 1000
    for number, fraction in enumerate(fractions):
        value += fraction * 1_000_000 * SCRAPE_S
        moment = at + seconds(number * SCRAPE_S)
        labels = {"device": node.netdev(nic), "instance": f"{node.name}:9100", "job": "node-exporter"}
        sim.sample(node, moment, f"node_ethtool_{way}_prio{PRIORITY}_pause_duration", round(value), **labels)


def network_failure(
    sim: Simulation, job: Job, at: datetime, node: Node, nics: Iterable[int], avoid: Iterable[Node] = ()
) -> datetime:
    """A job cannot reach some NICs of one of its nodes, aborts and is started again. Returns when."""
    first = job.nodes.index(node) * GPUS
    last = retries(sim, job, at, range(first, first + GPUS), nics)
    down = last + seconds(sim.rng.uniform(2, 8))
    teardown(sim, job, down)
    return restart_job(sim, job, down + seconds(8), avoid, stalled=at)


def _link_down(sim: Simulation, node: Node, nic: int, at: datetime, switch_after_s: float) -> None:
    nic_state(sim, node, nic, at, "down", vital=True)
    port_state(sim, node.leaf, node.port(nic), at + seconds(switch_after_s), "down")


def _nic_down(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """A NIC's link goes down for good: host and switch log it, peers get no answer on its rail."""
    node, nic, pod = place.node, place.gpu, job.pod_of(place.rank)
    _link_down(sim, node, nic, at, 0.3)
    sim.pod(
        pod, at + seconds(1), framework_logs.port_error(pod.name, pod.pid(place.rank), nic, node.nic(nic))
    )
    return network_failure(sim, job, at, node, [nic], [node])


def _nic_flap(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """A link goes down and up again, again and again."""
    node, nic = place.node, place.gpu
    for _ in range(sim.rng.randrange(5, 9)):
        _link_down(sim, node, nic, at, 0.2)
        back = at + seconds(sim.rng.uniform(2, 8))
        nic_state(sim, node, nic, back, "up", vital=True)
        port_state(sim, node.leaf, node.port(nic), back + seconds(0.2), "up")
        at = back + seconds(sim.rng.uniform(15, 50))
    return network_failure(sim, job, at - seconds(5), node, [nic], [node])


def _cable(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """An optical module fails and its link goes down."""
    node, nic = place.node, place.gpu
    error = sim.rng.choice(("Cable error, High Temperature", "Cable error, Bad or shorted cable/module"))
    text = f"mlx5_core {node.nic_pci(nic)}: Port module event[error]: module 0, {error}"
    sim.kernel(node, at, text, vital=True)
    down = at + seconds(sim.rng.uniform(0.5, 20))
    _link_down(sim, node, nic, down, 0.3)
    return network_failure(sim, job, down, node, [nic], [node])


def _free_leafs(sim: Simulation, at: datetime) -> Iterator[tuple[Leaf, list[Job]]]:
    """Leafs with jobs under them of which all are free, and their nodes too, in random order."""
    leafs = list(sim.cluster.leafs)
    sim.rng.shuffle(leafs)
    for leaf in leafs:
        under = sim.cluster.under(leaf)
        jobs = sim.jobs_on(under)
        if jobs and all_free(sim, at, under, jobs):
            yield leaf, jobs


def _leaf_down(sim: Simulation, at: datetime) -> bool:
    """A leaf dies: every host under it loses all links within seconds, until the leaf has rebooted."""
    found = next(_free_leafs(sim, at), None)
    if found is None:
        return False
    leaf, jobs = found
    nodes = sim.cluster.under(leaf)
    back = at + timedelta(minutes=sim.rng.uniform(6, 12))
    for node in nodes:
        for nic in range(GPUS):
            nic_state(sim, node, nic, at + seconds(sim.rng.uniform(0, 2)), "down", vital=True)
            nic_state(sim, node, nic, back + seconds(sim.rng.uniform(0, 4)), "up", vital=True)
    until, hit = back, set(nodes)
    for job in jobs:
        mine = [pod for pod in job.pods if pod.node.leaf == leaf]
        gone = [rank for pod in mine for rank in pod.ranks]
        hit |= set(job.nodes)
        last = retries(sim, job, at, gone)
        if last == at and len(mine) == len(job.pods):
            # The whole job runs under the leaf: no pod reaches any other.
            for pod in job.pods[: len(job.pods) // 2]:
                last = max(last, retries(sim, job, at, pod.ranks))
        teardown(sim, job, last + seconds(4))
        until = max(until, restart_job(sim, job, back + seconds(30), stalled=at))
    record_truth(
        sim, "leaf_down", at, until, "fabric_fault", TrueRoot(switch=leaf.name), jobs=jobs,
        nodes=sorted(hit, key=lambda n: n.name),
    )  # fmt: skip
    return True


def _uplink(sim: Simulation, at: datetime) -> bool:
    """An uplink of a leaf goes down: jobs that reach beyond the leaf fail on connections that cross it."""
    for leaf, jobs in _free_leafs(sim, at):
        crossing = [j for j in jobs if any(n.leaf != leaf for n in j.nodes)]
        if not crossing:
            continue
        port = leaf.uplink(sim.rng.randrange(sim.cluster.spec.spines))
        port_state(sim, leaf, port, at, "down", vital=True)
        until, hit = at, {node for job in crossing for node in job.nodes}
        for job in crossing:
            gone = [rank for pod in job.pods if pod.node.leaf == leaf for rank in pod.ranks]
            last = retries(sim, job, at, gone, sim.rng.sample(range(GPUS), 3))
            teardown(sim, job, last + seconds(4))
            until = max(until, restart_job(sim, job, last + seconds(12), stalled=at))
        back = until + timedelta(minutes=2)
        port_state(sim, leaf, port, back, "up", vital=True)
        record_truth(
            sim, "uplink_down", at, back, "fabric_fault", TrueRoot(switch=leaf.name, port=port), jobs=crossing,
            nodes=sorted(hit, key=lambda n: n.name),
        )  # fmt: skip
        return True
    return False


def _storm(kind: str, *, counters: bool, port: bool) -> Kind:
    """A NIC pauses its switch without end, as the switch's watchdog (`port`) and the host's `counters` show; neighbours stall."""

    def play(sim: Simulation, at: datetime) -> bool:
        place = some_gpu(sim, at, idle_share=0)
        if place is None or place.job is None or place.node.name not in sim.cabled:
            return False
        node, nic, job = place.node, place.gpu, place.job
        leaf, nodes = node.leaf, job.nodes
        until = network_failure(sim, job, at, node, [nic], [node])
        # The storm ends when the NIC is reset, once its node is drained.
        scrapes = int((until - at).total_seconds() // SCRAPE_S)
        if port:
            watchdog(sim, leaf, node.port(nic), at + seconds(0.3), vital=True)
            for number in range(
                sim.rng.randrange(2, 6)
            ):  # while it lasts, the watchdog detects it again and again
                moment = at + seconds(20 * number + 4)
                watchdog(sim, leaf, node.port(nic), moment, restored=True)
                watchdog(sim, leaf, node.port(nic), moment + seconds(0.4), vital=True)
            watchdog(sim, leaf, node.port(nic), until, restored=True, vital=True)
        if counters:
            before = at - seconds(sim.rng.uniform(0, SCRAPE_S))
            fractions = [0.001, *[FULL] * scrapes, 0.0, 0.0, 0.0]
            pauses(sim, node, nic, before, "transmitted", fractions)
        neighbours = [n for n in sim.cluster.under(leaf) if n is not node][:6]
        for other in neighbours:
            fractions = [0.0, *(sim.rng.uniform(0.2, 0.98) for _ in range(scrapes)), 0.0, 0.0, 0.0]
            pauses(sim, other, nic, at - seconds(sim.rng.uniform(0, SCRAPE_S)), "received", fractions)
        record_truth(
            sim, kind, at, until, "pfc_storm", place.nic_root(), jobs=[job], nodes=[*nodes, *neighbours],
            may_cordon=[node], roots=(place.node_root(), TrueRoot(switch=leaf.name, port=node.port(nic))),
        )  # fmt: skip
        return True

    return play


def _cycle(sim: Simulation, at: datetime) -> bool:
    """Uplinks of several leafs pause each other in a ring that no host began: no node to cordon."""
    leafs = sim.cluster.leafs
    if len(leafs) < 2:
        return False
    ring = sim.rng.sample(list(leafs), min(3, len(leafs)))
    hit = [node for leaf in ring for node in sim.cluster.under(leaf)]
    if not all(sim.is_free(node, at) for node in hit):
        return False
    for turn in range(4):
        for number, leaf in enumerate(ring):
            moment = at + seconds(turn * 25 + number * 0.3)
            port = leaf.uplink(number % sim.cluster.spec.spines)
            if turn:
                watchdog(sim, leaf, port, moment - seconds(3), restored=True)
            watchdog(sim, leaf, port, moment, vital=True)
    for number, leaf in enumerate(ring):
        port = leaf.uplink(number % sim.cluster.spec.spines)
        watchdog(sim, leaf, port, at + seconds(150 + number), restored=True, vital=True)
    record_truth(
        sim, "pause_cycle", at, at + timedelta(minutes=4), "pfc_storm", TrueRoot(switch=ring[0].name), nodes=hit,
        accepted=("fabric_fault",), roots=tuple(TrueRoot(switch=leaf.name) for leaf in ring[1:]),
    )  # fmt: skip
    return True


_on_nic = partial(on_busy_gpu, family="nic_link", root=FaultPlace.nic_root, cabled=True)

KINDS: dict[str, Kind] = {
    "nic_link_down": _on_nic("nic_link_down", play=_nic_down),
    "nic_flap": _on_nic("nic_flap", play=_nic_flap),
    "nic_cable": _on_nic("nic_cable", play=_cable),
    "leaf_down": _leaf_down,
    "uplink_down": _uplink,
    "pfc_storm_host": _storm("pfc_storm_host", counters=True, port=True),
    "pfc_storm_port": _storm("pfc_storm_port", counters=False, port=True),
    "pfc_storm_counters": _storm("pfc_storm_counters", counters=True, port=False),
    "pause_cycle": _cycle,
}
