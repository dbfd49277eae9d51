"""Jobs whose pods found no usable GPU on a node and died there, whatever they are for.

A node whose GPU software is broken takes one small job after the other: each starts, and ends at its first call of CUDA, as its
own output shows.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.correlate.state.rows import PodRow, of_kind
from streams.model.entity import JobRef
from streams.model.kinds import SignalKind

MAX_NAMED = 2000
"""Of one incident: its document has an end."""
_APART = timedelta(minutes=1)
"""A line is read, and a pod watched, by two clocks."""


def finds_no_gpu(seen: Sighting) -> bool:
    """Whether a program says that CUDA found no usable GPU where it stood."""
    if seen.kind != SignalKind.JOB_FAILED or seen.text("subtype") != "cuda_error" or not seen.firing:
        return False
    rule = families().rule(seen)
    return rule is not None and rule.starts


def died_without_gpu(row: PodRow, node: str, since: datetime, until: datetime) -> dict[str, JobRef]:
    """By key: the jobs of which a pod of this name found no usable GPU on the node in that time, as it said, and ended badly."""
    said = [
        s.at for s in of_kind(row.seen, SignalKind.JOB_FAILED) if finds_no_gpu(s) and since <= s.at <= until
    ]
    found = {}
    for pod in (t.fact for t in row.tenancies) if said else ():
        began, ended = pod.started_at or pod.scheduled_at or pod.created_at, pod.ended_at
        if pod.job is None or pod.node != node or pod.phase != "Failed" or began is None or ended is None:
            continue
        if any(began - _APART <= at <= ended + _APART for at in said):
            found[pod.job.key] = pod.job
    return found
