"""`/hooks/jira`: webhooks of Jira Cloud and Data Center. An issue closed by a person: `resolve`; a person's comment: `note`.

The incident is in the label `faultline-inc-…` of the issue. Jira Cloud leaves labels out of comment events; then it is the one
whose run opened the issue. What Faultline's own account did is no command, nor a comment that carries the key of one of its
effects: that is how an account that was configured wrongly shows.

Shapes: Atlassian developer documentation, "Webhooks" (Cloud and Data Center); the signature is WebSub's. Jira Cloud sends again
after 408, 409, 425, 429 and 5xx.
"""

from __future__ import annotations

import re
from typing import Any

from faultline.gateway.authentication import SignedBody, given, refuse_other_times
from faultline.gateway.hooks.fields import at, moment, text
from faultline.gateway.hooks.hook import Delivery, Hook
from faultline.gateway.hooks.person_actions import Deciding, Ignored, PersonAction, labelled
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RequestRefused
from streams.model.conversation import Verb

VIA = "jira"
MAX_NODES = 5_000
"""Nodes of a formatted comment that are read."""

_EFFECT = re.compile(r"faultline-(?:copy-of-|[0-9a-f]{16})")


class JiraWebhook(Hook):
    """Takes what people do to issues."""

    name = VIA
    most_bytes = 2 * 1024 * 1024

    def __init__(self, parts: GatewayParts) -> None:
        wanted = parts.settings.jira
        self._own_user = wanted.own_user
        self._max_age_s = wanted.max_age_s
        self._deciding = Deciding(parts, VIA)
        proof = SignedBody("X-Hub-Signature", "sha256", given(wanted.secret, wanted.secret_next))
        super().__init__(parts, (), (proof,))

    async def take(self, delivery: Delivery) -> str:
        """Send the command that an event asks for."""
        event = delivery.json()
        if not isinstance(event, dict):
            raise RequestRefused(400, "the body is no event")
        stamp = moment(event.get("timestamp"))
        if stamp is None:
            raise RequestRefused(400, "the event has no timestamp")
        refuse_other_times(stamp.timestamp(), self.parts.clock(), self._max_age_s, "timestamp")
        action = read_event(event, self._own_user)
        if isinstance(action, Ignored):
            return f"ignored: {action.why}"
        issue = event.get("issue")
        incident = labelled(at(issue, "fields", "labels"))
        return await self._deciding.decide(
            action, incident or self.parts.view.incident_of_ticket(text(at(issue, "key")))
        )


def read_event(event: dict[str, Any], own_user: str) -> PersonAction | Ignored:
    """What an event asks for."""
    kind, part = text(event.get("webhookEvent")), text(event.get("issue_event_type_name"))
    issue = event.get("issue")
    key = text(at(issue, "key")) or text(at(issue, "id"))
    comment = event.get("comment")
    if kind == "comment_created" or (kind == "jira:issue_updated" and part == "issue_commented"):
        body = comment_text(at(comment, "body"))
        if _EFFECT.search(body):
            return Ignored("Faultline did it")
        name = text(at(comment, "id"))
        return _by_person(
            Verb.NOTE, at(comment, "author"), own_user, f"{key}/comment/{name}" if name else "", body
        )
    if kind == "jira:issue_updated" and _is_closed(event):
        change = text(at(event, "changelog", "id"))
        status = text(at(issue, "fields", "status", "name"))
        said = f"{key} is {status}" if status else ""
        return _by_person(
            Verb.RESOLVE, event.get("user"), own_user, f"{key}/change/{change}" if change else "", said
        )
    return Ignored(f"{(part or kind)[:80] or 'an event without a type'} is no decision")


def comment_text(body: Any) -> str:
    """The text of a comment: as it is, or that of a document in Atlassian's format, a line per paragraph."""
    if isinstance(body, str):
        return body
    parts: list[str] = []
    left, seen = [body], 0
    while left and seen < MAX_NODES:
        node, seen = left.pop(), seen + 1
        if isinstance(node, str):
            parts.append(node)
        elif isinstance(node, dict):
            shown = (
                text(node.get("text")) or text(at(node, "attrs", "text")) or text(at(node, "attrs", "url"))
            )
            parts.append("\n" if node.get("type") == "hardBreak" else shown)
            if node.get("type") in ("paragraph", "heading", "listItem", "codeBlock"):
                left.append("\n")
            content = node.get("content")
            if isinstance(content, list):
                left.extend(reversed(content))
    return "".join(parts).strip()


def _is_closed(event: dict[str, Any]) -> bool:
    """Whether the issue went to a status of the category done with this event."""
    items = at(event, "changelog", "items")
    moved = isinstance(items, list) and any(text(at(item, "field")) == "status" for item in items)
    return moved and text(at(event, "issue", "fields", "status", "statusCategory", "key")) == "done"


def _by_person(verb: Verb, account: Any, own_user: str, act: str, said: str) -> PersonAction | Ignored:
    known = {text(at(account, name)) for name in ("accountId", "name", "key")} - {""}
    if not known or text(at(account, "accountType")) == "app":
        return Ignored("no person did it")
    if own_user in known:
        return Ignored("Faultline did it")
    if not act or act.startswith("/"):
        return Ignored("it has no id")
    person_id = text(at(account, "accountId")) or text(at(account, "name")) or text(at(account, "key"))
    return PersonAction(verb, text(at(account, "displayName")), person_id, act, said)
