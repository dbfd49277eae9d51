"""A session of diagnostics on the API server: its Jobs are read, judged (`work_session`), and the next one is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.objects import name_of
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_results import LOOK_AGAIN_S, boot_of, is_of
from connectors.kubernetes.work_session import (
    Standing,
    lines_of,
    result_of_session,
    session_job_name,
    standing,
)
from connectors.kubernetes.work_templates import bound
from streams.model.clock import Clock

MayBegin = Callable[[Effect], Awaitable[Object | Outcome]]
"""The node, when work may begin on it now; else why not."""


class SessionJobs:
    """The sessions of one cluster. Errors of the API server are raised: the caller has the retries."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        diagnostics: Sequence[Diagnostic],
        may_begin: MayBegin,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._diagnostics = tuple(diagnostics)
        self._may_begin = may_begin
        self._clock = clock

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Take the session one step further: `Waiting`, finally `Done`, or `Refused` with what failed or stalled.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        found = await self._standing(effect)
        if not isinstance(found, Standing):
            return found
        if found.over:
            told = "; ".join(lines_of(found))
            return Refused(
                f"the validation of {effect.target.name} failed: {found.over}" + _after(told, found.over)
            )
        if found.passed:
            detail = f"{effect.target.name} passed {len(found.ended)} diagnostics on one boot: " + "; ".join(
                lines_of(found)
            )
            begun = bool(effect.prior.get("job"))
            return (
                Done(result_of_session(found), detail)
                if begun
                else AlreadyDone(result_of_session(found), detail)
            )
        if found.running is not None:
            return Waiting(LOOK_AGAIN_S, self._progress(found, effect), result_of_session(found))
        assert found.following is not None
        return await self._begin(found, found.following, effect, lease)

    async def lookup(self, effect: Effect) -> Outcome:
        """Where the session stands. One that has failed is `Waiting`: `apply` reports why."""
        found = await self._standing(effect)
        if not isinstance(found, Standing):
            return found
        if found.passed:
            return AlreadyDone(result_of_session(found), "; ".join(lines_of(found)))
        if found.job is None and not found.ended and not found.over:
            return Absent(f"no diagnostic of {effect.target.name} was begun for this effect")
        return Waiting(0.0, found.over or self._progress(found, effect), result_of_session(found))

    async def _standing(self, effect: Effect) -> Standing | Outcome:
        jobs: dict[str, Object] = {}
        pods: dict[str, list[Object]] = {}
        known = effect.prior.get("jobs")
        begun = set(known) if isinstance(known, tuple) else set()
        for diagnostic in self._diagnostics:
            name = session_job_name(effect, diagnostic)
            try:
                job = await self._cluster.get(self._path(name))
            except NotFound:
                if f"{self._namespace}/{name}" in begun:
                    return Blocked.person(f"someone deleted the Job {self._namespace}/{name}")
                continue
            if not is_of(job, effect):
                return Refused(f"the Job {self._namespace}/{name} was not made for this effect")
            jobs[diagnostic.name] = job
            of_job = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
            listed = await self._cluster.list_all(
                path_of("v1", "pods", namespace=self._namespace), query=of_job
            )
            pods[diagnostic.name] = listed
        try:
            node: Object | None = await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            node = None
        return standing(self._diagnostics, jobs, pods, node, self._clock())

    async def _begin(
        self, found: Standing, diagnostic: Diagnostic, effect: Effect, lease: LeaseHeld
    ) -> Outcome:
        node = await self._may_begin(effect)
        if not isinstance(node, dict):
            return node
        name = session_job_name(effect, diagnostic)
        job = bound(diagnostic.template, effect, self._namespace, boot_of(node), name)
        lease.check()
        try:
            await self._cluster.create(self._path(), job)
        except AlreadyExists:
            return Waiting(0.0, f"the Job {self._namespace}/{name} exists already", result_of_session(found))
        begun = Standing(found.ended, diagnostic, job)
        return Waiting(LOOK_AGAIN_S, self._progress(begun, effect), result_of_session(begun))

    def _progress(self, found: Standing, effect: Effect) -> str:
        doing = found.running or found.following
        number = f"{len(found.ended) + 1} of {len(self._diagnostics)}"
        what = f"{doing.name} ({number})" if doing is not None else f"diagnostic {number}"
        job = f" as {name_of(found.job)}" if found.job is not None else ""
        return f"{what} on {effect.target.name}{job}" + _after("; ".join(lines_of(found)), "")

    def _path(self, name: str | None = None) -> str:
        return path_of("batch/v1", "jobs", namespace=self._namespace, name=name)


def _after(told: str, said: str) -> str:
    """What else is known, unless it was just said."""
    return f"; {told}" if told and (not said or said.partition(" failed")[0] not in told) else ""
