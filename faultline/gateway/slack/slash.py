"""`/faultline …`: the text a person typed → what it asks for. Pure.

Words decide here, so they are few, exact and never guessed: a misspelt one is answered with the most similar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from faultline.gateway.slack import texts
from faultline.gateway.slack.actions import Action, Decide, Person, Show, clean_name, text_in
from faultline.gateway.slack.buttons import LASTS, Subject, command_of, response_url_in
from faultline.live_view.view import LiveView
from streams.model.conversation import Verb
from streams.model.errors import BadInput
from streams.model.message import Code, Message, plain, some
from streams.model.similar import suggestion

_DURATION = re.compile(r"(?P<number>\d{1,5})(?P<unit>[mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=31)
_MAX_TEXT = 3000

HELP = """\
list                            open incidents, and what each waits for
show ID                         one incident: cause, evidence, run, latest lines
ack ID [REASON]                 you are looking at it
stop ID [REASON]                its run starts no further step
handover ID [REASON]            you take it over: its run stops, nothing is undone
resolve ID [REASON]             it is over
snooze ID [10m] [REASON]        destructive steps that have not begun wait
silence ID [1h] [REASON]        no posts and pages about it
note ID TEXT                    a line on its timeline
freeze [SCOPE] [2h] [REASON]    no destructive step in pool:NAME, namespace:NAME, or the cluster
thaw [SCOPE]                    ends a freeze (approvers)
kill [REASON]                   no destructive step at all
unkill [REASON]                 releases the kill switch (approvers)
help                            this

ID is an incident's id or its beginning. Approvals are bound to the plan that was shown: press the button below it."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A command line: who typed what, and everything it may be about."""

    words: list[str]
    person: Person
    response_url: str
    key: str
    view: LiveView
    cluster: str
    now: datetime

    def say(self, text: str, code: str = "") -> Show:
        return Show(Message(text, (Code(code),) if code else ()), self.response_url)


def typed(payload: Mapping[str, Any], view: LiveView, cluster: str, now: datetime) -> Action:
    """What a slash command asks for. Raises BadInput where the request is none."""
    person = Person(text_in(payload, "user_id"), clean_name(payload.get("user_name")))
    text = plain(texts.message_text(payload.get("text"), _MAX_TEXT), _MAX_TEXT)
    name, *words = text.split() or ["help"]
    key = f"{payload.get('trigger_id')}/{text}"
    line = _Typed(words, person, response_url_in(payload), key, view, cluster, now)
    found = _COMMANDS.get(name.casefold())
    if found is None:
        return line.say(f"No command {name[:40]}{suggestion(name.casefold(), [*_COMMANDS])}", HELP)
    try:
        return found(line)
    except BadInput as error:
        return line.say(str(error))


def _help(line: _Typed) -> Action:
    return line.say("Faultline", HELP)


def _list(line: _Typed) -> Action:
    return Show(texts.listed(line.view), line.response_url)


def _show(line: _Typed) -> Action:
    return Show(texts.about(line.view, _incident(line).incident, evidence=None), line.response_url)


def _about_incident(verb: Verb) -> Callable[[_Typed], Action]:
    def asks_for(line: _Typed) -> Action:
        subject, words = _incident(line), line.words[1:]
        length = _length(words) if verb in LASTS else None
        reason = " ".join(words[1:] if length is not None else words)
        if verb is Verb.NOTE and not reason:
            raise BadInput("A note needs words: /faultline note ID TEXT")
        command = command_of(verb, subject, line.person, line.now, line.key, reason)
        if length is not None:
            command = replace(command, until=line.now + length)
        return Decide(command, line.person, line.response_url)

    return asks_for


def _about_cluster(verb: Verb) -> Callable[[_Typed], Action]:
    def asks_for(line: _Typed) -> Action:
        words, scope, until = list(line.words), "", None
        force = "--force" in words
        words = [word for word in words if word != "--force"]
        if verb in (Verb.FREEZE, Verb.THAW) and words and ":" in words[0]:
            scope = words.pop(0)
            _check_scope(scope, line, must_exist=verb is Verb.FREEZE and not force)
        if verb is Verb.FREEZE and (length := _length(words)) is not None:
            until, words = line.now + length, words[1:]
        subject = Subject("", line.cluster)
        command = command_of(verb, subject, line.person, line.now, line.key, " ".join(words))
        return Decide(replace(command, scope=scope, until=until), line.person, line.response_url)

    return asks_for


def _incident(line: _Typed) -> Subject:
    """The incident that the first word names.

    Raises:
        BadInput: it names none, or several.
    """
    if not line.words:
        raise BadInput(
            "Which incident? Give its id, or the beginning of it: /faultline list shows the open ones."
        )
    if not line.view.ready:
        raise BadInput("Still reading what happened before this start; try again in a moment.")
    prefix = line.words[0].casefold()
    found = line.view.find(prefix)
    if len(found) > 1:
        raise BadInput(f"{prefix[:40]} is the beginning of several incidents: {some(found, 5)}")
    incident = line.view.incident(found[0]) if found else None
    if incident is None:
        ids = [one.incident.id for one in line.view.overviews()]
        raise BadInput(f"No incident {prefix[:40]}{suggestion(prefix, ids)}")
    return Subject(incident.id, incident.cluster)


def _length(words: list[str]) -> timedelta | None:
    """The duration that the first word is; None where it is none."""
    found = _DURATION.fullmatch(words[0]) if words else None
    if found is None:
        return None
    length = timedelta(**{_UNITS[found["unit"]]: int(found["number"])})
    if not timedelta() < length <= _LONGEST:
        raise BadInput(f"{words[0]} is no length: from 1m to {_LONGEST.days}d")
    return length


def _check_scope(scope: str, line: _Typed, *, must_exist: bool) -> None:
    """Refuse a scope of no kind, and one that the inventory does not know: a typo would freeze nothing."""
    kind, _, name = scope.partition(":")
    if kind not in ("pool", "namespace") or not name:
        raise BadInput(
            f"{scope[:80]} is no scope: pool:NAME or namespace:NAME{suggestion(kind, ['pool', 'namespace'])}"
        )
    if not must_exist:
        return
    known: Collection[str]
    if kind == "pool":
        known = {fact.pool for fact in line.view.nodes(line.cluster).values() if fact.pool}
    else:
        known = {fact.job.namespace for fact in line.view.jobs(line.cluster).values() if fact.job.namespace}
    if name not in known:
        raise BadInput(
            f"no {kind} {name[:80]} in cluster {line.cluster}; known: {some(sorted(known), 8) or 'none'}"
            f"{suggestion(name, known)} (--force takes one that is to come)"
        )


_COMMANDS: Mapping[str, Callable[[_Typed], Action]] = {
    "list": _list,
    "show": _show,
    "help": _help,
    "ack": _about_incident(Verb.ACK),
    "stop": _about_incident(Verb.STOP),
    "handover": _about_incident(Verb.HAND_OVER),
    "resolve": _about_incident(Verb.RESOLVE),
    "snooze": _about_incident(Verb.SNOOZE),
    "silence": _about_incident(Verb.SILENCE),
    "note": _about_incident(Verb.NOTE),
    "freeze": _about_cluster(Verb.FREEZE),
    "thaw": _about_cluster(Verb.THAW),
    "kill": _about_cluster(Verb.KILL),
    "unkill": _about_cluster(Verb.UNKILL),
}
