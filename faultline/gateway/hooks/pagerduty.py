"""`/hooks/pagerduty`: version 3 webhooks. Acknowledged by a person: `ack`; resolved: `resolve`; a note: `note`.

Faultline pages by the Events API with the incident's id in the deduplication key, which comes back as `incident_key`. A note
refers to PagerDuty's own id only; that one is known from earlier events, here or in the answers to earlier commands.
What an integration did, Faultline's own included, has no user as its agent and is no command.

Shapes: PagerDuty developer documentation, webhooks, "Overview", "Behavior" and "Signatures". It sends again after 429 and 5xx,
waits five seconds for an answer, and switches a webhook off after three refusals in a row.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from faultline.gateway.authentication import SignedBody, given, refuse_other_times
from faultline.gateway.hooks.fields import at, moment, text
from faultline.gateway.hooks.hook import Delivery, Hook
from faultline.gateway.hooks.person_actions import Deciding, Ignored, PersonAction, answer_prefix, incident_in
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RequestRefused
from streams.model.conversation import Verb

VIA = "pagerduty"
VERBS = {
    "incident.acknowledged": Verb.ACK,
    "incident.resolved": Verb.RESOLVE,
    "incident.annotated": Verb.NOTE,
}
MAX_KNOWN = 10_000
"""PagerDuty incidents whose Faultline incident is remembered."""


class PagerDutyWebhook(Hook):
    """Takes what people do to incidents in PagerDuty."""

    name = VIA
    most_bytes = 512 * 1024

    def __init__(self, parts: GatewayParts) -> None:
        wanted = parts.settings.pagerduty
        self._own_user = wanted.own_user
        self._max_age_s = wanted.max_age_s
        self._deciding = Deciding(parts, VIA)
        self._known: OrderedDict[str, str] = OrderedDict()
        proof = SignedBody("X-PagerDuty-Signature", "v1", given(wanted.secret, wanted.secret_next))
        super().__init__(parts, (), (proof,))

    async def take(self, delivery: Delivery) -> str:
        """Send the command that an event asks for."""
        event = at(delivery.json(), "event")
        if not isinstance(event, dict):
            raise RequestRefused(400, "the body has no event")
        stamp = moment(event.get("occurred_at"))
        if stamp is None:
            raise RequestRefused(400, "the event has no occurred_at")
        refuse_other_times(stamp.timestamp(), self.parts.clock(), self._max_age_s, "occurred_at")
        name = _incident_id(event)
        self._remember(name, event)
        action = read_event(event, self._own_user)
        if isinstance(action, Ignored):
            return f"ignored: {action.why}"
        return await self._deciding.decide(action, self._incident(name))

    def _remember(self, name: str, event: dict[str, Any]) -> None:
        incident = incident_in(at(event, "data", "incident_key"))
        if incident is None or not name:
            return
        self._known[name] = incident
        self._known.move_to_end(name)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    def _incident(self, name: str) -> str | None:
        """Faultline's incident behind one of PagerDuty's."""
        if not name:
            return None
        # Another gateway may have taken the events so far; the answers to what it sent are in every view.
        return self._known.get(name) or self.parts.view.incident_of_answer(answer_prefix(VIA, name))


def read_event(event: dict[str, Any], own_user: str) -> PersonAction | Ignored:
    """What an event asks for."""
    kind = text(event.get("event_type"))
    verb = VERBS.get(kind)
    if verb is None:
        return Ignored(f"{kind[:80] or 'an event without a type'} is no decision")
    agent = event.get("agent")
    person_id = text(at(agent, "id"))
    if text(at(agent, "type")) not in ("user_reference", "user") or not person_id:
        return Ignored("no person did it")
    if person_id == own_user:
        return Ignored("Faultline did it")
    subject = _incident_id(event)
    # A note has an id of its own; the other events are told apart by theirs, which every delivery repeats.
    part = f"note/{text(at(event, 'data', 'id'))}" if verb is Verb.NOTE else text(event.get("id"))
    if not subject or not part or part == "note/":
        return Ignored("it has no id")
    content = (
        text(at(event, "data", "content"))
        if verb is Verb.NOTE
        else text(at(event, "data", "resolve_reason", "type"))
    )
    return PersonAction(verb, text(at(agent, "summary")), person_id, f"{subject}/{part}", content)


def _incident_id(event: dict[str, Any]) -> str:
    """PagerDuty's id of the incident that an event is about."""
    data = event.get("data")
    return text(at(data, "incident", "id")) or text(at(data, "id"))
