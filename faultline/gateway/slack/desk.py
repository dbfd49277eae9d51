"""Carries out what a delivery of Slack asks for, once, and tells the person what became of it. Shared by HTTP and Socket Mode.

A delivery is acknowledged once its command is written to Kafka, or after two seconds: Slack waits three. What the responder
says is posted to the delivery's response URL, to this person only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import structlog
from aiokafka.errors import KafkaError

from faultline.gateway.parts import GatewayParts
from faultline.gateway.slack import texts
from faultline.gateway.slack.actions import (
    Action,
    Ask,
    Correct,
    Decide,
    Delivery,
    Nothing,
    Show,
    ShowHome,
    ThreadReply,
    team_in,
)
from faultline.gateway.slack.buttons import Subject
from faultline.gateway.slack.dialogs import shown
from faultline.gateway.slack.home import Homes
from faultline.gateway.slack.interactions import action_of, delivery_id, note_of
from faultline.gateway.slack.thread_roots import People, ThreadRoots
from faultline.gateway.slack.user_groups import UserGroups
from faultline.gateway.slack.web_api import WebApi
from faultline.live_view.decisions import Decision
from streams.model.conversation import Command, Verb
from streams.model.errors import BadInput, FaultlineError, Permanent, Temporary

log = structlog.get_logger(__name__)

ACK_WITHIN_S = 2.0
"""How long an acknowledgement waits for Kafka. Slack wants it within three seconds."""

SEND_WITHIN_S = 30.0
"""How long Kafka may take to confirm a command until the person is told that it did not."""

OPEN_WITHIN_S = 3.0
"""A trigger expires after this time: a dialog that is not open by then never will be."""

TELL_FOR_S = 1750.0
"""How long a late answer is waited for: a response URL lives for thirty minutes."""

MAX_AT_ONCE = 5000
"""Deliveries in work; more are not acknowledged, and Slack says so to the person or delivers them again."""

MAX_WAITING = 2000
"""Commands without an answer that are watched for a late one."""

MAX_SEEN = 20_000
"""Ids of deliveries that are remembered."""

_BY_GROUP = frozenset({Verb.APPROVE, Verb.UNKILL, Verb.THAW, Verb.RESET, Verb.RELEASE})
"""Decisions for which it matters which groups a person is in."""


class Desk:
    """What takes deliveries. `close` it after the last one."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._api = WebApi(parts.slack)
        self._groups = UserGroups(self._api)
        self._roots = ThreadRoots(self._api, parts.view)
        self._people = People(self._api)
        self._homes = Homes(self._api, parts.view, self._groups)
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """For each delivery in work."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._waiting = 0

    async def close(self) -> None:
        """Stop what still waits for an answer, and close connections. Commands are stored by now."""
        tasks = [*self._tasks, *([self._refreshing] if self._refreshing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    async def take(self, delivery: Delivery) -> Mapping[str, Any] | None:
        """Take a genuine delivery; returns what the acknowledgement says, None for an empty one. A repeated one does nothing.

        Raises:
            Temporary: it cannot be taken now, and must not be acknowledged.
        """
        name = delivery_id(delivery)
        # One after the other: acknowledged before it is known what becomes of the first, a repeated delivery would be the last,
        # and lost where the first cannot be taken after all.
        turn = self._turns.setdefault(name, asyncio.Lock()) if name else asyncio.Lock()
        async with turn:
            return await self._take(delivery, name)

    async def _take(self, delivery: Delivery, name: str) -> Mapping[str, Any] | None:
        if name and name in self._seen:
            return None
        if len(self._tasks) >= MAX_AT_ONCE:
            raise Temporary("too many requests of Slack at once")
        if (team := team_in(delivery.payload)) and not await self._api.is_own_team(team):
            # Signed with our secret, but by an installation that this one knows nothing of: its user ids are not ours.
            log.warning("a delivery of Slack is about another workspace", kind=delivery.kind, team=team[:40])
            return None
        try:
            action = action_of(delivery, self._parts.view, self._parts.cluster, self._parts.clock())
        except BadInput as error:
            log.warning("a delivery of Slack is malformed", kind=delivery.kind, reason=str(error))
            return None
        self._seen[name] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        if isinstance(action, Correct):
            # The same dialog is submitted again.
            self._seen.pop(name, None)
        try:
            return await self._answered(action, is_command=delivery.kind == "slash_commands")
        except Temporary:
            self._seen.pop(name, None)
            raise

    async def _answered(self, action: Action, *, is_command: bool) -> Mapping[str, Any] | None:
        match action:
            case Nothing():
                log.debug("nothing to do", reason=action.why)
            case Correct():
                return {"response_action": "errors", "errors": dict(action.errors)}
            case Show() if is_command:
                return texts.ephemeral_message(action.message)
            case ThreadReply():
                await self._note(action)
            case Decide():
                sent = asyncio.Event()
                self._start(self._decide(action, sent))
                try:
                    await asyncio.wait_for(sent.wait(), ACK_WITHIN_S)
                except TimeoutError:
                    log.warning("acknowledged before Kafka confirmed", command=action.command.id)
            case Ask():
                self._start(self._ask(action))
            case Show():
                self._start(self._show(action))
            case ShowHome():
                self._start(self._homes.opened(action.person))
                if self._refreshing is None or self._refreshing.done():
                    self._refreshing = asyncio.create_task(self._homes.keep_fresh())
                    self._refreshing.add_done_callback(self._ended)
        return None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an answer to Slack failed", exc_info=error)

    async def _decide(self, asked: Decide, sent: asyncio.Event) -> None:
        """Send the command, wait for the responder, and tell the person; later once more where it took its time."""
        command, unread = asked.command, False
        if command.verb in _BY_GROUP:
            groups = await self._groups.of(asked.person.id)
            command, unread = replace(command, groups=groups or ()), groups is None
        stored = await self._send(command)
        sent.set()
        if not stored:
            await self._tell(
                asked,
                f"{command.verb}: Kafka does not answer. It may not be stored; press again in a moment.",
            )
            return
        wait_s = self._parts.slack.answer_within_s
        decision = Decision(command, await self._parts.view.answers(command.id, wait_s))
        is_late = decision.accepted is None and bool(asked.response_url) and self._waiting < MAX_WAITING
        text = texts.answer(decision, wait_s, will_tell=is_late)
        if unread and decision.accepted is False:
            text += " Slack does not say at the moment which user groups you are in, so none of them counted."
        await self._tell(asked, text)
        if is_late:
            await self._tell_late(asked, command, TELL_FOR_S - wait_s)

    async def _tell_late(self, asked: Decide, command: Command, wait_s: float) -> None:
        self._waiting += 1
        try:
            answers = await self._parts.view.answers(command.id, wait_s)
        finally:
            self._waiting -= 1
        if answers:
            await self._tell(asked, texts.answer(Decision(command, answers), wait_s, will_tell=False))

    async def _send(self, command: Command) -> bool:
        """Whether Kafka confirmed the command."""
        try:
            async with asyncio.timeout(SEND_WITHIN_S):
                await self._parts.decisions.send(command)
        except (KafkaError, FaultlineError, TimeoutError) as error:
            log.warning("a command could not be stored", command=command.id, reason=repr(error))
            return False
        log.info(
            "command", command=command.id, verb=command.verb, incident=command.incident, actor=command.actor
        )
        return True

    async def _note(self, reply: ThreadReply) -> None:
        """Put a reply in a thread of ours on the incident's timeline. Raises Temporary: Slack delivers it again."""
        try:
            async with asyncio.timeout(ACK_WITHIN_S):
                incident = await self._roots.incident_of(reply.channel, reply.thread_ts)
                if incident is None:
                    return
                name = await self._people.name(reply.person.id)
                subject = Subject(incident.id, incident.cluster)
                await self._parts.decisions.send(note_of(reply, subject, name, self._parts.clock()).command)
        except (KafkaError, TimeoutError) as error:
            raise Temporary(f"a reply cannot be noted now: {error!r}") from error
        except Permanent as error:
            log.warning("a reply is not noted", channel=reply.channel, reason=str(error))

    async def _ask(self, asked: Ask) -> None:
        """Open the dialog in time, or say how it goes without one."""
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                await self._api.open_dialog(asked.trigger_id, asked.view)
        except (FaultlineError, TimeoutError) as error:
            log.warning("a dialog could not be opened", reason=repr(error))
            if asked.response_url:
                await self._respond(
                    asked.response_url,
                    texts.ephemeral(f"Slack did not open the dialog in time: {asked.instead}"),
                )

    async def _show(self, asked: Show) -> None:
        if asked.response_url:
            await self._respond(asked.response_url, texts.ephemeral_message(asked.message))
        elif asked.trigger_id:
            view = shown(texts.dialog_blocks(asked.message), "Faultline")
            await self._ask(Ask(view, asked.trigger_id))

    async def _tell(self, asked: Decide, text: str) -> None:
        if asked.response_url:
            await self._respond(asked.response_url, texts.ephemeral(text))
        else:
            await self._homes.tell(asked.person, text)

    async def _respond(self, url: str, body: Mapping[str, Any]) -> None:
        """Post to one person. What cannot be posted is on the timeline all the same."""
        for is_last in (False, True):
            try:
                await self._api.respond(url, body)
                return
            except Temporary as error:
                # Once more: the answer is worth one of the five posts, and twice is no harm.
                if is_last:
                    log.warning("a person could not be answered", reason=str(error))
            except FaultlineError as error:
                log.warning("a person could not be answered", reason=str(error))
                return
