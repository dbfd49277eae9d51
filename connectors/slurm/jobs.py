"""Stops jobs of Slurm by putting them back into the queue, held; releases them away from suspects; checks that they run again.

`JobMark` says what was written on the job. It is written before the job is touched, and tells by the count of restarts whether
the job was put back into the queue since: so a crash between any two calls leads to the call that is missing, never to a second
stop of a job that runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.slurm.api import JobUpdate, Missing, SlurmApi
from streams.job_kinds.slurm_job import NO_REQUEUE, SLURM_KIND
from streams.model.clock import Clock, utc_now
from streams.model.errors import BadInput
from streams.model.hostlists import hosts
from streams.model.slurm import Record, SlurmJob, SlurmNode, job_of, node_of
from streams.model.slurm_marks import OPTED_OUT, JobMark, owners_in, unmarked

PAUSE_S = 2.0
REST_S = 1.5
"""Longer than a second by a margin: what `_to_rest` waits for counts whole ones."""
LISTED = 64
SOMEBODY_ELSE = "a hold that is not Faultline's"
HELD = {"held": True}
RESTED = {"rested": True}
JUST_BEGUN = timedelta(seconds=2)
"""A node has its script running by then. With clocks that differ by more, a job that has just begun is not spared."""


class SlurmJobs:
    """What is done to one job. Each call reads the job first."""

    def __init__(self, api: SlurmApi, clock: Clock = utc_now) -> None:
        self._api = api
        self._clock = clock

    async def stop(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Mark it, put it back into the queue, held, and wait until its nodes are free."""
        record = await self._record(effect)
        if isinstance(record, Refused):
            return record
        job, mark = job_of(record), JobMark.of(job_of(record).admin_comment)
        ours = mark if mark is not None and mark.stop == effect.key else None
        if ours is not None and not ours.holds:
            return AlreadyDone(detail=f"{_name(job)} was stopped and is released")
        if ours is not None and (job.held or effect.prior.get("held")):
            return _stopped(job, effect)
        if job.held:
            return _held_by_others(job, mark)
        if (no := _not_to_be_touched(job, effect)) is not None:
            return no
        if reason := SLURM_KIND.means(record).reason:
            return Refused(f"{_name(job)} cannot be put back into the queue: {reason}")
        if job.on_nodes and not self._api.can_requeue:
            return Refused(f"{_name(job)} cannot be put back into the queue: {NO_REQUEUE}")
        if ours is not None and job.restarts > ours.at and job.on_nodes:
            return AlreadyDone(
                detail=f"Slurm itself has put {_name(job)} back into the queue, and it runs again"
            )
        # slurmd would refuse to launch a script whose job is ended already, and Slurm would call that a failure of the job.
        if job.on_nodes and job.started_at and abs(self._clock() - job.started_at) < JUST_BEGUN:
            return Waiting(PAUSE_S, f"{_name(job)} has just begun")
        if ours is None:
            ours = JobMark(effect.incident, effect.key, job.restarts)
            await self._api.update_job(
                job.id, JobUpdate(admin_comment=ours.comment(job.admin_comment)), lease
            )
        if job.on_nodes:
            await self._api.requeue_hold(job.id, lease)
        else:
            await self._api.hold(job.id, lease)
        return Waiting(PAUSE_S, f"{_name(job)} is put back into the queue, held", HELD)

    async def start(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Release it, if this incident stopped it; its next start leaves out the nodes in `avoid`."""
        record = await self._record(effect)
        if isinstance(record, Refused):
            return record
        job, mark = job_of(record), JobMark.of(job_of(record).admin_comment)
        if mark is not None and mark.start == effect.key:
            return await self._finish_start(job, mark, effect, lease)
        if (no := _not_to_be_touched(job, effect)) is not None:
            return no
        if mark is None or not mark.holds:
            return _held_by_others(job, mark) if job.held else Refused(f"{_name(job)} is not held")
        if mark.incident != effect.incident:
            return Blocked(f"incident {mark.incident}", f"{_name(job)} is held for {mark.incident}")
        if job.cleaning_up:
            return Waiting(PAUSE_S, f"processes of {_name(job)} are still ending")
        if not job.held:
            return Blocked.person(f"{_name(job)} was released manually after Faultline had stopped it")
        if (pause := _to_rest(job, mark, effect)) is not None:
            return pause
        try:
            excluded = hosts(job.excluded)
        except BadInput as error:
            return Refused(f"the nodes that {_name(job)} leaves out already cannot be read: {error}")
        avoid = [name for name in str(effect.params.get("avoid") or "").split(",") if name]
        known = {str(record.get("name")) for record in await self._api.nodes()} if avoid else set[str]()
        added = [name for name in avoid if name in known]
        mark = mark.started(effect.key, done=False)
        update = JobUpdate(
            admin_comment=mark.comment(job.admin_comment),
            excluded=sorted({*excluded, *added}) if added else None,
            start_now=True,
        )
        await self._api.update_job(job.id, update, lease)
        return await self._finish_start(job, mark, effect, lease, avoided=added)

    async def _finish_start(
        self, job: SlurmJob, mark: JobMark, effect: Effect, lease: LeaseHeld, avoided: list[str] | None = None
    ) -> Outcome:
        """Release a job that is marked for it, and mark that this was done: a hold from then on is a person's."""
        if mark.done:
            if job.held:
                return Blocked.person(f"{_name(job)} was held manually after Faultline had released it")
            return AlreadyDone(detail=f"{_name(job)} is released")
        if job.held:
            await self._api.release(job.id, lease)
        mark = mark.started(effect.key, done=True)
        await self._api.update_job(job.id, JobUpdate(admin_comment=mark.comment(job.admin_comment)), lease)
        away = f", away from {', '.join(avoided)}" if avoided else ""
        return Done(detail=f"{_name(job)} is released{away}")

    async def take_back(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Undo a stop: release what this very effect holds, and take the mark off."""
        record = await self._record(effect)
        if isinstance(record, Refused):
            return AlreadyDone(detail=record.reason)
        job, mark = job_of(record), JobMark.of(job_of(record).admin_comment)
        interrupted = mark is not None and mark.start == effect.key
        if mark is None or mark.stop != effect.key or not (mark.holds or interrupted):
            return AlreadyDone(detail=f"{_name(job)} is not held by this effect")
        if job.ended:
            return AlreadyDone(detail=f"{_name(job)} has ended")
        if OPTED_OUT in job.comment:
            return Blocked.person(f"{_name(job)} is opted out ({OPTED_OUT} in its comment)")
        if job.cleaning_up and not interrupted:
            return Waiting(PAUSE_S, f"processes of {_name(job)} are still ending")
        if mark.holds and not job.held and job.restarts > mark.at:
            return Blocked.person(f"{_name(job)} was released manually after Faultline had stopped it")
        if job.held:
            if (pause := _to_rest(job, mark, effect)) is not None:
                return pause
            ended = mark.started(effect.key, done=False).comment(job.admin_comment)
            await self._api.update_job(job.id, JobUpdate(admin_comment=ended, start_now=True), lease)
            await self._api.release(job.id, lease)
        # Last: as long as the mark is there, another call knows what is left to do.
        await self._api.update_job(job.id, JobUpdate(admin_comment=unmarked(job.admin_comment)), lease)
        return Done(detail=f"{_name(job)} is released")

    async def find(self, effect: Effect) -> Outcome:
        """Whether an effect was made, for `lookup`. Changes nothing."""
        record = await self._record(effect)
        if isinstance(record, Refused):
            return Absent(record.reason)
        job, mark = job_of(record), JobMark.of(job_of(record).admin_comment)
        if effect.action == "resume_job":
            if mark is None or mark.start != effect.key:
                return Absent()
            # Released, but not marked so: a person's later hold would look like ours.
            return AlreadyDone() if mark.done or job.ended else Absent("it is marked, and not finished yet")
        if mark is None or mark.stop != effect.key:
            return Absent()
        if not mark.holds:
            return AlreadyDone(detail=f"{_name(job)} was stopped and is released")
        stopped = (
            _stopped(job, effect)
            if job.held or job.cleaning_up
            else Absent("it is marked, and not stopped yet")
        )
        return AlreadyDone(stopped.result, stopped.detail) if isinstance(stopped, Done) else stopped

    async def verify(self, effect: Effect) -> Outcome:
        """`Done` with `placements` once it runs, none of its nodes being down or closed by Faultline."""
        record = await self._record(effect)
        if isinstance(record, Refused):
            return record
        job, mark = job_of(record), JobMark.of(job_of(record).admin_comment)
        if job.ended:
            how = ", ".join(sorted(job.states)).lower()
            return (
                Refused(f"{_name(job)} has failed: {how}")
                if job.failed
                else AlreadyDone(detail=f"{_name(job)}: {how}")
            )
        if job.held:
            if mark is not None and (mark.holds or not mark.done):
                return Blocked("Faultline", f"{_name(job)} is held")
            return _held_by_others(job, mark)
        if not job.running:
            why = f": {job.reason}" if job.reason not in ("", "None") else ""
            return Waiting(PAUSE_S, f"{_name(job)} is {', '.join(sorted(job.states)).lower()}{why}")
        try:
            placed = hosts(job.nodes)
        except BadInput as error:
            return Waiting(PAUSE_S, f"{_name(job)} runs, on which nodes cannot be read: {error}")
        if not placed:
            return Waiting(PAUSE_S, f"{_name(job)} runs, and Slurm does not say where")
        nodes = {node.name: node for node in map(node_of, await self._api.nodes())}
        if bad := {name: why for name in placed if (why := _unfit(nodes.get(name)))}:
            unusable = ", ".join(f"{name} ({why})" for name, why in sorted(bad.items()))
            return Waiting(PAUSE_S, f"{_name(job)} runs on nodes that are not usable: {unusable}")
        result: Mapping[str, int | str | tuple[str, ...]] = {
            "placements": tuple(f"{job.id}={name}" for name in sorted(placed)[:LISTED]),
            "nodes": len(placed),
            "restarts": job.restarts,
            "started_at": job.started_at.isoformat() if job.started_at else "",
        }
        return Done(result, f"{_name(job)} runs on {len(placed)} nodes, start {job.restarts + 1}")

    async def _record(self, effect: Effect) -> Record | Refused:
        name = effect.target.name
        if not name.isdecimal():
            return Refused(f"{name} is no number of a job of Slurm")
        try:
            record = await self._api.job(int(name))
        except Missing:
            return Refused(f"Slurm knows no job {name} any more", moot=True)
        uid = job_of(record).uid
        if effect.target.uid not in (None, uid):
            return Refused(f"the number {name} is another job's now ({uid}, planned for {effect.target.uid})")
        return record


def _to_rest(job: SlurmJob, mark: JobMark, effect: Effect) -> Waiting | None:
    """The pause before a job that was put back into the queue is released; None once it was kept.

    A slurmd starts nothing of a job that is not younger, by whole seconds, than the order to end it: the job would count as
    failed. That is why Slurm itself has it wait for two minutes, which costs a big job too much.
    """
    if job.restarts == mark.at or effect.prior.get("rested"):
        return None
    return Waiting(REST_S, f"{_name(job)} is released in {REST_S:g} s", RESTED)


def _stopped(job: SlurmJob, effect: Effect) -> Outcome:
    """What is true of a job that this effect has put back into the queue."""
    if job.cleaning_up:
        return Waiting(PAUSE_S, f"processes of {_name(job)} are still ending on its nodes", HELD)
    if job.held:
        done = f"{_name(job)} is held in the queue, and its nodes are free"
        return Done(detail=done) if effect.prior else AlreadyDone(detail=done)
    if job.ended:
        return Refused(f"{_name(job)} has ended: {', '.join(sorted(job.states)).lower()}", moot=True)
    return Blocked.person(f"{_name(job)} was released manually after Faultline had stopped it")


def _held_by_others(job: SlurmJob, mark: JobMark | None) -> Blocked:
    reason = f"{_name(job)} is held ({job.reason}), and not by this incident"
    if mark is not None and mark.holds:
        return Blocked(f"incident {mark.incident}", f"{_name(job)} is held for {mark.incident} already")
    return Blocked.person(reason) if mark is not None else Blocked(SOMEBODY_ELSE, reason)


def _not_to_be_touched(job: SlurmJob, effect: Effect) -> Refused | None:
    if job.ended:
        moot = not job.failed or effect.action == "suspend_job"
        return Refused(f"{_name(job)} has ended: {', '.join(sorted(job.states)).lower()}", moot=moot)
    if OPTED_OUT in job.comment:
        return Refused(f"{_name(job)} is opted out ({OPTED_OUT} in its comment)")
    return None


def _unfit(node: SlurmNode | None) -> str:
    if node is None:
        return "gone"
    if owners_in(node):
        return "drained by Faultline"
    return "" if node.ready else f"not reached by Slurm{': ' * bool(node.reason)}{node.reason}"


def _name(job: SlurmJob) -> str:
    return f"job {job.id}" + (f" ({job.name})" if job.name else "")
