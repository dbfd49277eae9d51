"""What a person did to an incident in another system, as a command.

The command's id is made of what was done there and not of the delivery, so the responder hears it once: however often it is
delivered, by however many webhooks, to however many gateways.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RETRY_S, RequestRefused
from streams.model.conversation import Command, Verb
from streams.model.digest import digest
from streams.model.incident import Incident, IncidentState

log = structlog.get_logger(__name__)

MAX_TEXT = 2_000
"""Characters of a note or reason that are passed on."""
MAX_NAME = 200
MAX_SENT = 10_000
"""Ids of commands that this process remembers having sent."""

_INCIDENT = re.compile(r"(?<![0-9A-Za-z])inc-[0-9a-f]{16}(?![0-9A-Za-z])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PARENTHESES = re.compile(r"[()|]")


@dataclass(frozen=True, slots=True)
class PersonAction:
    """What a person did. `act` names it uniquely in its system, and begins with what later acts on the same thing begin with."""

    verb: Verb
    person: str
    person_id: str
    act: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A delivery that asks for nothing, and why."""

    why: str


class Deciding:
    """Turns actions into commands. One for each system, named as `via` names it."""

    def __init__(self, parts: GatewayParts, via: str) -> None:
        self._parts = parts
        self._via = via
        self._sent: OrderedDict[str, None] = OrderedDict()

    async def decide(self, action: PersonAction, incident: str | None) -> str:
        """Send the command unless it asks for nothing any more. Returns what became of it.

        Raises:
            RequestRefused: 503 while the view is not complete.
            Temporary: when Kafka does not take the command in time.
        """
        view = self._parts.view
        if not view.ready:
            raise RequestRefused(503, "still reading what is known, try again", retry_after_s=RETRY_S)
        known = view.incident(incident) if incident is not None else None
        if known is None:
            return "ignored: no incident of this installation"
        verb = action.verb
        if verb is not Verb.RESOLVE:
            # Closing a part of an incident does not close the whole; what is said of a part is said of the whole.
            known = self._whole(known)
        reason = printable(action.text)[:MAX_TEXT]
        if verb is Verb.NOTE and not reason:
            return "ignored: it says nothing"
        if known.state.is_over and verb in (Verb.ACK, Verb.RESOLVE):
            # Mostly the echo of what Faultline did there itself when the incident ended.
            return "ignored: the incident is over"
        name = command_id(self._via, action.act, verb)
        if name in self._sent or await view.answers(name, 0):
            return "taken before"
        command = Command(
            id=name,
            incident=known.id,
            cluster=known.cluster,
            verb=verb,
            actor=actor_of(action.person or self._via, action.person_id),
            at=self._parts.clock(),
            reason=reason,
            via=self._via,
        )
        await self._parts.decisions.send(command)
        self._sent[name] = None
        while len(self._sent) > MAX_SENT:
            self._sent.popitem(last=False)
        log.info(
            "command", via=self._via, verb=verb.value, incident=known.id, actor=command.actor, command=name
        )
        return f"taken: {verb.value} {known.id}"

    def _whole(self, incident: Incident) -> Incident:
        """The incident that this one was merged into, where it was."""
        seen = {incident.id}
        while incident.state is IncidentState.MERGED and incident.merged_into not in (None, *seen):
            seen.add(incident.merged_into or "")
            found = self._parts.view.incident(incident.merged_into or "")
            if found is None:
                break
            incident = found
        return incident


def actor_of(name: str, person_id: str) -> str:
    """A person as `name (id)`. Whoever chooses their name must not choose how the id reads."""
    return f"{_PARENTHESES.sub(' ', one_line(name)).strip()} ({_PARENTHESES.sub(' ', one_line(person_id)).strip()})"


def command_id(via: str, act: str, verb: Verb) -> str:
    """The id of the command for an act: `VIA/SUBJECT/DIGEST`, where the subject is the act's first part."""
    return f"{answer_prefix(via, act)}{digest(via, act, verb.value, size=16)}"


def answer_prefix(via: str, act: str) -> str:
    """What the ids of all commands about the same thing in that system begin with."""
    return f"{via}/{act.split('/', 1)[0][:MAX_NAME]}/"


def incident_in(*texts: object) -> str | None:
    """The incident id in the first of the texts that holds one."""
    for text in texts:
        if isinstance(text, str) and (found := _INCIDENT.search(text)):
            return found.group()
    return None


def labelled(labels: object) -> str | None:
    """The incident that one of a ticket's labels names: `faultline-inc-…`."""
    if not isinstance(labels, Iterable) or isinstance(labels, str | bytes | Mapping):
        return None
    prefix = "faultline-"
    return incident_in(
        *(one[len(prefix) :] for one in labels if isinstance(one, str) and one.startswith(prefix))
    )


def printable(text: str) -> str:
    """The text without control characters and marks that change the direction of writing."""
    return _UNPRINTABLE.sub("", text).strip()


def one_line(text: str) -> str:
    """A name: printable, in one line, at most `MAX_NAME` characters."""
    return " ".join(printable(text).split())[:MAX_NAME]
