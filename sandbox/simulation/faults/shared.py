"""Faults that many share: a rack's cooling or power, one GPU's, a supply, a file system; and GPUs that are merely slow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sandbox.simulation.faults.hosts import GRACE_S
from sandbox.simulation.faults.kinds import FaultPlace, Kind, all_free, on_busy_gpu, record_truth, some_gpu
from sandbox.simulation.job_failure import hang, restart_job, teardown
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

SCRAPE_S = 30
COOLING = 4
"""Scrapes after the end of a fault that show healthy values."""
HW_THERMAL = 0x8 | 0x40
"""Clocks event reasons: hardware slowdown because of heat (nvml.h)."""
POWER_BRAKE = 0x8 | 0x80
POWER_CAP = 0x4


def labels(node: Node, gpu: int, job: Job | None) -> dict[str, str]:
    """Labels of dcgm-exporter."""
    found = {
        "gpu": str(gpu),
        "UUID": node.gpu_uuid(gpu),
        "pci_bus_id": f"0000{node.gpu_pci(gpu).upper()}.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "hostname": node.name,
        "instance": f"{node.address}:9400",
    }
    if job is not None and node in job.nodes:
        pod = job.pods[job.nodes.index(node)]
        found |= {"hpc_job": job.number} if pod.slurm else {"pod": pod.name, "namespace": pod.namespace}
    return found


def heat(
    sim: Simulation, node: Node, gpu: int, job: Job | None, at: datetime, scrapes: int, top: float
) -> None:
    """Temperature and clocks of a GPU that is not cooled: it heats up, throttles, and cools down once repaired."""
    about = labels(node, gpu, job)
    for number in range(-3, scrapes + COOLING):
        moment = at + seconds(number * SCRAPE_S)
        warm = min(top, 64.0 + max(0, number + 1) * 14.0) if number < scrapes else 70.0
        reasons = HW_THERMAL if warm >= 89 else POWER_CAP
        sim.sample(node, moment, "DCGM_FI_DEV_GPU_TEMP", warm, **about)
        sim.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", reasons, **about)


def _gpu_hot(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """One GPU's cooler fails."""
    heat(sim, place.node, place.gpu, job, at, 16, 93)
    return at + seconds((16 + COOLING) * SCRAPE_S)


def _free_rack(sim: Simulation, at: datetime) -> tuple[str, list[Node]] | None:
    racks = sorted({node.rack for node in sim.cluster.nodes.values()})
    sim.rng.shuffle(racks)
    for rack in racks:
        nodes = sim.cluster.in_rack(rack)
        jobs = sim.jobs_on(nodes)
        if len(nodes) >= 3 and jobs and all_free(sim, at, nodes, jobs):
            return rack, nodes
    return None


def _on_a_rack(kind: str, play: Callable[[Simulation, datetime, list[Node], list[Job]], datetime]) -> Kind:
    """A fault of a whole rack in use; `play` returns when it is over."""

    def on_a_rack(sim: Simulation, at: datetime) -> bool:
        found = _free_rack(sim, at)
        if found is None:
            return False
        rack, nodes = found
        jobs = sim.jobs_on(nodes)
        until = play(sim, at, nodes, jobs)
        hit = {node.name: node for job in jobs for node in job.nodes} | {node.name: node for node in nodes}
        record_truth(
            sim, kind, at, until, "power_cooling", TrueRoot(rack=rack), jobs=jobs,
            nodes=[hit[name] for name in sorted(hit)], may_cordon=nodes,
        )  # fmt: skip
        return True

    return on_a_rack


def _rack_hot(sim: Simulation, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack's cooling fails: GPUs on all of its nodes grow hot within minutes."""
    for number, node in enumerate(nodes):
        job = next((job for job in jobs if node in job.nodes), None)
        begin = at + seconds(25 * number + sim.rng.uniform(0, 20))
        for gpu in sim.rng.sample(range(GPUS), 4):
            heat(sim, node, gpu, job, begin, 14, sim.rng.choice((90, 92, 95)))
    return at + timedelta(minutes=12)


def _rack_brake(sim: Simulation, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack is short of power: its GPUs are throttled."""
    for node in nodes:
        job = next((job for job in jobs if node in job.nodes), None)
        begin = at + seconds(sim.rng.uniform(0, 20))
        for gpu in range(0, GPUS, 2):
            about = labels(node, gpu, job)
            for number in range(-2, 10 + COOLING):
                reasons = POWER_BRAKE if 0 <= number < 10 else POWER_CAP
                moment = begin + seconds(number * SCRAPE_S)
                sim.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", reasons, **about)
    return at + timedelta(minutes=8)


def _rack_off(sim: Simulation, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack loses power: all of its nodes are gone at once, and back after a while."""
    for node in nodes:
        sim.not_ready(node, at + seconds(sim.rng.uniform(*GRACE_S)))
    until = at
    for node in nodes:
        if not sim.jobs_on([node]):
            sim.ready_again(node, at + timedelta(minutes=25))
    for job in jobs:
        gone = [rank for pod in job.pods if pod.node in nodes for rank in pod.ranks]
        if len(gone) == job.layout.world:
            teardown(sim, job, at, spared=gone)
            until = max(until, restart_job(sim, job, at + timedelta(minutes=7), nodes, stalled=at))
        else:
            until = max(until, hang(sim, job, at, gone, avoid=[n for n in nodes if n in job.nodes]))
    return until


def _supply(sim: Simulation, at: datetime) -> bool:
    """One of a server's power supplies fails; the others carry on."""
    nodes = [node for node in sim.cluster.nodes.values() if sim.is_free(node, at)]
    if not nodes:
        return False
    node = sim.rng.choice(nodes)
    number = sim.rng.randrange(1, 7)
    for scrape in range(-2, 8 + COOLING):
        state = 2.0 if 0 <= scrape < 8 else 0.0
        about = {"name": f"PS{number} Status", "type": "Power Supply", "instance": node.name}
        sim.sample(node, at + seconds(scrape * 30), "ipmi_sensor_state", state, **about)
    record_truth(
        sim, "power_supply", at, at + timedelta(minutes=6), "power_cooling", TrueRoot(node=node.name),
        nodes=[node], jobs=sim.jobs_on([node]), may_cordon=[node],
    )  # fmt: skip
    return True


def _storage(kind: str, *, lustre: bool) -> Kind:
    """A file server stops answering: clients everywhere log it, tasks block, jobs make no progress until it is back."""

    def play(sim: Simulation, at: datetime) -> bool:
        jobs = sim.free_jobs(at, pods=2)
        if len(jobs) < 2:
            return False
        jobs = sim.rng.sample(jobs, min(len(jobs), 3))
        number = sim.rng.randrange(16)
        # Another file system each time: two targets of one failing within minutes would be one fault of its server.
        name = ("scratch", "work", "datasets", "models", "home")[len(sim.truth.faults) % 5]
        target = f"{name}-OST{number:04x}" if lustre else f"filer-{name}-{number}.storage"
        address = f"10.0.8.{number + 10}@o2ib"
        back = at + timedelta(minutes=sim.rng.uniform(4, 8))
        hit = [node for job in jobs for node in job.nodes]
        for node in hit:
            lost, found = at + seconds(sim.rng.uniform(0, 12)), back + seconds(sim.rng.uniform(0, 10))
            if lustre:
                client = f"Lustre: {target}-osc-ffff9d3fe1c8a000: "
                text = f"Connection to {target} (at {address}) was lost; in progress operations using this service will "
                sim.kernel(node, lost, f"{client}{text}wait for recovery to complete")
                sim.kernel(node, found, f"{client}Connection restored to {address} (at {address})")
            else:
                sim.kernel(node, lost, f"nfs: server {target} not responding, still trying")
                sim.kernel(node, found, f"nfs: server {target} OK")
            if sim.rng.random() < 0.4:
                text = f"INFO: task python3:{31_000 + node.number} blocked for more than 120 seconds."
                sim.kernel(node, at + seconds(125), text)
        record_truth(sim, kind, at, back, "storage_fault", TrueRoot(storage=target), jobs=jobs, nodes=hit)
        return True

    return play


def _straggler(sim: Simulation, at: datetime) -> bool:
    """One GPU runs at a lower clock than the others of its job, without reporting a reason."""
    place = some_gpu(sim, at, idle_share=0)
    if place is None or place.job is None:
        return False
    job = place.job
    for number in range(26 + 2 * COOLING):
        moment = at + seconds(number * SCRAPE_S)
        for pod in job.pods:
            gpus = range(GPUS) if pod.node == place.node else range(0, GPUS, 2)
            for gpu in gpus:
                slow = 4 <= number < 26 and pod.node == place.node and gpu == place.gpu
                about = labels(pod.node, gpu, job)
                clock = 1050.0 if slow else sim.rng.uniform(1940, 1980)
                power = 210.0 if slow else sim.rng.uniform(610, 690)
                sim.sample(pod.node, moment, "DCGM_FI_DEV_SM_CLOCK", round(clock), **about)
                sim.sample(pod.node, moment, "DCGM_FI_DEV_POWER_USAGE", round(power), **about)
                sim.sample(pod.node, moment, "DCGM_FI_DEV_GPU_UTIL", 100, **about)
    record_truth(
        sim, "straggler", at + timedelta(minutes=2), at + timedelta(minutes=18), "straggler",
        place.gpu_root(), jobs=[job], nodes=job.nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "gpu_hot": on_busy_gpu(
        "gpu_hot", "power_cooling", _gpu_hot, root=FaultPlace.gpu_root, accepted=("straggler",)
    ),
    "rack_cooling": _on_a_rack("rack_cooling", _rack_hot),
    "rack_power_brake": _on_a_rack("rack_power_brake", _rack_brake),
    "rack_power_loss": _on_a_rack("rack_power_loss", _rack_off),
    "power_supply": _supply,
    "storage_lustre": _storage("storage_lustre", lustre=True),
    "storage_nfs": _storage("storage_nfs", lustre=False),
    "straggler": _straggler,
}
