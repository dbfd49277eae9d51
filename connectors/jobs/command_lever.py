"""Moves Volcano jobs by commands (`Lever.COMMAND`): AbortJob stops one, ResumeJob starts it again and takes one of its retries.

A command is sent once: what is written before, and what an object that is gone means, stands in `connectors.jobs.command_hold`.
Source: Volcano, "Command" (bus.volcano.sh).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.jobs import command_hold, resume_check
from connectors.jobs.command_hold import ABORT, COMMAND, RESUME, command_of
from connectors.jobs.job_objects import (
    NAMED,
    closed_nodes,
    is_stuck,
    job_of,
    path_of_job,
    pods_of,
    stopped_but_stuck,
)
from connectors.jobs.suspend_lever import gone
from connectors.jobs.suspension import PODS_PAUSE_S, suspend_annotations_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import AlreadyExists, Forbidden, NotFound, Unauthorized
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from streams.job_kinds.kind import JobKind
from streams.job_kinds.rights import how_to_permit
from streams.model.clock import Clock

VERSION, PLURAL = "bus.volcano.sh/v1alpha1", "commands"

Decide = Callable[[Object, JobKind, Effect, datetime], GuardedChange | Outcome]


class CommandLever:
    """A `JobLever` on Volcano's commands.

    A stop is `Done` when the job is Aborted and its pods are gone; or when only pods stuck on dead nodes are left: then with
    `hanging` (their names) and `nodes`, and `drain_node` continues from there.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def stop(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Abort, then wait for the phase and the pods."""
        decided = await self._brought(effect, kind, command_hold.abort, ABORT, lease)
        return await self._until_gone(effect, kind, decided)

    async def start(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Resume, and wait until the phase has moved. Where it comes back its scheduler decides: param `avoid` is only told."""
        resumed = await self._brought(effect, kind, command_hold.resume, RESUME, lease)
        avoid = str(effect.params.get("avoid") or "")
        if not isinstance(resumed, AlreadyDone):
            return resumed
        text = f"{resumed.detail}; it may come back to {avoid}" if avoid else resumed.detail
        return Done(detail=text) if effect.prior else AlreadyDone(detail=text)

    async def find(self, effect: Effect, kind: JobKind) -> Outcome:
        """By the annotations whether it was begun; by phase and pods whether it is over."""

        async def once() -> Outcome:
            try:
                job = await job_of(self._cluster, kind, effect)
            except NotFound:
                return Absent(gone(effect))
            marks = suspend_annotations_of(job)
            stops = effect.action == "suspend_job"
            if (marks.suspended if stops else marks.resumed) != effect.key:
                return Absent()
            if stops and marks.resumed is not None:
                return AlreadyDone()
            if kind.is_suspended(job) is not stops:
                return Waiting(PODS_PAUSE_S, f"the command of this step has not moved {effect.target} yet")
            return AlreadyDone()

        found = await attempted(once)
        return await self._until_gone(effect, kind, found) if effect.action == "suspend_job" else found

    async def take_back(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Resume what this very effect aborted, then take the annotations off."""
        return await self._brought(effect, kind, command_hold.take_back, RESUME, lease)

    async def _brought(
        self, effect: Effect, kind: JobKind, decide: Decide, action: str, lease: LeaseHeld
    ) -> Outcome:
        """Write the intent, send the command that belongs to it, and see what has become of it."""

        async def once() -> Outcome:
            path = await path_of_job(self._cluster, kind, str(effect.target.namespace), effect.target.name)
            missing = Refused(gone(effect), moot=True)
            decided = await change(
                self._cluster,
                path,
                lambda job: decide(job, kind, effect, self._clock()),
                lease,
                if_gone=missing,
            )
            if not isinstance(decided, Waiting):
                return decided
            job = await job_of(self._cluster, kind, effect)
            note = command_of(job)
            if note is None or not _is_noted(job, effect, action):
                return decided
            if decided.after_s > 0:
                there = await self._is_there(job, note.name)
                known = command_hold.pending(job, kind, action, there=there, now=self._clock())
                if known is not None:
                    return (
                        replace(known, result={COMMAND: note.name}) if isinstance(known, Waiting) else known
                    )
            return await self._send(effect, kind, job, action, lease)

        return await attempted(once)

    async def _send(
        self, effect: Effect, kind: JobKind, job: Object, action: str, lease: LeaseHeld
    ) -> Outcome:
        """Create the command, unless it is there, and note that it was sent."""
        note = command_of(job)
        assert note is not None
        body = command_hold.command(job, kind, action, note, effect)
        lease.check()
        try:
            await self._cluster.create(path_of(VERSION, PLURAL, namespace=job["metadata"]["namespace"]), body)
        except AlreadyExists:
            pass  # an earlier call has sent it, and Volcano has not taken it yet
        except Unauthorized:
            raise
        except Forbidden as error:
            return Refused(f"not permitted: {how_to_permit(kind.watched_as[0])} ({error})")
        except NotFound:
            return Refused(f"this cluster serves no Commands of Volcano ({VERSION}): is it installed whole?")
        sent = Waiting(PODS_PAUSE_S, f"{action} is sent to Volcano for {effect.target}", {COMMAND: note.name})
        path = await path_of_job(self._cluster, kind, str(effect.target.namespace), effect.target.name)

        def mark(now: Object) -> GuardedChange | Outcome:
            if command_of(now) != note:
                return sent
            return GuardedChange(
                {"metadata": {"annotations": {COMMAND: str(replace(note, sent=True))}}}, sent
            )

        return await change(self._cluster, path, mark, lease, if_gone=sent)

    async def _is_there(self, job: Object, name: str) -> bool:
        """Whether the object of a command is still to be seen: Volcano deletes it when it takes it."""
        path = path_of(VERSION, PLURAL, namespace=job["metadata"]["namespace"], name=name)
        try:
            await self._cluster.get(path)
        except NotFound:
            return False
        return True

    async def _until_gone(self, effect: Effect, kind: JobKind, decided: Outcome) -> Outcome:
        """An abort is done once the pods are gone."""
        if not isinstance(decided, AlreadyDone):
            return decided

        async def once() -> Outcome:
            job = await job_of(self._cluster, kind, effect)
            if not kind.is_suspended(job):
                return decided
            left = resume_check.unfinished(await pods_of(self._cluster, kind, job))
            ours = bool(effect.prior)
            if not left:
                done = f"{effect.target.namespace}/{effect.target.name} is aborted and its pods are gone"
                return Done(detail=done) if ours else AlreadyDone(detail=done)
            return await self._left(effect, left, ours=ours)

        return await attempted(once)

    async def _left(self, effect: Effect, left: Sequence[Object], *, ours: bool) -> Outcome:
        names = [str(pod["metadata"]["name"]) for pod in left]
        closed = await closed_nodes(self._cluster, left, effect.incident)
        if not all(is_stuck(pod, closed, self._clock()) for pod in left):
            text = f"{len(left)} pods terminating: {', '.join(names[:NAMED])}"
            return Waiting(PODS_PAUSE_S, text, {"aborted": True})
        return stopped_but_stuck(
            f"{effect.target.namespace}/{effect.target.name} is aborted", left, ours=ours
        )


def _is_noted(job: Object, effect: Effect, action: str) -> bool:
    """Whether the command that is noted on the job is that of this effect."""
    note = command_of(job)
    keys = (effect.key, command_hold.undo_key(effect))
    return note is not None and note.name in {command_hold.name_for(key, action) for key in keys}
