"""A pressed button → what it asks for. Pure.

A press carries only ids and the plan's digest. Whether the person may decide, and whether the plan is still that one, is the
responder's to say: so a press is never answered from what this process happens to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from faultline.gateway.slack import dialogs, texts
from faultline.gateway.slack.actions import Action, Ask, Decide, Nothing, Person, Show, person_in, text_in
from faultline.live_view.view import LiveView
from streams.model.conversation import Command, Verb
from streams.model.digest import digest
from streams.model.errors import BadInput

PREFIX = "faultline."
EVIDENCE, EXPLAIN = "evidence", "explain"
LASTS = {Verb.SNOOZE: timedelta(minutes=10), Verb.SILENCE: timedelta(hours=1)}
"""How long a pressed snooze or silence lasts."""

OFFERED = frozenset(
    {
        Verb.ACK, Verb.APPROVE, Verb.REJECT, Verb.STOP, Verb.RESOLVE, Verb.HAND_OVER, Verb.SNOOZE, Verb.SILENCE,
    }
)  # fmt: skip
"""Decisions that a button can be. The others have no button anywhere, so a press of one is made up."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a button is about: the contents of its value."""

    incident: str
    cluster: str
    step: str | None = None
    digest: str | None = None


def pressed(payload: Mapping[str, Any], view: LiveView, now: datetime) -> Action:
    """What a `block_actions` payload asks for.

    Raises:
        BadInput: it is no press of one of our buttons; names what is missing.
    """
    press = _only(payload.get("actions"))
    name = str(press.get("action_id", ""))
    person = person_in(payload)
    if not name.startswith(PREFIX):
        # A link or a field of ours: Slack tells of every element that is touched.
        return Nothing(f"{name[:60]!r} is none of our buttons")
    name = name.removeprefix(PREFIX)
    subject = subject_in(str(press.get("value", "")))
    url, trigger = response_url_in(payload), str(payload.get("trigger_id", ""))
    if name in (EVIDENCE, EXPLAIN):
        return Show(texts.about(view, subject.incident, evidence=name == EVIDENCE), url, trigger)
    verb = next((verb for verb in OFFERED if verb == name), None)
    if verb is None:
        raise BadInput(f"{name[:60]!r} is none of our buttons")
    at = pressed_at(press.get("action_ts"), now)
    if verb in (Verb.REJECT, Verb.RESOLVE):
        kept = {**_plain_of(subject), "v": verb.value, "u": url}
        incident = view.incident(subject.incident)
        title = incident.title if incident is not None else subject.incident
        dialog = dialogs.reason(verb, title, kept)
        instead = f"press again, or run: faultline incidents {verb.value} {subject.incident}"
        return Ask(dialog, trigger, url, instead)
    key = f"{press.get('action_ts')}/{press.get('value')}"
    return Decide(command_of(verb, subject, person, at, key), person, url)


def command_of(
    verb: Verb, subject: Subject, person: Person, at: datetime, key: str, reason: str = ""
) -> Command:
    """The command. Its id is a hash of the person, the decision and `key`, so that a redelivered press is the same command."""
    lasts = LASTS.get(verb)
    return Command(
        id="cmd-" + digest(subject.incident, verb, person.id, key, size=8),
        incident=subject.incident,
        cluster=subject.cluster,
        verb=verb,
        actor=person.actor,
        at=at,
        step=subject.step,
        digest=subject.digest,
        reason=reason,
        via="slack",
        until=at + lasts if lasts is not None else None,
    )


def subject_in(text: str) -> Subject:
    """What a button's value is about. Raises BadInput."""
    where = "the button's value"
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{where} is no JSON") from error
    if not isinstance(value, dict):
        raise BadInput(f"{where} is no JSON object")
    return Subject(
        text_in(value, "i", where),
        text_in(value, "c", where),
        text_in(value, "s", where) if "s" in value else None,
        text_in(value, "d", where) if "d" in value else None,
    )


def pressed_at(stamp: object, now: datetime) -> datetime:
    """When something was done, by Slack's clock; never later than now.

    A delivery may come minutes late, and an approval is as old as the press.
    """
    try:
        at = datetime.fromtimestamp(float(stamp), UTC) if isinstance(stamp, str) else now
    except (ValueError, OverflowError, OSError):
        return now
    return min(at, now)


def response_url_in(payload: Mapping[str, Any]) -> str:
    """Where an answer to this person is posted; empty where Slack gave none."""
    url = payload.get("response_url")
    return url if isinstance(url, str) else ""


def _plain_of(subject: Subject) -> dict[str, str]:
    found = {"i": subject.incident, "c": subject.cluster, "s": subject.step, "d": subject.digest}
    return {name: text for name, text in found.items() if text is not None}


def _only(actions: object) -> Mapping[str, Any]:
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], Mapping):
        raise BadInput("`actions` does not hold exactly one press")
    return actions[0]
