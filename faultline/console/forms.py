"""What people send: a form, and the command that it gives. Pure, but for the reading.

Whether a decision counts is the responder's business alone. Here only who sends it is proven, and that it says what it has to.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import parse_qsl

from aiohttp import web

from faultline.console.sessions import Person
from streams.model.conversation import Command, Verb
from streams.model.digest import digest
from streams.model.errors import BadInput
from streams.model.message import plain

MAX_FORM = 64 * 1024
MAX_FIELDS = 20
MAX_REASON = 2_000
MAX_STEP = 1_000
MAX_MINUTES = 7 * 24 * 60

WORDS: Mapping[Verb, str] = {
    Verb.APPROVE: "Approve",
    Verb.REJECT: "Reject",
    Verb.ACK: "Acknowledge",
    Verb.HAND_OVER: "Hand over to me",
    Verb.SNOOZE: "Snooze",
    Verb.SILENCE: "Silence",
    Verb.STOP: "Stop the run",
    Verb.RESOLVE: "Resolve",
    Verb.NOTE: "Add note",
}
"""The decisions that the console takes, as their buttons say them."""

_NEEDS_REASON = {Verb.REJECT: "why it is rejected", Verb.NOTE: "what to note"}
_LASTS = (Verb.SNOOZE, Verb.SILENCE)


async def read_form(request: web.Request) -> dict[str, str]:
    """The fields of a form. Raises BadInput for one that is too large or no form."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise BadInput("this takes the forms of these pages only")
    raw = bytearray()
    if (request.content_length or 0) <= MAX_FORM:
        async for chunk in request.content.iter_any():
            raw += chunk
            if len(raw) > MAX_FORM:
                break
    if len(raw) > MAX_FORM or (request.content_length or 0) > MAX_FORM:
        raise BadInput(f"too long: a reason may have {MAX_REASON} characters")
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise BadInput("the form cannot be read") from error


def command_of(
    form: Mapping[str, str], *, incident: str, cluster: str, person: Person, now: datetime
) -> Command:
    """The command that a form gives. The same form sent twice gives the same id, so a second press counts once.

    Raises:
        BadInput: the form lacks something; the text is for the person.
    """
    verb = _verb(form.get("verb", ""))
    reason = form.get("reason", "").strip()
    if len(reason) > MAX_REASON:
        raise BadInput(f"The reason has {len(reason)} characters; {MAX_REASON} are the most.")
    if verb in _NEEDS_REASON and not reason:
        raise BadInput(f"Say {_NEEDS_REASON[verb]}: the text is empty.")
    step, plan = form.get("step", ""), form.get("digest", "")
    if verb in (Verb.APPROVE, Verb.REJECT) and not (step and plan):
        raise BadInput("The form names no plan. Reload the page and try again.")
    if len(step) > MAX_STEP or len(plan) > MAX_STEP:
        raise BadInput("The form names no step of a plan.")
    until = now + timedelta(minutes=_minutes(form.get("minutes", ""))) if verb in _LASTS else None
    press = digest(person.session, person.id, form.get("press", ""), incident, verb, step, plan, reason)
    return Command(
        id=f"cmd-{press}",
        incident=incident,
        cluster=cluster,
        verb=verb,
        actor=plain(person.actor, 900),
        at=now,
        step=step or None,
        digest=plan or None,
        reason=plain(reason, MAX_REASON),
        via="console",
        until=until,
        groups=person.groups,
    )


def _verb(told: str) -> Verb:
    try:
        verb = Verb(told)
    except ValueError:
        raise BadInput("The form names no decision.") from None
    if verb not in WORDS:
        raise BadInput("That is not decided here; use the command line.")
    return verb


def _minutes(told: str) -> int:
    if told.isascii() and told.isdecimal() and 0 < int(told[:6]) <= MAX_MINUTES:
        return int(told[:6])
    raise BadInput("Choose for how long.")
