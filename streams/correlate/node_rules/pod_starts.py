"""What pods without the GPU runtime that they asked for show about their node, and when they show nothing.

A runtime is asked for by name. A node whose GPU software was replaced by a version that sets it up otherwise has none of that
name, and no pod with GPUs starts there. A pod that asks for one which the cluster never had fails wherever it is put, beside
others that start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.unstarted_pods import POD

JOB = "of_job"
"""Attribute of what a pod shows about its node: the key of the job whose pod it is."""


class Start(NamedTuple):
    """A pod with GPUs that started on the node."""

    placed_at: datetime
    started_at: datetime


def is_asked(s: Sighting) -> bool:
    """Whether the owner of the pod that tells it may have asked in vain for what is missing."""
    rule = families().rule(s)
    return rule is not None and rule.asked


def is_of_one_job(sightings: Iterable[Sighting]) -> bool:
    """Whether all of it is what pods of a single job lack, whose owner may have asked for it in vain."""
    jobs: set[str] = set()
    for s in sightings:
        if not is_asked(s):
            return False
        jobs.add(s.text(JOB))
    return len(jobs) == 1


def of_the_node(
    seen: Sequence[Sighting],
    job_at: Callable[[str, datetime], str | None],
    starts: Callable[[], Sequence[Start]],
) -> list[Sighting]:
    """The sightings of a node, without what speaks of no more than the pods that could not start there.

    Args:
        seen: What is kept of the node.
        job_at: By a pod's key, the job for which it held GPUs then; None where nobody knows of one.
        starts: The pods with GPUs that started on the node; asked for only where it matters.
    """
    asked = sorted(filter(is_asked, seen), key=order)
    if not asked:
        return list(seen)
    started = starts()
    counts: list[Sighting] = []
    for stretch in split_at_gaps(asked, lambda s: s.at, families().recurring.quiet):
        since, until = stretch[0].at, stretch[-1].at
        if not any(since < s.placed_at and s.started_at <= until for s in started):
            jobs = ((s, job_at(s.text(POD), s.at)) for s in stretch)
            counts += (replace(s, attributes={**s.attributes, JOB: job}) for s, job in jobs if job)
    return [*(s for s in seen if not is_asked(s)), *counts]
