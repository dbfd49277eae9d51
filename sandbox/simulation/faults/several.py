"""Faults that coincide: two at once in different places, one while another job goes down, one soon after the job runs again."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults import fabric, gpus, hosts, shared, workloads
from sandbox.simulation.faults.kinds import Kind
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation

_ALONE = {**gpus.KINDS, **hosts.KINDS, **workloads.KINDS, **fabric.KINDS, **shared.KINDS}
_PAIRS = (
    ("gpu_off_bus", "silent_rank"),
    ("gpu_double_bit", "nic_link_down"),
    ("node_panic", "illegal_address"),
    ("pfc_storm_host", "gpu_uncontained"),
    ("gpu_gsp_timeout", "host_oom"),
    ("gpu_off_bus", "node_power_off"),
)
_OF_ROCE = {"nic_link_down", "pfc_storm_host"}


def _two_at_once(sim: Simulation, at: datetime) -> bool:
    """Two faults that have nothing to do with each other, seconds apart on different jobs."""
    if len(sim.free_jobs(at, pods=2)) < 2:
        return False
    pairs = [pair for pair in _PAIRS if sim.has("roce") or not _OF_ROCE.intersection(pair)]
    first, second = sim.rng.choice(pairs)
    if not _ALONE[first](sim, at):
        return False
    later = at + seconds(sim.rng.uniform(0, 8))
    _ALONE[second](sim, later)
    return True


def _in_teardown(sim: Simulation, at: datetime) -> bool:
    """While one job goes down, a GPU of another job breaks: the noise of the first must not hide it."""
    if len(sim.free_jobs(at, pods=2)) < 2 or not workloads.KINDS["user_exception"](sim, at):
        return False
    return gpus.KINDS["gpu_uncontained"](sim, at + seconds(sim.rng.uniform(3, 7))) or True


def _back_to_back(sim: Simulation, at: datetime) -> bool:
    """A job loses a GPU, is started again on other nodes, and loses the next one minutes later: two faults of one job."""
    if not gpus.KINDS["gpu_off_bus"](sim, at):
        return False
    fault = sim.truth.faults[-1]
    jobs = [job for job in sim.jobs if job.ref in fault.jobs and not job.finished]
    if not jobs or jobs[0].since is None:
        return True
    resumed = jobs[0].since + timedelta(minutes=sim.rng.uniform(11, 14))
    sim.release(jobs[0], resumed)
    gpus.break_gpu_of(sim, jobs[0], resumed)
    return True


KINDS: dict[str, Kind] = {
    "two_at_once": _two_at_once,
    "fault_in_teardown": _in_teardown,
    "back_to_back": _back_to_back,
}
