"""A campaign: jobs on a cluster, faults and look-alikes played on it one after the other, and the capture of it."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from faultline.replay.capture import Capture, Meta
from sandbox.simulation import background, faults, look_alikes, sites
from sandbox.simulation.layout import Layout
from sandbox.simulation.output import seconds
from sandbox.simulation.scenario import Scenario
from sandbox.simulation.shippers import ship
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, SimulatedCluster
from sandbox.simulation.truth import Truth
from sandbox.simulation.workload import Job
from streams.model.errors import BadInput

BEGIN = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
WARM_UP = timedelta(minutes=15)
TEAMS = ("team-language", "team-speech", "team-vision", "team-robots")
"""The namespaces of training jobs."""
LONGEST = timedelta(hours=36)
"""A campaign that finds no free place for its next fault gives up after this."""


class NoPlace(BadInput):
    """The cluster has no place for any fault of the scenario: it is too small, or has no second leaf."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A capture and what is true about it."""

    capture: Capture
    truth: Truth
    site: str
    """The name of the kind of site it was played on."""


def simulate(scenario: Scenario, seed: int) -> Simulated:
    """Play a scenario. The same scenario and seed give the same bytes.

    Raises:
        NoPlace: when none of its faults found a place.
        BadInput: when the scenario names a kind that does not exist.
    """
    name = f"{scenario.name}/{scenario.plant.nodes}/{seed}"
    rng = random.Random(name)
    needs = [faults.needs(kind) for kind in scenario.campaign.kinds]
    turn = zlib.crc32(scenario.name.encode()) + seed
    chosen = sites.choose(scenario.site, needs, turn, scenario.plant.nodes)
    if chosen is None:
        raise NoPlace(f"{scenario.name}: no fault of it can happen at {scenario.site or 'any site'}")
    site = sites.sites()[chosen]
    scenario = scenario.at(chosen, nodes_per_rack=site.nodes_per_rack, nodes_per_leaf=site.nodes_per_leaf)
    cluster = SimulatedCluster.build(scenario.plant, site, rng)
    sim = Simulation(scenario, cluster, rng, BEGIN)
    _fill(sim)
    (_play_faults if scenario.campaign.kinds else _play_quiet_day)(sim)
    sim.log_progress_to_end()
    background.fill(sim, random.Random(f"{name}/background"))
    if site.topology == "lldp" and scenario.plant.cabled:
        _learn_neighbours(sim)
    records = ship(sim.records, site, scenario.noise, rng)
    last = max([sim.end, *(topic[-1].timestamp for topic in records.values())])
    meta = Meta(cluster.name, BEGIN, last + timedelta(minutes=5))
    changes = tuple(sorted(sim.changes, key=lambda change: change.at))
    topology = sim.first_cabling if scenario.plant.cabled and site.topology == "configured" else ""
    return Simulated(Capture(meta, records, changes, topology), sim.truth, chosen)


def _learn_neighbours(sim: Simulation) -> None:
    """Switches report what is attached to their ports, at the beginning and again every hour."""
    at = sim.begin
    while at < sim.end:
        for node in sim.cluster.nodes.values():
            host = sim.cluster.site.host(node.name, "fqdn")
            for nic in range(GPUS):
                moment = at + seconds(sim.rng.uniform(0, 30))
                sim.neighbour(node.leaf, moment, node.port(nic), host, node.netdev(nic))
        at += timedelta(hours=1)


def _fill(sim: Simulation) -> None:
    """Start jobs until the cluster is as busy as the scenario says."""
    spec, rng = sim.scenario.jobs, sim.rng
    free = list(sim.cluster.nodes.values())
    budget = int(len(free) * spec.busy)
    general = max(1, round(len(free) * spec.general)) if spec.general else 0
    free, sim.general = free[: len(free) - general], tuple(free[len(free) - general :])
    if rng.random() < 0.5:
        rng.shuffle(free)  # a scheduler that knows no topology
    while True:
        fitting = [count for count in spec.nodes if count <= budget]
        if not fitting:
            return
        count = rng.choice(fitting)
        budget -= count
        nodes, free = free[:count], free[count:]
        sim.add_job(_job(sim, count), nodes, sim.begin)


def _job(sim: Simulation, nodes: int) -> Job:
    spec, rng = sim.scenario.jobs, sim.rng
    world = nodes * GPUS
    cuts = [
        (t, p) for t in spec.tensor for p in spec.pipeline if world % (t * p) == 0 and world // (t * p) > 0
    ]
    tensor, pipeline = rng.choice(cuts)
    release = rng.choice(spec.torch)
    old = release in ("2.0", "2.1") and rng.random() < 0.5
    number = len(sim.jobs) + 1
    return Job(
        kind=rng.choice(spec.controllers or sim.cluster.site.controllers),
        namespace=rng.choice(TEAMS),
        name=f"{rng.choice(('llm', 'moe', 'asr', 'vlm', 'diffusion'))}-{number:03d}",
        layout=Layout(world, tensor, pipeline),
        release=release,
        timeout=seconds(1800 if old else spec.timeout_s),
        logs_init=rng.random() < 0.25,
        desync=rng.random() < 0.15,
        dumps=release in ("2.4", "2.5", "2.7") and rng.random() < 0.15,
        step=rng.randrange(1_000, 500_000),
        number=str(48_000 + number),
    )


def _play_quiet_day(sim: Simulation) -> None:
    """Nothing but look-alikes, by the clock."""
    scenario, at = sim.scenario, sim.begin + WARM_UP
    sim.end = sim.begin + timedelta(hours=scenario.campaign.hours)
    an_hour = scenario.look_alikes.per_hour * scenario.plant.nodes / 100
    while an_hour and at < sim.end - WARM_UP:
        look_alikes.play(sim, at)
        at += timedelta(hours=sim.rng.expovariate(an_hour))


def _play_faults(sim: Simulation) -> None:
    campaign, rng = sim.scenario.campaign, sim.rng
    wanted = campaign.faults + round(campaign.per_hundred_nodes * sim.scenario.plant.nodes / 100)
    at, done = sim.begin + WARM_UP, 0
    due = 0.0  # look-alikes still to be played
    kinds = [kind for kind in campaign.kinds if faults.needs(kind) <= sim.cluster.site.features]
    offset = rng.randrange(len(kinds))
    while done < wanted and at - sim.begin < LONGEST:
        sim.install_replacements(at)
        kind = kinds[(done + offset) % len(kinds)]
        if faults.inject(kind, sim, at):
            done += 1
            due += sim.scenario.look_alikes.per_fault
        while due >= 1 and look_alikes.play(sim, at + seconds(rng.uniform(0, campaign.spacing_s))):
            due -= 1
        at += seconds(rng.uniform(0.4, 1.6) * campaign.spacing_s)
    for _ in range(200):  # those that found no free place meanwhile
        if due < 1:
            break
        at += seconds(rng.uniform(20, 90))
        sim.install_replacements(at)
        due -= look_alikes.play(sim, at)
    if wanted and not done:
        raise NoPlace(f"{sim.scenario.name}: no fault found a place on {sim.scenario.plant.nodes} nodes")
