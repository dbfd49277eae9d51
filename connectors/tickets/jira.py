"""The connector for Jira Cloud tickets: one issue per key, comments and closing, although Jira has no idempotency keys.

An issue carries the label `faultline-<effect key>`, so it can be found again after a crash, and `faultline-<incident>`, so
later steps find it too. Because a search lags behind writes, "not found" after an uncertain create counts only when two
searches with a pause in between agree; if a second issue is created nevertheless, the next action that sees both closes the
later one as a duplicate. A comment carries its key as a footer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import structlog

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
)
from connectors.http import translated
from connectors.tickets.adf import document
from connectors.tickets.jira_api import Created, Issue, JiraApi
from streams.config.connector_settings import JiraSettings
from streams.model.errors import Permanent
from streams.model.message import Block, Fact, Facts, Heading, Message, Paragraph, plain

log = structlog.get_logger(__name__)

MAX_SUMMARY = 250
"""Characters; Jira refuses a summary of more than 255."""

Sleep = Callable[[float], Awaitable[None]]


class Jira:
    """`open_ticket`, `comment_ticket`, `close_ticket`.

    Params: `summary` and `text` (else the context's title and reason), for comment and close `ticket` (an issue key) where
    the caller knows it. Results: `ticket` (the issue key), `id`, `url`.
    """

    actions = frozenset({"open_ticket", "comment_ticket", "close_ticket"})

    def __init__(self, settings: JiraSettings, *, sleep: Sleep = asyncio.sleep) -> None:
        self._api = JiraApi(settings)
        self._settings = settings
        self._sleep = sleep
        self._made: dict[str, str] = {}
        """Issue id by label, for issues made by this process: avoids the lag of the search."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Open, comment or close, once. Calls for one incident never overlap in this process."""
        lock = self._locks.setdefault(effect.incident, asyncio.Lock())
        async with lock:
            return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Check whether it was done; for an issue twice with a pause, because the search lags."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Withdraw an issue that nobody works on yet. Comments and closings stay: people have read them."""
        if effect.action != "open_ticket":
            return Refused(f"{effect.action} cannot be undone")
        return await translated(self._withdraw(effect, lease))

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        match effect.action:
            case "open_ticket":
                return await self._open(effect, lease)
            case "comment_ticket":
                return await self._comment(effect, lease)
            case "close_ticket":
                return await self._close(effect, lease)
            case other:
                raise Permanent(f"unknown action {other}")

    async def _lookup(self, effect: Effect) -> Outcome:
        if effect.action == "open_ticket":
            issues = await self._labelled(effect, key_label(effect))
            if not issues:
                await self._sleep(self._settings.search_lag_s)
                issues = await self._labelled(effect, key_label(effect))
            return AlreadyDone(self._result(issues[0])) if issues else Absent("no issue carries its label")
        issue = await self._ticket(effect)
        if issue is None:
            return Absent("the incident has no ticket")
        if effect.action == "comment_ticket":
            made = await self._api.has_comment(issue.id, key_label(effect))
        else:
            made = issue.is_done
        return AlreadyDone(self._result(issue)) if made else Absent(f"not on {issue.key}")

    async def _open(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        label = key_label(effect)
        issues = await self._labelled(effect, label)
        if issues:
            await self._fold(issues, lease)
            return AlreadyDone(self._result(issues[0]), f"{issues[0].key} was already open")
        # Nothing that could fail may follow the create: only its success may be reported.
        made = await self._api.create(self._fields(effect, label), lease)
        self._made[label] = self._made[incident_label(effect)] = made.id
        return Done(self._result(made), f"opened {made.key}")

    async def _comment(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        issue = await self._folded_ticket(effect, lease)
        if issue is None:
            return self._no_ticket()
        token = key_label(effect)
        if await self._api.has_comment(issue.id, token):
            return AlreadyDone(self._result(issue))
        await self._api.comment(issue.id, document(_message(effect), footer=token), lease)
        return Done(self._result(issue), f"commented on {issue.key}")

    async def _close(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        issue = await self._folded_ticket(effect, lease)
        if issue is None:
            return self._no_ticket()
        if issue.is_done:
            return AlreadyDone(self._result(issue), f"{issue.key} is {issue.status}")
        await self._finish(issue, _message(effect), key_label(effect), lease)
        return Done(self._result(issue), f"closed {issue.key}")

    async def _withdraw(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Close the issue, say why, and remove our label: a withdrawn ticket must not be found as the open one."""
        label, token = key_label(effect), f"{key_label(effect)}-undo"
        issues = await self._labelled(effect, label)
        if not issues:
            return AlreadyDone(detail="there is no issue of ours")
        issue = issues[0]
        if not await self._api.has_comment(issue.id, token):
            if issue.is_done:
                return AlreadyDone(self._result(issue), f"{issue.key} was closed by someone else")
            if issue.category != "new":
                return Blocked.person(f"{issue.key} is {issue.status}: already in progress")
        if not issue.is_done:
            text = "The reason for this ticket no longer holds; it is withdrawn."
            await self._finish(issue, Message(text, (Paragraph(text),)), token, lease)
        await self._api.remove_label(issue.id, label, lease)
        self._made.pop(label, None)
        return Done(self._result(issue), f"withdrew {issue.key}")

    async def _finish(self, issue: Issue, why: Message, token: str, lease: LeaseHeld) -> None:
        """Comment the reason (once), then close by the transition's name: its id differs between workflows."""
        if not await self._api.has_comment(issue.id, token):
            await self._api.comment(issue.id, document(why, footer=token), lease)
        wanted = self._settings.done_transition
        offered = await self._api.transitions(issue.id)
        chosen = next((t for t in offered if t.name.casefold() == wanted.casefold()), None)
        if chosen is None:
            names = ", ".join(t.name for t in offered) or "none"
            raise Permanent(
                f"{issue.key} is {issue.status} and offers no transition {wanted!r} (jira.done_transition): {names}"
            )
        await self._api.transition(issue.id, chosen, lease)

    async def _fold(self, issues: list[Issue], lease: LeaseHeld) -> None:
        """Close every later duplicate with a pointer to the first. Duplicates come from creates that were thought lost."""
        first, *later = issues
        for copy in later:
            if copy.is_done:
                continue
            text = f"Duplicate of {first.key} (same incident); please continue there."
            try:
                why = Message(text, (Paragraph(text),))
                await self._finish(copy, why, f"faultline-copy-of-{first.key}", lease)
            except Permanent as error:
                # The ticket itself is fine; a duplicate that the workflow will not close is left to an operator.
                log.warning(
                    "could not close duplicate ticket", first=first.key, copy=copy.key, reason=str(error)
                )

    async def _folded_ticket(self, effect: Effect, lease: LeaseHeld) -> Issue | None:
        issues = await self._labelled(effect, incident_label(effect))
        by_key: dict[str, list[Issue]] = {}
        for issue in issues:
            for label in issue.labels & {name for name in issue.labels if _KEY_LABEL.fullmatch(name)}:
                by_key.setdefault(label, []).append(issue)
        for copies in by_key.values():
            await self._fold(copies, lease)
        return await self._ticket(effect, issues)

    async def _ticket(self, effect: Effect, issues: list[Issue] | None = None) -> Issue | None:
        """The issue a later step is about: the one it names, else the oldest of the incident."""
        named = effect.params.get("ticket") or effect.prior.get("ticket")
        if named:
            return await self._api.issue(_path_safe(str(named)))
        if issues is None:
            issues = await self._labelled(effect, incident_label(effect))
        return issues[0] if issues else None

    async def _labelled(self, effect: Effect, label: str) -> list[Issue]:
        """Issues with a label, oldest first, including the one this process made or was given."""
        known = [str(i) for i in (self._made.get(label), effect.prior.get("id")) if i]
        issues = await self._api.search(label, self._settings.project, known=known)
        found = {issue.id for issue in issues}
        for issue_id in dict.fromkeys(known):
            # Reading by id never lags, even on sites without `reconcileIssues`.
            if issue_id not in found and (issue := await self._api.issue(issue_id)) and label in issue.labels:
                issues.append(issue)
        return sorted(issues, key=lambda issue: int(issue.id))

    def _no_ticket(self) -> Outcome:
        return Blocked("no ticket", "no issue of this incident was found yet", self._settings.search_lag_s)

    def _fields(self, effect: Effect, label: str) -> dict[str, Any]:
        message = _message(effect)
        return {
            "project": {"key": self._settings.project},
            "issuetype": {"name": self._settings.issue_type},
            "summary": plain(message.summary.replace("\n", " "), MAX_SUMMARY) or effect.incident,
            "description": document(message, footer=label),
            "labels": ["faultline", label, incident_label(effect)],
        }

    def _result(self, issue: Issue | Created) -> Result:
        return {"ticket": issue.key, "id": issue.id, "url": f"{self._api.base_url}/browse/{issue.key}"}


_KEY_LABEL = re.compile(r"faultline-[0-9a-f]{16,}")


def key_label(effect: Effect) -> str:
    """The label that makes an issue findable by its effect. Labels cannot contain blanks."""
    return f"faultline-{_label_safe(effect.key)}"


def incident_label(effect: Effect) -> str:
    """The label that every issue of one incident shares."""
    return f"faultline-{_label_safe(effect.incident)}"


def _message(effect: Effect) -> Message:
    """The ticket or comment: the step's own text first, then the facts of the incident."""
    context = dict(effect.context)
    title = str(effect.params.get("summary") or context.pop("title", "") or effect.incident)
    text = str(effect.params.get("text") or context.pop("reason", ""))
    blocks: list[Block] = [Heading(title)]
    if text:
        blocks.append(Paragraph(text))
    facts = {"incident": effect.incident, "cluster": effect.cluster, **context}
    facts.pop("title", None)
    facts.pop("reason", None)
    shown = tuple(Fact(name.replace("_", " "), str(value)) for name, value in facts.items() if value != "")
    blocks.append(Facts(shown))
    return Message(title, tuple(blocks))


def _label_safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def _path_safe(text: str) -> str:
    """An issue key safe in a path: anything else finds no issue instead of another resource."""
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else "0"
