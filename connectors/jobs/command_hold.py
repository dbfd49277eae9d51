"""What is sent to a Volcano job, and who holds it aborted. Pure decisions over the job as the API server shows it.

A command is an object that the controller deletes first and carries out then, so an object that is gone proves nothing: it may
have been carried out, be about to be, or be lost with a controller that died in between. What has become of it only the job's
phase tells, and `status.retryCount`, which a resume raises. So that none is sent twice, the intent is written on the job first:

    annotation  faultline.dev/incident             for which incident Faultline acted last
    annotation  faultline.dev/effect-suspend_job   key of the effect that aborted it
    annotation  faultline.dev/effect-resume_job    key of the effect that resumed it; absent while Faultline holds it
    annotation  faultline.dev/command              the last command: its name, `status.retryCount` before, when, whether sent

Source: Volcano, "Command"; pkg/controllers/job/state (by which phases a command is carried out).
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from connectors.base import AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Waiting
from connectors.jobs.suspension import (
    PODS_PAUSE_S,
    RESUMED,
    SUSPENDED,
    is_target,
    not_by_any_lever,
    not_ours,
    suspend_annotations_of,
)
from connectors.kubernetes.annotations import DOMAIN, INCIDENT, MANAGED, annotations_of, opted_out
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.objects import name_of
from streams.job_kinds.kind import JobKind
from streams.job_kinds.volcano_job import TURNING, phase, retry_count
from streams.model.clock import parse_rfc3339, rfc3339
from streams.model.errors import BadInput

COMMAND = f"{DOMAIN}/command"
ABORT, RESUME = "AbortJob", "ResumeJob"
LOST_S = 60.0
"""A controller that took a command and has not moved its job by then died in between, or is far behind."""
GRACE_S = 5.0
"""How long the job is watched before a command is sent whose sending may have been lost with its sender."""


@dataclass(frozen=True, slots=True)
class Command:
    """The last command as it is noted on the job. `was` is the job's `status.retryCount` when it was decided."""

    name: str
    was: int
    at: datetime
    sent: bool = False

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.name} {self.was} {rfc3339(self.at)}{' sent' if self.sent else ''}"

    def is_older(self, seconds: float, now: datetime) -> bool:
        """Whether it was decided longer ago."""
        return now - self.at > timedelta(seconds=seconds)


def command_of(job: Object) -> Command | None:
    """The last command; None where there is none, or somebody has changed the annotation."""
    match annotations_of(job).get(COMMAND, "").split():
        case [name, was, at, *sent] if was.isdecimal():
            with suppress(BadInput):
                return Command(name, int(was), parse_rfc3339(at), sent == ["sent"])
    return None


def name_for(key: str, action: str) -> str:
    """The name of a command: the same for every attempt of an effect."""
    return f"faultline-{action.lower()}-{hashlib.sha256(key.encode()).hexdigest()[:20]}"


def undo_key(effect: Effect) -> str:
    """By which key the undo of an effect resumes."""
    return f"{effect.key}/undo"


def abort(job: Object, kind: JobKind, effect: Effect, now: datetime) -> GuardedChange | Outcome:
    """The intent to abort a job; `Waiting` where this effect has it already: see `pending`."""
    marks, aborted, name = suspend_annotations_of(job), kind.is_suspended(job), name_of(job)
    if marks.suspended == effect.key and is_target(job, effect):
        if marks.resumed is not None:
            return AlreadyDone(detail=f"{name} was aborted and is resumed")
        return (
            AlreadyDone(detail=f"{name} is aborted")
            if aborted
            else Waiting(PODS_PAUSE_S, f"{name} is to be aborted")
        )
    if (no := not_by_any_lever(job, kind, effect)) is not None:
        return no
    if marks.held and aborted:
        return Blocked(f"incident {marks.incident}", f"{name} is aborted for {marks.incident} already")
    if aborted:
        return not_ours(marks, f"{name} is aborted, and not by Faultline")
    if marks.held and marks.incident == effect.incident:
        return Blocked.person(f"{name} was resumed manually after Faultline had aborted it")
    if phase(job) in TURNING:
        return Waiting(PODS_PAUSE_S, f"{name} is {phase(job)}: a command would be dropped")
    if why := kind.immovable(job):
        return Refused(f"{name} cannot be aborted and resumed: {why}")
    note = Command(name_for(effect.key, ABORT), retry_count(job), now)
    marked = {INCIDENT: effect.incident, SUSPENDED: effect.key, RESUMED: None, COMMAND: str(note)}
    return GuardedChange({"metadata": {"annotations": marked}}, Waiting(0.0, f"{name} is to be aborted"))


def resume(job: Object, kind: JobKind, effect: Effect, now: datetime) -> GuardedChange | Outcome:
    """The intent to resume a job that this incident aborted; `Waiting` where this effect has it already."""
    marks, aborted, name = suspend_annotations_of(job), kind.is_suspended(job), name_of(job)
    if marks.resumed == effect.key and is_target(job, effect):
        return (
            Waiting(PODS_PAUSE_S, f"{name} is to be resumed")
            if aborted
            else AlreadyDone(detail=f"{name} is resumed")
        )
    if (no := not_by_any_lever(job, kind, effect)) is not None:
        return no
    if not marks.held:
        no_hold = Refused(f"{name} is not aborted")
        return not_ours(marks, f"{name} is aborted, and not by Faultline") if aborted else no_hold
    if marks.incident != effect.incident:
        return Blocked(f"incident {marks.incident}", f"{name} is aborted for {marks.incident}")
    if not aborted:
        return Blocked.person(f"{name} was resumed manually after Faultline had aborted it")
    retries = kind.retries(job)
    if retries is not None and retries.left < 1:
        return Refused(
            f"{name} stays aborted: to resume it takes its last retry and ends it. Its owner submits it anew"
        )
    return _intend(job, effect.key, now)


def take_back(job: Object, kind: JobKind, effect: Effect, now: datetime) -> GuardedChange | Outcome:
    """Undo an abort: the intent to resume, and once that has come to be the annotations off."""
    marks, aborted, name = suspend_annotations_of(job), kind.is_suspended(job), name_of(job)
    undoes = marks.resumed == undo_key(effect)
    if marks.suspended != effect.key or not (marks.held or undoes) or not is_target(job, effect):
        return AlreadyDone(detail=f"{name} is not aborted by this effect")
    if kind.end(job) is not None:
        return AlreadyDone(detail=f"{name} has ended")
    if opted_out(job):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    if undoes and aborted:
        return Waiting(PODS_PAUSE_S, f"{name} is to be resumed")
    if undoes:
        return _forget(f"{name} is resumed")
    note = command_of(job)
    if aborted:
        retries = kind.retries(job)
        if retries is not None and retries.left < 1:
            return Refused(f"{name} stays aborted: to resume it takes its last retry and ends it")
        return _intend(job, undo_key(effect), now)
    if note is None or retry_count(job) > note.was:
        return Blocked.person(f"{name} was resumed manually after Faultline had aborted it")
    if not note.is_older(LOST_S, now):
        return Waiting(PODS_PAUSE_S, f"{name} may still be aborted by the command {note.name}")
    return _forget(f"{name} was never aborted")


def pending(job: Object, kind: JobKind, wanted: str, *, there: bool, now: datetime) -> Outcome | None:
    """What has become of the command that is noted; None where it is to be sent now. `there`: its object is still to be seen."""
    note, name = command_of(job), name_of(job)
    aborts = note is not None and note.name.startswith(f"faultline-{ABORT.lower()}")
    if note is None or aborts is not (wanted == ABORT):
        return Blocked(
            "somebody", f"the annotation {COMMAND} of {name} was changed: what was sent is not known"
        )
    if kind.is_suspended(job) is (wanted == ABORT):
        return Waiting(0.0, f"{name} is {phase(job)}")  # since it was decided to look: the next call sees it
    if there:
        return Waiting(PODS_PAUSE_S, f"Volcano has not yet taken the command {note.name}")
    if retry_count(job) > note.was:
        # Aborted and resumed by a person, or restarted by its policy before the command was taken.
        return Blocked(
            "its restart policy or a person",
            f"{name} was restarted since the command {note.name}: it is not sent again",
        )
    if not note.sent and note.is_older(GRACE_S, now):
        return None
    if note.is_older(LOST_S, now):
        return Blocked(
            "Volcano",
            f"Volcano took the command {note.name} and has not moved {name} since: look at its controller. It is not sent again",
        )
    return Waiting(
        PODS_PAUSE_S, f"Volcano has taken the command {note.name}, {name} is still {phase(job) or 'new'}"
    )


def command(job: Object, kind: JobKind, action: str, note: Command, effect: Effect) -> Object:
    """The object to create."""
    about = job["metadata"]
    owner = {
        "apiVersion": str(job.get("apiVersion") or kind.api_versions[0]),
        "kind": kind.kind,
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "name": note.name,
            "namespace": about["namespace"],
            "ownerReferences": [owner],
            "annotations": {INCIDENT: effect.incident},
        },
        "action": action,
        "target": owner,
        "reason": "Faultline",
        "message": f"incident {effect.incident}",
    }


def _intend(job: Object, key: str, now: datetime) -> GuardedChange:
    note = Command(name_for(key, RESUME), retry_count(job), now)
    marked = {RESUMED: key, COMMAND: str(note)}
    return GuardedChange(
        {"metadata": {"annotations": marked}}, Waiting(0.0, f"{name_of(job)} is to be resumed")
    )


def _forget(detail: str) -> GuardedChange:
    marks = dict.fromkeys((INCIDENT, SUSPENDED, RESUMED, COMMAND))
    return GuardedChange({"metadata": {"annotations": marks}}, Done(detail=detail))
