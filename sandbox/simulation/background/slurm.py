"""A Slurm cluster's day: interactive jobs that end, run out of time or memory, and what its daemons log of it."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.background.kinds import Play
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node

_SLURMD = (
    "debug:  _rpc_terminate_job: uid = 450 JobId={job}",
    "launch task StepId={job}.0 request from UID:5042 GID:5000 HOST:10.0.9.4 PORT:41300",
    "error: _step_connect: connect() failed for StepId={job}.extern: Connection refused",
    "[{job}.batch] done with job",
)


def _slurm_job(sim: Simulation, node: Node, at: datetime) -> None:
    """Somebody's interactive job."""
    rng, number, ends = sim.rng, sim.rng.randrange(60_000, 70_000), seconds(sim.rng.uniform(30, 380))
    sim.slurmctld(at, f"sched: Allocate JobId={number} NodeList={node.name} #CPUs=12 Partition=interactive")
    chance = rng.random()
    if chance < 0.6:
        sim.slurmctld(at + ends, f"_job_complete: JobId={number} WEXITSTATUS {rng.choice((0, 0, 0, 1, 2))}")
    elif chance < 0.7:
        sim.slurmctld(at + ends, f"_job_complete: JobId={number} OOM failure")
    elif chance < 0.85:
        sim.slurmctld(at + ends, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={number} uid 5042")
    else:
        text = f"error: *** JOB {number} ON {node.name} CANCELLED AT {at + ends:%Y-%m-%dT%H:%M:%S} DUE TO TIME LIMIT ***"
        sim.daemon(node, at + ends, "slurmstepd[7711]", text)


def _slurm_chatter(sim: Simulation, node: Node, at: datetime) -> None:
    """A line of a node's daemon."""
    text = sim.rng.choice(_SLURMD).format(job=sim.rng.randrange(60_000, 70_000))
    sim.daemon(node, at, "slurmd[2203]", text)


KINDS: dict[str, Play] = {"slurm_job": _slurm_job, "slurm_chatter": _slurm_chatter}
