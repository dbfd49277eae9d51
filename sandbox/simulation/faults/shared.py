"""Faults that many share: a rack's cooling or power, one GPU's, a supply, a file system; and GPUs that are only slow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sandbox.simulation.faults.hosts import GRACE_S
from sandbox.simulation.faults.kinds import Kind, gpu_root, some_gpu, write_down
from sandbox.simulation.job_failure import again, hang, teardown
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

SCRAPE_S = 30
COOLING = 4
"""Scrapes after the end of a fault that show that all is well."""
HW_THERMAL = 0x8 | 0x40
"""Clocks event reasons: hardware slowdown, because of heat (nvml.h)."""
POWER_BRAKE = 0x8 | 0x80
POWER_CAP = 0x4


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def labels(node: Node, gpu: int, job: Job | None) -> dict[str, str]:
    """Labels of dcgm-exporter."""
    told = {
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
        told |= {"pod": pod.name, "namespace": pod.namespace}
    return told


def heat(stage: Stage, node: Node, gpu: int, job: Job | None, at: datetime, scrapes: int, top: float) -> None:
    """Temperature and clocks of a GPU that is not cooled: it warms up, slows itself down, and cools when that is mended."""
    about = labels(node, gpu, job)
    for number in range(-3, scrapes + COOLING):
        moment = at + _seconds(number * SCRAPE_S)
        warm = min(top, 64.0 + max(0, number + 1) * 14.0) if number < scrapes else 70.0
        reasons = HW_THERMAL if warm >= 89 else POWER_CAP
        stage.sample(node, moment, "DCGM_FI_DEV_GPU_TEMP", warm, **about)
        stage.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", reasons, **about)


def _gpu_hot(stage: Stage, at: datetime) -> bool:
    """One GPU's cooler fails."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    heat(stage, place.node, place.gpu, place.job, at, 16, 93)
    write_down(
        stage, "gpu_hot", at, at + _seconds((16 + COOLING) * SCRAPE_S), "power_cooling", place.root, jobs=[place.job],
        nodes=place.job.nodes, may_cordon=[place.node], accepted=("straggler",),
    )  # fmt: skip
    return True


def _calm_rack(stage: Stage, at: datetime) -> tuple[str, list[Node]] | None:
    racks = sorted({node.rack for node in stage.cluster.nodes.values()})
    stage.rng.shuffle(racks)
    for rack in racks:
        nodes = stage.cluster.in_rack(rack)
        jobs = stage.jobs_on(nodes)
        calm = stage.calm_jobs(at, pods=1)
        if (
            len(nodes) >= 3
            and jobs
            and all(stage.calm(n, at) for n in nodes)
            and all(j in calm for j in jobs)
        ):
            return rack, nodes
    return None


def _on_a_rack(kind: str, play: Callable[[Stage, datetime, list[Node], list[Job]], datetime]) -> Kind:
    """A fault of a whole rack in use; `play` returns when it is over."""

    def on_a_rack(stage: Stage, at: datetime) -> bool:
        found = _calm_rack(stage, at)
        if found is None:
            return False
        rack, nodes = found
        jobs = stage.jobs_on(nodes)
        until = play(stage, at, nodes, jobs)
        hit = {node.name: node for job in jobs for node in job.nodes} | {node.name: node for node in nodes}
        write_down(
            stage, kind, at, until, "power_cooling", TrueRoot(rack=rack), jobs=jobs,
            nodes=[hit[name] for name in sorted(hit)], may_cordon=nodes,
        )  # fmt: skip
        return True

    return on_a_rack


def _rack_hot(stage: Stage, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack's cooling fails: GPUs on all of its nodes grow hot within minutes."""
    for number, node in enumerate(nodes):
        job = next((job for job in jobs if node in job.nodes), None)
        begin = at + _seconds(25 * number + stage.rng.uniform(0, 20))
        for gpu in stage.rng.sample(range(GPUS), 4):
            heat(stage, node, gpu, job, begin, 14, stage.rng.choice((90, 92, 95)))
    return at + timedelta(minutes=12)


def _rack_brake(stage: Stage, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack's power is short: its GPUs are told to brake."""
    for node in nodes:
        job = next((job for job in jobs if node in job.nodes), None)
        begin = at + _seconds(stage.rng.uniform(0, 20))
        for gpu in range(0, GPUS, 2):
            about = labels(node, gpu, job)
            for number in range(-2, 10 + COOLING):
                reasons = POWER_BRAKE if 0 <= number < 10 else POWER_CAP
                moment = begin + _seconds(number * SCRAPE_S)
                stage.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", reasons, **about)
    return at + timedelta(minutes=8)


def _rack_off(stage: Stage, at: datetime, nodes: list[Node], jobs: list[Job]) -> datetime:
    """A rack loses its power: all of its nodes are gone at once, and back after a while."""
    for node in nodes:
        stage.not_ready(node, at + _seconds(stage.rng.uniform(*GRACE_S)))
    until = at
    for node in nodes:
        if not stage.jobs_on([node]):
            stage.ready_again(node, at + timedelta(minutes=25))
    for job in jobs:
        gone = [rank for pod in job.pods if pod.node in nodes for rank in pod.ranks]
        if len(gone) == job.layout.world:
            teardown(stage, job, at, spared=gone)
            until = max(until, again(stage, job, at + timedelta(minutes=7), nodes, still=at))
        else:
            until = max(until, hang(stage, job, at, gone, avoid=[n for n in nodes if n in job.nodes]))
    return until


def _supply(stage: Stage, at: datetime) -> bool:
    """One of a server's power supplies fails; the others carry on."""
    nodes = [node for node in stage.cluster.nodes.values() if stage.calm(node, at)]
    if not nodes:
        return False
    node = stage.rng.choice(nodes)
    number = stage.rng.randrange(1, 7)
    for scrape in range(-2, 8 + COOLING):
        state = 2.0 if 0 <= scrape < 8 else 0.0
        about = {"name": f"PS{number} Status", "type": "Power Supply", "instance": node.name}
        stage.sample(node, at + _seconds(scrape * 30), "ipmi_sensor_state", state, **about)
    write_down(
        stage, "power_supply", at, at + timedelta(minutes=6), "power_cooling", TrueRoot(node=node.name),
        nodes=[node], jobs=stage.jobs_on([node]), may_cordon=[node],
    )  # fmt: skip
    return True


def _storage(kind: str, *, lustre: bool) -> Kind:
    """A file server stops answering: clients everywhere say so, tasks hang on it, jobs stand still until it is back."""

    def play(stage: Stage, at: datetime) -> bool:
        jobs = stage.calm_jobs(at, pods=2)
        if len(jobs) < 2:
            return False
        jobs = stage.rng.sample(jobs, min(len(jobs), 3))
        number = stage.rng.randrange(16)
        # Another file system each time: two targets of one that fail within minutes would be one fault of its server.
        name = ("scratch", "work", "datasets", "models", "home")[len(stage.truth.faults) % 5]
        target = f"{name}-OST{number:04x}" if lustre else f"filer-{name}-{number}.storage"
        address = f"10.0.8.{number + 10}@o2ib"
        back = at + timedelta(minutes=stage.rng.uniform(4, 8))
        hit = [node for job in jobs for node in job.nodes]
        for node in hit:
            lost, found = at + _seconds(stage.rng.uniform(0, 12)), back + _seconds(stage.rng.uniform(0, 10))
            if lustre:
                client = f"Lustre: {target}-osc-ffff9d3fe1c8a000: "
                text = f"Connection to {target} (at {address}) was lost; in progress operations using this service will "
                stage.kernel(node, lost, f"{client}{text}wait for recovery to complete")
                stage.kernel(node, found, f"{client}Connection restored to {address} (at {address})")
            else:
                stage.kernel(node, lost, f"nfs: server {target} not responding, still trying")
                stage.kernel(node, found, f"nfs: server {target} OK")
            if stage.rng.random() < 0.4:
                stage.kernel(
                    node,
                    at + _seconds(125),
                    f"INFO: task python3:{31_000 + node.number} blocked for more than 120 seconds.",
                )
        write_down(stage, kind, at, back, "storage_fault", TrueRoot(storage=target), jobs=jobs, nodes=hit)
        return True

    return play


def _straggler(stage: Stage, at: datetime) -> bool:
    """One GPU runs at a lower clock than the others of its job, without a reason that it would name."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    job = place.job
    for number in range(26 + 2 * COOLING):
        moment = at + _seconds(number * SCRAPE_S)
        for pod in job.pods:
            gpus = range(GPUS) if pod.node == place.node else range(0, GPUS, 2)
            for gpu in gpus:
                slow = 4 <= number < 26 and pod.node == place.node and gpu == place.gpu
                about = labels(pod.node, gpu, job)
                clock = 1050.0 if slow else stage.rng.uniform(1940, 1980)
                power = 210.0 if slow else stage.rng.uniform(610, 690)
                stage.sample(pod.node, moment, "DCGM_FI_DEV_SM_CLOCK", round(clock), **about)
                stage.sample(pod.node, moment, "DCGM_FI_DEV_POWER_USAGE", round(power), **about)
                stage.sample(pod.node, moment, "DCGM_FI_DEV_GPU_UTIL", 100, **about)
    write_down(
        stage, "straggler", at + timedelta(minutes=2), at + timedelta(minutes=18), "straggler",
        gpu_root(place.node, place.gpu), jobs=[job], nodes=job.nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "gpu_hot": _gpu_hot,
    "rack_cooling": _on_a_rack("rack_cooling", _rack_hot),
    "rack_power_brake": _on_a_rack("rack_power_brake", _rack_brake),
    "rack_power_loss": _on_a_rack("rack_power_loss", _rack_off),
    "power_supply": _supply,
    "storage_lustre": _storage("storage_lustre", lustre=True),
    "storage_nfs": _storage("storage_nfs", lustre=False),
    "straggler": _straggler,
}
