"""Who asked a job for a checkpoint, and what it says of its last one: pure decisions over the job object.

Written on the job, before it is asked in any other way, so that it is asked once:

    annotation  faultline.dev/checkpoint-requested-at      when, as RFC 3339: a trainer may watch it
    annotation  faultline.dev/checkpoint-requested-for     the incident, and the job's incarnation where its kind tells
    annotation  faultline.dev/effect-request_checkpoint    key of the effect
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from connectors.base import Effect, Outcome, Waiting
from connectors.jobs.suspension import not_to_be_touched
from connectors.kubernetes.annotations import DOMAIN, annotations_of, effect_mark
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import GuardedChange
from streams.job_kinds.checkpoint_way import checkpoint_at, declared
from streams.job_kinds.kind import JobKind
from streams.model.clock import rfc3339
from streams.model.kube_objects import time

REQUESTED_AT = f"{DOMAIN}/checkpoint-requested-at"
REQUESTED_FOR = f"{DOMAIN}/checkpoint-requested-for"
REQUESTED_BY = effect_mark("request_checkpoint")


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the job bears. `saved_at`: it has reported a checkpoint since."""

    at: datetime
    ours: bool
    """Whether it is this very effect's."""
    saved_at: datetime | None


def request_on(job: Object, kind: JobKind, effect: Effect, now: datetime) -> Request | None:
    """The request that stands for this effect: its own, one of the same incident to the same incarnation of the job, or one of
    another incident that the job still has time to answer. None where it has to be asked."""
    marks = annotations_of(job)
    at = time(marks, REQUESTED_AT)
    if at is None:
        return None
    ours = marks.get(REQUESTED_BY) == effect.key
    under_way = at <= now < at + timedelta(seconds=declared(job).within_s)
    if not (ours or under_way or marks.get(REQUESTED_FOR) == _for(job, kind, effect)):
        return None
    saved = checkpoint_at(job)
    return Request(at, ours, saved if saved is not None and saved > at else None)


def ask(job: Object, kind: JobKind, effect: Effect, now: datetime, then: Outcome) -> GuardedChange | Outcome:
    """Write the request on the job, where it may be touched and bears none; `then` only where this call has written it."""
    if request_on(job, kind, effect, now) is not None:
        return Waiting(0.0, "somebody else has asked meanwhile")
    if (no := not_to_be_touched(job, kind, effect)) is not None:
        return no
    marks = {
        REQUESTED_AT: rfc3339(now),
        REQUESTED_FOR: _for(job, kind, effect),
        REQUESTED_BY: effect.key,
    }
    return GuardedChange({"metadata": {"annotations": marks}}, then)


def _for(job: Object, kind: JobKind, effect: Effect) -> str:
    incarnation = kind.incarnation(job)
    return f"{effect.incident}/{incarnation}" if incarnation else effect.incident
