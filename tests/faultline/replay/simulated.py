"""Simulated captures by the name of their scenario, each played once in a process."""

from functools import cache
from pathlib import Path

from faultline.replay.capture import Capture
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import pick

SCENARIOS = Path(__file__).parents[3] / "bench" / "scenarios.yaml"


@cache
def simulated(name: str, seed: int = 1) -> Capture:
    """What the shippers of a simulated cluster sent."""
    return simulate(pick(SCENARIOS, name), seed).capture
