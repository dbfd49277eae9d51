"""Faults of the network: NICs, cables, leafs, uplinks, and pause storms (sonic-swss, pfcwdorch; mlx5 counters)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sandbox.simulation import framework_logs
from sandbox.simulation.faults.kinds import FaultPlace, Kind, some_gpu, write_down
from sandbox.simulation.job_failure import again, retries, teardown
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, PRIORITY, Leaf, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

SCRAPE_S = 15
FULL_US = 980_000.0
"""Microseconds of pause in a second of a storm."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def port_state(stage: Stage, leaf: Leaf, port: str, at: datetime, state: str, *, vital: bool = False) -> None:
    """A switch says that a port went up or down."""
    if leaf.vendor == "sonic":
        before = "down" if state == "up" else "up"
        text = f"updatePortOperStatus: Port {port} oper state set from {before} to {state}"
        stage.switch(leaf, at, "swss#orchagent", text, vital=vital)
    else:
        text = f"Line protocol on Interface {port}, changed state to {state}"
        stage.switch(leaf, at, "%LINEPROTO-5-UPDOWN", text, vital=vital)


def nic_state(stage: Stage, node: Node, nic: int, at: datetime, state: str, *, vital: bool = False) -> None:
    """A host's driver says that a link went up or down."""
    stage.kernel(node, at, f"mlx5_core {node.nic_pci(nic)} {node.netdev(nic)}: Link {state}", vital=vital)


def watchdog(
    stage: Stage, leaf: Leaf, port: str, at: datetime, *, restored: bool = False, vital: bool = False
) -> None:
    """A switch's PFC watchdog speaks of a port on which it receives pause without end."""
    if leaf.vendor == "sonic":
        what = "storm restored" if restored else "detected PFC storm"
        handler = "report_clear_pfc_storm" if restored else "startWdActionOnQueue"
        text = (
            f"{handler}: PFC Watchdog {what} on port {port}, queue index {PRIORITY}, queue id 0x150000000005bb and "
            "port id 0x1000000000003"
        )
        stage.switch(leaf, at, "swss#orchagent", text, vital=vital)
    else:
        what = "RESTORED" if restored else "STORM"
        text = f"Priority-flow-control watchdog: {'recovered' if restored else 'storm'} on {port} for priority {PRIORITY}"
        stage.switch(leaf, at, f"%PFC-4-PRIORITY_FLOW_CONTROL_WATCHDOG_{what}", text, vital=vital)


def pauses(stage: Stage, node: Node, nic: int, at: datetime, way: str, fractions: Sequence[float]) -> None:
    """Scrapes of a NIC's pause counter, one for each fraction of time it was paused since the last."""
    value = 4_000_000.0 + node.number * 1000
    for number, fraction in enumerate(fractions):
        value += fraction * 1_000_000 * SCRAPE_S
        moment = at + _seconds(number * SCRAPE_S)
        labels = {"device": node.netdev(nic), "instance": f"{node.name}:9100", "job": "node-exporter"}
        stage.sample(
            node, moment, f"node_ethtool_{way}_prio{PRIORITY}_pause_duration", round(value), **labels
        )


def network_failure(
    stage: Stage, job: Job, at: datetime, node: Node, nics: Iterable[int], avoid: Iterable[Node] = ()
) -> datetime:
    """A job loses the way to some NICs of one of its nodes, gives up and is started again."""
    first = job.nodes.index(node) * GPUS
    last = retries(stage, job, at, range(first, first + GPUS), nics)
    down = last + _seconds(stage.rng.uniform(2, 8))
    teardown(stage, job, down)
    return again(stage, job, down + _seconds(8), avoid, still=at)


def _placed(stage: Stage, at: datetime) -> FaultPlace | None:
    place = some_gpu(stage, at, idle_share=0)
    return place if place is not None and place.node.name in stage.cabled else None


def _nic_down(stage: Stage, at: datetime) -> bool:
    """A NIC's link goes down for good: host and switch say so, peers get no answer on its rail."""
    place = _placed(stage, at)
    if place is None or place.job is None:
        return False
    node, nic, job = place.node, place.gpu, place.job
    nic_state(stage, node, nic, at, "down", vital=True)
    port_state(stage, node.leaf, node.port(nic), at + _seconds(0.3), "down")
    pod = job.pod_of(place.rank)
    stage.pod(
        pod, at + _seconds(1), framework_logs.port_error(pod.name, pod.pid(place.rank), nic, node.nic(nic))
    )
    nodes = job.nodes
    until = network_failure(stage, job, at, node, [nic], [node])
    _nic_truth(stage, "nic_link_down", at, until, place, nodes)
    return True


def _nic_truth(
    stage: Stage, kind: str, at: datetime, until: datetime, place: FaultPlace, nodes: list[Node]
) -> None:
    node, jobs = place.node, [place.job] if place.job else []
    root = TrueRoot(node=node.name, nic=node.nic(place.gpu))
    write_down(stage, kind, at, until, "nic_link", root, jobs=jobs, nodes=nodes, may_cordon=[node])


def _nic_flap(stage: Stage, at: datetime) -> bool:
    """A link goes down and up again, again and again."""
    place = _placed(stage, at)
    if place is None or place.job is None:
        return False
    node, nic, moment = place.node, place.gpu, at
    for _ in range(stage.rng.randrange(5, 9)):
        nic_state(stage, node, nic, moment, "down", vital=True)
        port_state(stage, node.leaf, node.port(nic), moment + _seconds(0.2), "down")
        back = moment + _seconds(stage.rng.uniform(2, 8))
        nic_state(stage, node, nic, back, "up", vital=True)
        port_state(stage, node.leaf, node.port(nic), back + _seconds(0.2), "up")
        moment = back + _seconds(stage.rng.uniform(15, 50))
    nodes = place.job.nodes
    until = network_failure(stage, place.job, moment - _seconds(5), node, [nic], [node])
    _nic_truth(stage, "nic_flap", at, until, place, nodes)
    return True


def _cable(stage: Stage, at: datetime) -> bool:
    """An optical module fails and takes its link along."""
    place = _placed(stage, at)
    if place is None or place.job is None:
        return False
    node, nic = place.node, place.gpu
    what = stage.rng.choice(("Cable error, High Temperature", "Cable error, Bad or shorted cable/module"))
    stage.kernel(
        node, at, f"mlx5_core {node.nic_pci(nic)}: Port module event[error]: module 0, {what}", vital=True
    )
    down = at + _seconds(stage.rng.uniform(0.5, 20))
    nic_state(stage, node, nic, down, "down", vital=True)
    port_state(stage, node.leaf, node.port(nic), down + _seconds(0.3), "down")
    nodes = place.job.nodes
    until = network_failure(stage, place.job, down, node, [nic], [node])
    _nic_truth(stage, "nic_cable", at, until, place, nodes)
    return True


def _leaf_jobs(stage: Stage, leaf: Leaf, at: datetime) -> list[Job] | None:
    """The jobs under a leaf, when all of them and their nodes are calm."""
    under = stage.cluster.under(leaf)
    jobs = stage.jobs_on(under)
    calm = stage.calm_jobs(at, pods=1)
    free = all(stage.calm(node, at) for node in under) and all(job in calm for job in jobs)
    return jobs if jobs and free else None


def _quiet_leaf(stage: Stage, at: datetime) -> tuple[Leaf, list[Job]] | None:
    leafs = list(stage.cluster.leafs)
    stage.rng.shuffle(leafs)
    for leaf in leafs:
        if (jobs := _leaf_jobs(stage, leaf, at)) is not None:
            return leaf, jobs
    return None


def _leaf_down(stage: Stage, at: datetime) -> bool:
    """A leaf dies: every host under it loses every link within seconds, and comes back when it has started again."""
    found = _quiet_leaf(stage, at)
    if found is None:
        return False
    leaf, jobs = found
    nodes = stage.cluster.under(leaf)
    back = at + timedelta(minutes=stage.rng.uniform(6, 12))
    for node in nodes:
        for nic in range(GPUS):
            nic_state(stage, node, nic, at + _seconds(stage.rng.uniform(0, 2)), "down", vital=True)
            nic_state(stage, node, nic, back + _seconds(stage.rng.uniform(0, 4)), "up", vital=True)
    until, hit = back, set(nodes)
    for job in jobs:
        mine = [pod for pod in job.pods if pod.node.leaf == leaf]
        gone = [rank for pod in mine for rank in pod.ranks]
        hit |= set(job.nodes)
        last = retries(stage, job, at, gone)
        if last == at and len(mine) == len(
            job.pods
        ):  # all of it stands under the leaf: everybody fails to reach everybody
            last = _mutual(stage, job, at)
        teardown(stage, job, last + _seconds(4))
        until = max(until, again(stage, job, back + _seconds(30), still=at))
    write_down(
        stage, "leaf_down", at, until, "fabric_fault", TrueRoot(switch=leaf.name), jobs=jobs,
        nodes=sorted(hit, key=lambda n: n.name),
    )  # fmt: skip
    return True


def _mutual(stage: Stage, job: Job, at: datetime) -> datetime:
    last = at
    for pod in job.pods[: len(job.pods) // 2]:
        last = max(last, retries(stage, job, at, pod.ranks))
    return last


def _uplink(stage: Stage, at: datetime) -> bool:
    """An uplink of a leaf goes down: jobs that reach beyond the leaf fail on edges that cross it."""
    leafs = list(stage.cluster.leafs)
    stage.rng.shuffle(leafs)
    for leaf in leafs:
        jobs = _leaf_jobs(stage, leaf, at)
        crossing = [j for j in jobs or () if any(n.leaf != leaf for n in j.nodes)]
        if jobs is None or not crossing:
            continue
        port = leaf.uplink(stage.rng.randrange(stage.cluster.spec.spines))
        port_state(stage, leaf, port, at, "down", vital=True)
        until, hit = at, {node for job in crossing for node in job.nodes}
        for job in crossing:
            gone = [rank for pod in job.pods if pod.node.leaf == leaf for rank in pod.ranks]
            last = retries(stage, job, at, gone, stage.rng.sample(range(GPUS), 3))
            teardown(stage, job, last + _seconds(4))
            until = max(until, again(stage, job, last + _seconds(12), still=at))
        back = until + timedelta(minutes=2)
        port_state(stage, leaf, port, back, "up", vital=True)
        write_down(
            stage, "uplink_down", at, back, "fabric_fault", TrueRoot(switch=leaf.name, port=port), jobs=crossing,
            nodes=sorted(hit, key=lambda n: n.name),
        )  # fmt: skip
        return True
    return False


def _storm(kind: str, *, counters: bool, port: bool) -> Kind:
    """A NIC pauses its switch without end. The switch's watchdog sees it, the host's counters too, neighbours are throttled."""

    def play(stage: Stage, at: datetime) -> bool:
        place = _placed(stage, at)
        if place is None or place.job is None:
            return False
        node, nic, job = place.node, place.gpu, place.job
        leaf = node.leaf
        nodes = job.nodes
        until = network_failure(stage, job, at, node, [nic], [node])
        # The NIC is reset when its node has been emptied; then it pauses nobody any more.
        scrapes = int((until - at).total_seconds() // SCRAPE_S)
        if port:
            watchdog(stage, leaf, node.port(nic), at + _seconds(0.3), vital=True)
            for number in range(stage.rng.randrange(2, 6)):  # while it lasts it is found again and again
                moment = at + _seconds(20 * number + 4)
                watchdog(stage, leaf, node.port(nic), moment, restored=True)
                watchdog(stage, leaf, node.port(nic), moment + _seconds(0.4), vital=True)
            watchdog(stage, leaf, node.port(nic), until, restored=True, vital=True)
        if counters:
            before = at - _seconds(stage.rng.uniform(0, SCRAPE_S))
            pauses(
                stage, node, nic, before, "transmitted", [0.001, *[FULL_US / 1e6] * scrapes, 0.0, 0.0, 0.0]
            )
        neighbours = [n for n in stage.cluster.under(leaf) if n is not node][:6]
        for other in neighbours:
            fractions = [0.0, *(stage.rng.uniform(0.2, 0.98) for _ in range(scrapes)), 0.0, 0.0, 0.0]
            pauses(stage, other, nic, at - _seconds(stage.rng.uniform(0, SCRAPE_S)), "received", fractions)
        root = TrueRoot(node=node.name, nic=node.nic(nic))
        write_down(
            stage, kind, at, until, "pfc_storm", root, jobs=[job], nodes=[*nodes, *neighbours],
            may_cordon=[node], roots=(TrueRoot(node=node.name), TrueRoot(switch=leaf.name, port=node.port(nic))),
        )  # fmt: skip
        return True

    return play


def _cycle(stage: Stage, at: datetime) -> bool:
    """Uplinks of several leafs pause each other in a ring, without a host that began it: nothing to close."""
    leafs = stage.cluster.leafs
    if len(leafs) < 2:
        return False
    ring = stage.rng.sample(list(leafs), min(3, len(leafs)))
    hit = [node for leaf in ring for node in stage.cluster.under(leaf)]
    if not all(stage.calm(node, at) for node in hit):
        return False
    for turn in range(4):
        for number, leaf in enumerate(ring):
            moment = at + _seconds(turn * 25 + number * 0.3)
            port = leaf.uplink(number % stage.cluster.spec.spines)
            if turn:
                watchdog(stage, leaf, port, moment - _seconds(3), restored=True)
            watchdog(stage, leaf, port, moment, vital=True)
    for number, leaf in enumerate(ring):
        port = leaf.uplink(number % stage.cluster.spec.spines)
        watchdog(stage, leaf, port, at + _seconds(150 + number), restored=True, vital=True)
    write_down(
        stage, "pause_cycle", at, at + timedelta(minutes=4), "pfc_storm", TrueRoot(switch=ring[0].name), nodes=hit,
        accepted=("fabric_fault",), roots=tuple(TrueRoot(switch=leaf.name) for leaf in ring[1:]),
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "nic_link_down": _nic_down,
    "nic_flap": _nic_flap,
    "nic_cable": _cable,
    "leaf_down": _leaf_down,
    "uplink_down": _uplink,
    "pfc_storm_host": _storm("pfc_storm_host", counters=True, port=True),
    "pfc_storm_port": _storm("pfc_storm_port", counters=False, port=True),
    "pfc_storm_counters": _storm("pfc_storm_counters", counters=True, port=False),
    "pause_cycle": _cycle,
}
