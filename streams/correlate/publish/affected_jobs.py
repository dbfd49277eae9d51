"""The jobs that a fault affects: where they stood when it began, how far they have come, and what they have saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_evidence import placed_at
from streams.correlate.job_rules.pod_failures import is_of_pace
from streams.correlate.node_rules.notices import is_pending
from streams.correlate.policy.config import Config
from streams.correlate.publish.incident_document import Surroundings
from streams.correlate.publish.incident_state import IncidentStates
from streams.correlate.sightings import Sighting
from streams.correlate.state.checkpoints import last_checkpoint
from streams.correlate.state.job_progress import latest_progress
from streams.correlate.state.placement import Placement, Placements
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.pod_victims import MAX_NAMED, died_without_gpu
from streams.correlate.state.rows import PodRow, of_kind
from streams.correlate.state.slurm_victims import job_hit, stood_there
from streams.correlate.state.store import State
from streams.model.entity import JobRef
from streams.model.incident import Progress
from streams.model.kinds import SignalKind


class AffectedJobs:
    """Looks up the jobs that a root affects. `states` tells whether it is over, `pods_failing_on` which pods failed on a node."""

    def __init__(
        self,
        state: State,
        placements: Placements,
        states: IncidentStates,
        config: Config,
        pods_failing_on: Callable[[str], set[str]],
    ) -> None:
        self._state, self._placements = state, placements
        self._states, self._config = states, config
        self._pods_failing_on = pods_failing_on

    def around(self, h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime) -> Surroundings:
        """What the incident's document says besides the root itself. `claims` are the symptoms that it explains, by job."""
        jobs = self.hit(h, now)
        state, closed_at, note = self._states.of(h, bool(jobs), now)
        jobs = self._named_by_lines(h, closed_at or now) | self._without_gpus(h, closed_at or now) | jobs
        for key in claims:
            placed = self._placements.placements_of(key)
            jobs.setdefault(key, placed[0].job if placed else job_ref(key))
        # By job: a rack that loses its power may hold thousands, and none is compared with the pods of all.
        standing: dict[str, list[Placement]] = {}
        for key in sorted(jobs):
            slack = self._config.slack
            there = self._placements.of_job(key, h.fault_at - slack, h.fault_at + slack)
            standing[key] = placed_at(there, h.fault_at, self._config)
        symptoms = {s.id: s for found in claims.values() for s in found}
        # Also from before the fault: a job that used to report progress and reports none now has not recovered.
        progress = tuple(p for key in sorted(jobs) if (p := self._progress(jobs[key])) is not None)
        saved = (
            last_checkpoint(self._state, self._placements, jobs[key], h.fault_at, pods)
            for key, pods in standing.items()
        )
        return Surroundings(
            list(chain.from_iterable(standing.values())),
            list(symptoms.values()),
            list(jobs.values()),
            progress,
            tuple(filter(None, saved)),
            state,
            closed_at,
            note,
            frozenset(key for key, found in claims.items() if found and all(map(is_of_pace, found))),
        )

    def hit(self, h: Hypothesis, now: datetime) -> dict[str, JobRef]:
        """The jobs that run on its nodes when it begins and when it is seen last, and those it names, by key.

        What is announced hits whatever runs there until then, also what comes after the notice.
        """
        jobs = {job.key: job for job in h.jobs}
        if h.spares_jobs:
            return jobs
        moments = {h.fault_at, h.last_at, *([now] if is_pending(h, now) else [])}
        for node in _nodes(h):
            for at in sorted(moments):
                jobs |= {s.job.key: s.job for s in self._placements.on_node(node, at, at)}
        return jobs

    def _named_by_lines(self, h: Hypothesis, open_until: datetime) -> dict[str, JobRef]:
        """The jobs of Slurm that lines about its nodes say to have ended with one or failed on one, by key.

        Whoever started them has to read of it, however small they are and however little else is known of them. They
        do not decide whether there is an incident: Slurm runs most of them again elsewhere by itself.
        """
        if h.spares_jobs:
            return {}
        since, until = h.fault_at - self._config.slack, h.last_at + self._config.missed_late
        if h.stops == "open":
            until = max(until, open_until)
        conditions = (
            s
            for node in _nodes(h)
            if (row := self._state.nodes.get(node)) is not None
            for s in of_kind(row.seen, SignalKind.NODE_CONDITION)
        )
        named = (
            job
            for s in chain(conditions, h.causes)
            if since <= s.at <= until
            and (job := job_hit(s, h.domain)) is not None
            and stood_there(s, self._state.jobs.get(job.key))
        )
        return {job.key: job for job in named}

    def _without_gpus(self, h: Hypothesis, open_until: datetime) -> dict[str, JobRef]:
        """The jobs whose pods came to its nodes, found no usable GPU there and died, by key.

        A node whose GPU software is broken takes one small job after the other. They decide nothing.
        """
        if h.spares_jobs or not any(s.kind.startswith("gpu.") for s in h.causes):
            return {}
        since, until = h.fault_at - self._config.slack, open_until if h.cleared_at is None else h.cleared_at
        found: dict[str, JobRef] = {}
        for node in sorted(_nodes(h)):
            for pod in sorted(self._pods_failing_on(node)):
                found |= died_without_gpu(self._state.pods.get(pod, PodRow()), node, since, until)
        return dict(islice(found.items(), MAX_NAMED))

    def _progress(self, job: JobRef) -> Progress | None:
        at, step = latest_progress(self._state, self._placements, job.key)
        return Progress(job, at, step) if at is not None else None


def _nodes(h: Hypothesis) -> set[str]:
    return ({h.root.node} if h.root.node is not None else set()) | set(h.nodes)
