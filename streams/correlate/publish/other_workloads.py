"""Workloads that are no training jobs and that a shared fault keeps from starting, shown beside its incident for people.

Nothing is decided by them: they are put into a revision after it is known that there is one, and make none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.correlate.hypothesis import Hypothesis
from streams.model.entity import JobRef
from streams.model.incident import Incident, OtherWorkloads

MOST = 20
"""How many an incident names: whoever reads it looks for their own, and a registry may keep a thousand builds from starting."""

KeptFromStarting = Callable[[Hypothesis, Sequence[JobRef]], Sequence[JobRef]]
"""The workloads that a shared fault keeps from starting by their own words, with those of the given ones that still count."""


def beside(
    old: Incident | None, new: Incident, h: Hypothesis, kept_from_starting: KeptFromStarting
) -> OtherWorkloads | None:
    """What the revision `new` shows; what was shown stays, also when its lines are forgotten."""
    before = old.other_workloads if old is not None and old.other_workloads else OtherWorkloads(0, ())
    affected = {job.key for job in new.jobs}
    found = kept_from_starting(h, before.first)
    known = {job.key: job for job in found if job.key not in affected}
    # Of those that were shown only as a number nobody knows more, except that some are among these.
    count = max(len(known), before.count - sum(job.key not in known for job in before.first))
    return OtherWorkloads(count, tuple(known[key] for key in sorted(known)[:MOST])) if known else None
