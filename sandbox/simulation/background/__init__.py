"""A full, busy, healthy cluster around the faults: users, schedulers, devices, robots. None of it is a fault.

How often what happens is in `rates.yaml`. Played last, on nodes and at times that no fault touches, with chances of its own: a
fault is the same with and without it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from sandbox.simulation.background import devices, robots, scheduling, slurm, tenants
from sandbox.simulation.background.kinds import Play
from sandbox.simulation.simulation import Simulation
from streams.model.errors import BadInput

KINDS: dict[str, Play] = {
    name: kind
    for module in (tenants, scheduling, devices, robots, slurm)
    for name, kind in module.KINDS.items()
}
TRIES = 4
"""Nodes that are looked at for one item before it is left out."""


class Rate(BaseModel):
    """A row of `rates.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    per_hour: float
    where: Literal["general", "any", "cluster"]
    lasts_s: float = 0.0
    needs: str | None = None


@cache
def rates() -> Mapping[str, Rate]:
    """The rows by name."""
    read = yaml.safe_load((Path(__file__).parent / "rates.yaml").read_text(encoding="utf-8"))
    return {name: Rate.model_validate(row) for name, row in read.items()}


def fill(sim: Simulation, chance: random.Random) -> None:
    """Play the background of the whole run, up to the last thing that a fault emitted.

    Raises:
        BadInput: when the scenario sets the rate of a kind that does not exist.
    """
    wanted = sim.scenario.background
    if unknown := wanted.rates.keys() - KINDS.keys():
        raise BadInput(f"no background {min(unknown)!r}; there are: {', '.join(sorted(KINDS))}")
    sim.rng, sim.horizon = chance, sim.end
    hours = (sim.end - sim.begin) / timedelta(hours=1) * len(sim.cluster.nodes) / 100 * wanted.scale
    # Robots first: pods of tenants then keep away from nodes that are closed or rebooting.
    for name, rate in sorted(rates().items(), key=lambda row: row[0] not in robots.KINDS):
        if rate.needs is None or sim.has(rate.needs):
            expected = wanted.rates.get(name, rate.per_hour) * hours
            # Rounded by chance, so that what is rare happens on a small cluster, too, now and then.
            for _ in range(math.floor(expected + chance.random())):
                _play(sim, name, rate)


def _play(sim: Simulation, name: str, rate: Rate) -> None:
    nodes = sim.general if rate.where == "general" else tuple(sim.cluster.nodes.values())
    lasts = timedelta(seconds=rate.lasts_s)
    for _ in range(TRIES if nodes else 0):
        node = sim.rng.choice(nodes)
        at = sim.begin + (sim.end - sim.begin) * sim.rng.random()
        if rate.where == "cluster" or sim.calm(node, at, at + lasts):
            KINDS[name](sim, node, at)
            sim.truth.background[name] += 1
            return
