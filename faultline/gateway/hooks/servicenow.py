"""`/hooks/servicenow`: what a business rule posts. Closed by a person: `resolve`; commented: `note`.

`{"event": "closed" | "commented", "number", "sys_id", "correlation_id", "user_name", "user", "text", "id", "at"}`: `id` is the
journal entry's, or of the change of state; `at` is the time in UTC. `docs/people/gateway.md` has the rule that sends it. The
incident is in the correlation id, or it is the one whose run opened the ticket of that number.
"""

from __future__ import annotations

import re
from typing import Any

from faultline.gateway.authentication import Bearer, StandardWebhook, given, refuse_other_times
from faultline.gateway.hooks.fields import at, moment, text
from faultline.gateway.hooks.hook import Delivery, Hook
from faultline.gateway.hooks.person_actions import Deciding, Ignored, PersonAction, incident_in
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RequestRefused
from streams.model.conversation import Verb

VIA = "servicenow"
VERBS = {"closed": Verb.RESOLVE, "commented": Verb.NOTE}

_EFFECT = re.compile(r"faultline-[0-9a-f]{16}")


class ServiceNowWebhook(Hook):
    """Takes what people do to incidents in ServiceNow."""

    name = VIA
    most_bytes = 1024 * 1024

    def __init__(self, parts: GatewayParts) -> None:
        wanted = parts.settings.servicenow
        self._own_user = wanted.own_user
        self._max_age_s = wanted.max_age_s
        self._deciding = Deciding(parts, VIA)
        secrets = given(wanted.secret, wanted.secret_next)
        proofs = [StandardWebhook(secrets, parts.settings.replay_window_s)] if secrets else []
        super().__init__(parts, [Bearer(given(wanted.token, wanted.token_next))], proofs)

    async def take(self, delivery: Delivery) -> str:
        """Send the command that an event asks for."""
        event = delivery.json()
        if not isinstance(event, dict):
            raise RequestRefused(400, "the body is no event")
        stamp = moment(event.get("at"))
        if stamp is None:
            raise RequestRefused(400, "the event has no time: `at`")
        refuse_other_times(stamp.timestamp(), self.parts.clock(), self._max_age_s, "at")
        action = read_event(event, self._own_user)
        if isinstance(action, Ignored):
            return f"ignored: {action.why}"
        incident = incident_in(event.get("correlation_id"))
        return await self._deciding.decide(
            action, incident or self.parts.view.incident_of_ticket(text(event.get("number")))
        )


def read_event(event: dict[str, Any], own_user: str) -> PersonAction | Ignored:
    """What an event asks for."""
    kind = text(event.get("event"))
    verb = VERBS.get(kind)
    if verb is None:
        return Ignored(f"{kind[:80] or 'an event without a type'} is no decision")
    user, said = text(event.get("user_name")), text(event.get("text"))
    if not user:
        return Ignored("no person did it")
    if user == own_user or _EFFECT.search(said):
        return Ignored("Faultline did it")
    subject, part = text(at(event, "sys_id")) or text(event.get("number")), text(event.get("id"))
    if not subject or not part:
        return Ignored("it has no id")
    return PersonAction(verb, text(event.get("user")) or user, user, f"{subject}/{kind}/{part}", said)
