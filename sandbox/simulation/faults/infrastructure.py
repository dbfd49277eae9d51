"""Faults of what many nodes share: a power feed, a coolant loop, a switch tray of an NVLink domain, storage for nearly all."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.faults.hosts import GRACE_S
from sandbox.simulation.faults.kinds import Kind, all_free, record_truth
from sandbox.simulation.faults.shared import heat
from sandbox.simulation.job_failure import crash, hang, restart_job, teardown
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

STALLED = 0.85
"""Share of the nodes that a stall of the storage reaches."""


def _group(sim: Simulation, at: datetime, key: Callable[[Node], Hashable]) -> list[Node] | None:
    """Free nodes that share something and have jobs on them, and whose jobs are all free; None where there are none."""
    groups: dict[Hashable, list[Node]] = {}
    for node in sim.cluster.nodes.values():
        groups.setdefault(key(node), []).append(node)
    found = [
        nodes for nodes in groups.values()
        if len(nodes) >= 3 and (jobs := sim.jobs_on(nodes)) and all_free(sim, at, nodes, jobs)
    ]  # fmt: skip
    return sim.rng.choice(found) if found else None


def _hit(nodes: list[Node], jobs: list[Job]) -> list[Node]:
    names = {node.name: node for job in jobs for node in job.nodes} | {node.name: node for node in nodes}
    return [names[name] for name in sorted(names)]


def _power_feed(sim: Simulation, at: datetime) -> bool:
    """A power feed trips: the nodes on it are gone at once, those on the rack's other feed go on; the PDU says so."""
    nodes = _group(sim, at, sim.cluster.feed)
    if nodes is None:
        return False
    feed, rack, jobs = sim.cluster.feed(nodes[0]), nodes[0].rack, sim.jobs_on(nodes)
    pdu = f"pdu-{rack}-{feed.split('-')[1]}"
    text = f"Circuit {feed}: breaker tripped, OutletPowerKW=0.0, state Critical"
    sim.machine(pdu, at, "redfish", text)
    for node in nodes:
        sim.not_ready(node, at + seconds(sim.rng.uniform(*GRACE_S)))
    back = at + timedelta(minutes=sim.rng.uniform(18, 25))
    until, stopped = back, {node.name for job in jobs for node in job.nodes}
    for node in nodes:
        if node.name not in stopped:
            sim.ready_again(node, back)
    for job in jobs:
        gone = [rank for pod in job.pods if pod.node in nodes for rank in pod.ranks]
        mine = [node for node in nodes if node in job.nodes]
        if len(gone) == job.layout.world:
            teardown(sim, job, at, spared=gone)
            until = max(until, restart_job(sim, job, at + timedelta(minutes=7), mine, stalled=at))
        else:
            until = max(until, hang(sim, job, at, gone, avoid=mine))
    record_truth(
        sim, "power_feed", at, until, "power_cooling", TrueRoot(shared=feed), jobs=jobs, nodes=_hit(nodes, jobs),
        may_cordon=nodes, accepted=("node_down",), roots=(TrueRoot(rack=rack), TrueRoot(shared=pdu)),
    )  # fmt: skip
    return True


def _coolant_loop(sim: Simulation, at: datetime) -> bool:
    """A coolant loop's pump fails: GPUs on all of its racks grow hot within minutes, and the distribution unit says so."""
    nodes = _group(sim, at, sim.cluster.loop)
    if nodes is None:
        return False
    loop, jobs = sim.cluster.loop(nodes[0]), sim.jobs_on(nodes)
    sim.machine(
        loop, at, "redfish", "Pump 2 failure: PumpRPM=0 below lower critical threshold 2800, state Critical"
    )
    sim.machine(
        loop, at + seconds(90), "redfish", "CoolantSupplyTempC=46.8 above upper critical threshold 45.0"
    )
    for number, node in enumerate(nodes):
        job = next((job for job in jobs if node in job.nodes), None)
        begin = at + seconds(60 + 5 * number % 60 + sim.rng.uniform(0, 20))
        heat(sim, node, sim.rng.randrange(GPUS), job, begin, 12, sim.rng.choice((90, 92, 95)))
    racks = sorted({node.rack for node in nodes})
    record_truth(
        sim, "coolant_loop", at, at + timedelta(minutes=12), "power_cooling", TrueRoot(shared=loop), jobs=jobs,
        nodes=_hit(nodes, jobs), may_cordon=nodes, roots=tuple(TrueRoot(rack=rack) for rack in racks),
    )  # fmt: skip
    return True


def _switch_tray(sim: Simulation, at: datetime) -> bool:
    """A switch tray of an NVLink domain fails: GPUs of many nodes lose a link and all blame the other end."""
    nodes = _group(sim, at, lambda node: node.rack_number)
    if nodes is None:
        return False
    jobs, tray = sim.jobs_on(nodes), f"nvsw-{nodes[0].rack}-{sim.rng.randrange(1, 10)}"
    sim.machine(tray, at, "nvos", "ASIC 0 fatal: NVLink ports acp1-acp72 down, health state Unhealthy")
    link = sim.rng.randrange(18)
    for node in nodes:
        for gpu in sim.rng.sample(range(GPUS), 3):
            body = driver_logs.nvlink5_down(node, link, reason=33)
            sim.xid(node, gpu, at + seconds(sim.rng.uniform(0.1, 4)), 149, body)
    until = at + timedelta(minutes=6)
    for job in jobs:
        rank = next(pod.rank for pod in job.pods if pod.node in nodes)
        text = framework_logs.cuda_error(rank, "uncorrectable NVLink error detected during the execution")
        until = max(until, crash(sim, job, at + seconds(sim.rng.uniform(3, 8)), rank, text))
    record_truth(
        sim, "switch_tray", at, until, "gpu_nvlink", TrueRoot(shared=tray), jobs=jobs, nodes=_hit(nodes, jobs),
        accepted=("fabric_fault",), roots=(TrueRoot(rack=nodes[0].rack), TrueRoot(switch=tray)),
    )  # fmt: skip
    return True


def _storage_stall(sim: Simulation, at: datetime) -> bool:
    """A file server stands still for a minute or two: nearly all nodes say so, and each recovers by itself. One fault."""
    nodes = list(sim.cluster.nodes.values())
    if not all(sim.is_free(node, at) for node in nodes):
        return False
    hit = sim.rng.sample(nodes, max(3, round(STALLED * len(nodes))))
    server = f"filer-{sim.rng.choice(('scratch', 'home', 'models'))}.storage"
    back = at + seconds(sim.rng.uniform(60, 170))
    for node in hit:
        sim.kernel(
            node, at + seconds(sim.rng.uniform(0, 20)), f"nfs: server {server} not responding, still trying"
        )
        sim.kernel(node, back + seconds(sim.rng.uniform(0, 15)), f"nfs: server {server} OK")
    record_truth(
        sim,
        "storage_stall",
        at,
        back,
        "storage_fault",
        TrueRoot(storage=server),
        jobs=sim.jobs_on(hit),
        nodes=hit,
    )
    return True


KINDS: dict[str, Kind] = {
    "power_feed": _power_feed,
    "coolant_loop": _coolant_loop,
    "switch_tray": _switch_tray,
    "storage_stall": _storage_stall,
}
