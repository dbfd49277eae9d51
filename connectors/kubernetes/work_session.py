"""The diagnostics of a node as one session. Pure decisions over Jobs, their pods and the node.

A node comes back only when all diagnostics passed in one session: one after another, all on the boot that the first began on. The
session is the set of Jobs with the names of its effect, so it needs no memory: whoever looks knows where it stands.

A diagnostic that neither starts nor ends is a stalled session: that is said, and the node stays closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from connectors.base import Effect, Result
from connectors.diagnostics.programs import read
from connectors.diagnostics.reading import Reading
from connectors.kubernetes.annotations import WORK_BOOT_ID, annotations_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.objects import name_of
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_results import boot_of, failure, state_of
from streams.model.clock import parse_rfc3339
from streams.model.digest import digest
from streams.model.signal import Attribute

MAX_FIGURES = 40
"""Figures that the result of a session keeps, over all of its diagnostics."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A diagnostic that is over, and what it found."""

    diagnostic: Diagnostic
    job: Object
    reading: Reading


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a session stands: what has ended, what runs, what comes next, and why it can pass no more (`over`)."""

    ended: tuple[Ended, ...] = ()
    running: Diagnostic | None = None
    job: Object | None = None
    following: Diagnostic | None = None
    over: str = ""

    @property
    def passed(self) -> bool:
        """Whether every diagnostic has passed."""
        return not self.over and self.running is None and self.following is None


def session_job_name(effect: Effect, diagnostic: Diagnostic) -> str:
    """The name of the Job of one diagnostic of a session: always the same."""
    return f"faultline-diagnostic-{digest(effect.key, diagnostic.name, size=10)}"


def standing(
    diagnostics: Sequence[Diagnostic],
    jobs: Mapping[str, Object],
    pods: Mapping[str, Sequence[Object]],
    node: Object | None,
    now: datetime,
) -> Standing:
    """Where the session stands. `jobs` and `pods` are by the name of the diagnostic."""
    ended: list[Ended] = []
    boots = {annotations_of(job).get(WORK_BOOT_ID, "") for job in jobs.values()}
    if jobs and (node is None or len(boots | {boot_of(node)}) != 1):
        why = "disappeared" if node is None else "has booted anew"
        return Standing(
            _ended(diagnostics, jobs, pods), over=f"the node {why} during the session: it proves nothing"
        )
    for diagnostic in diagnostics:
        job = jobs.get(diagnostic.name)
        if job is None:
            return Standing(tuple(ended), following=diagnostic)
        if state_of(job) == "running":
            return Standing(tuple(ended), diagnostic, job, over=stalled(diagnostic, job, now))
        found = Ended(diagnostic, job, reading_of(diagnostic, job, pods.get(diagnostic.name, ())))
        ended.append(found)
        if not found.reading.passed:
            return Standing(tuple(ended), over=f"{diagnostic.name} failed: {found.reading}")
    return Standing(tuple(ended))


def reading_of(diagnostic: Diagnostic, job: Object, pods: Sequence[Object]) -> Reading:
    """What the ended Job of a diagnostic has found."""
    message, code = last_words(pods)
    if state_of(job) == "failed":
        if code in (0, None):  # no exit of its own: past its deadline, evicted, or its pod is gone
            return Reading(faults=(failure(job, pods),))
        return read(diagnostic.reads, message, code, diagnostic.limits)
    if not any(_terminated(pod) for pod in pods):
        return Reading(faults=("its pod is gone, and its result with it",))
    return read(diagnostic.reads, message, code, diagnostic.limits)


def result_of_session(standing: Standing) -> Result:
    """The stored result: one line per diagnostic, and its figures by `diagnostic.figure`."""
    jobs = [name_of(one.job) for one in standing.ended] + ([name_of(standing.job)] if standing.job else [])
    boots = [annotations_of(one.job).get(WORK_BOOT_ID, "") for one in standing.ended]
    if standing.job is not None:
        boots.append(annotations_of(standing.job).get(WORK_BOOT_ID, ""))
    figures: dict[str, Attribute] = {
        f"{one.diagnostic.name}.{name}": value
        for one in standing.ended
        for name, value in one.reading.figures.items()
    }
    kept = dict(list(figures.items())[:MAX_FIGURES])
    first = {"job": jobs[0], "boot_id": boots[0]} if jobs else {}
    return {**first, **kept, "jobs": tuple(jobs), "diagnostics": lines_of(standing)}


def lines_of(standing: Standing) -> tuple[str, ...]:
    """One line per diagnostic that has ended."""
    return tuple(
        f"{one.diagnostic.name}: {'passed' if one.reading.passed else 'failed'}, {one.reading}"
        for one in standing.ended
    )


def _ended(
    diagnostics: Sequence[Diagnostic], jobs: Mapping[str, Object], pods: Mapping[str, Sequence[Object]]
) -> tuple[Ended, ...]:
    return tuple(
        Ended(one, job, reading_of(one, job, pods.get(one.name, ())))
        for one in diagnostics
        if (job := jobs.get(one.name)) is not None and state_of(job) != "running"
    )


def stalled(diagnostic: Diagnostic, job: Object, now: datetime) -> str:
    """Why a running diagnostic counts as stalled; empty while it does not. Its own deadline counts from when a pod began."""
    made = job["metadata"].get("creationTimestamp")
    if made is None or now < parse_rfc3339(str(made)) + timedelta(seconds=diagnostic.stall_s):
        return ""
    return f"{diagnostic.name} stalled: it has not ended within {diagnostic.stall_s:.0f} s; its Job is left as it is"


def last_words(pods: Sequence[Object]) -> tuple[str, int | None]:
    """The termination message and exit code that count: of a container that failed, else of the first."""
    ends = [end for pod in pods for end in _terminated(pod)]
    if not ends:
        return "", None
    bad = next((end for end in ends if end.get("exitCode")), ends[0])
    code = bad.get("exitCode")
    return str(bad.get("message") or ""), code if isinstance(code, int) else None


def _terminated(pod: Object) -> list[Mapping[str, Any]]:
    status = pod.get("status", {})
    listed = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return [end for one in listed if (end := (one.get("state") or {}).get("terminated"))]
