"""Things that resemble faults: what users, schedulers, monitors and healthy hardware do all day. None may close a node."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.look_alikes import devices, network, people
from sandbox.simulation.look_alikes.kinds import ALONE, Play
from sandbox.simulation.timeline import Stage
from sandbox.simulation.truth import LookAlike
from streams.model.errors import BadInput

KINDS: dict[str, Play] = {
    name: kind for module in (devices, network, people) for name, kind in module.KINDS.items()
}


def play(stage: Stage, at: datetime) -> bool:
    """Play one of those that the scenario names, on a node where nothing else happens; False when there is none."""
    wanted = stage.scenario.look_alikes.kinds or tuple(KINDS)
    kind = stage.rng.choice(wanted)
    if kind not in KINDS:
        raise BadInput(f"no look-alike {kind!r}; there are: {', '.join(sorted(KINDS))}")
    calm = [node for node in stage.cluster.nodes.values() if stage.calm(node, at)]
    if not calm:
        return False
    node = stage.rng.choice(calm)
    KINDS[kind](stage, node, at)
    stage.occupy(at + ALONE, [node])
    stage.truth.look_alikes.append(LookAlike(kind, at, node.name))
    return True
