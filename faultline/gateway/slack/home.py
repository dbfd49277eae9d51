"""The App Home: what is open, and what waits for the person who looks. `home_view` is pure; `Homes` keeps it up to date."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import orjson
import structlog

from connectors.chat.slack_blocks import render
from faultline.gateway.slack.actions import Person
from faultline.gateway.slack.user_groups import UserGroups
from faultline.gateway.slack.web_api import WebApi
from faultline.live_view.overview import Overview
from faultline.live_view.view import Changes, LiveView
from runbooks.engine.approvals import is_open_to
from streams.model.clock import MonotonicClock, boot_seconds
from streams.model.conversation import Verb
from streams.model.digest import digest
from streams.model.errors import FaultlineError, Temporary
from streams.model.message import Block, Button, Buttons, Heading, Message, Paragraph
from streams.model.run import Mode, PlannedStep, Run, StepState

log = structlog.get_logger(__name__)

MAX_WAITING = 10
MAX_OPEN = 20
MAX_VIEWERS = 200
"""Homes that are kept up to date: those opened last."""

WATCHED_S = 3600.0
"""How long after it was opened. Slack does not say when somebody closes it."""

REFRESH_S = 5.0
"""Changes are collected for this time: a burst of them is one refresh."""

MAX_AGE_S = 1.0
"""How old what is shown may be: with many incidents and viewers, the list of what is open is made once for all of them."""


def home_view(
    shown: Sequence[Overview], person: Person, groups: Sequence[str], *, ready: bool = True, notice: str = ""
) -> dict[str, Any]:
    """The Home of one person. `shown` is what is open; until all is read (`ready`) there may be more."""
    blocks: list[Block] = []
    if notice:
        blocks.append(Paragraph(notice))
    if not ready:
        blocks.append(Paragraph("Still reading what happened before this start."))
    waiting = [(one, run, planned) for one in shown for run, planned in _waiting(one, person, groups)]
    blocks.append(Heading("Waits for you" if waiting else "Nothing waits for you"))
    for one, run, planned in waiting[:MAX_WAITING]:
        blocks += _question(one, run, planned)
    if len(waiting) > MAX_WAITING:
        blocks.append(Paragraph(f"and {len(waiting) - MAX_WAITING} more", quiet=True))
    blocks.append(Heading(f"Open: {len(shown)}" if shown else "No incident is open"))
    for one in shown[:MAX_OPEN]:
        waits = f"\nWaiting for {one.waits_for}" if one.waits_for else ""
        blocks.append(Paragraph(f"{one.standing} · {one.incident.severity} · {one.incident.title}{waits}"))
        blocks.append(Buttons(tuple(_buttons(one))))
    if len(shown) > MAX_OPEN:
        blocks.append(Paragraph(f"and {len(shown) - MAX_OPEN} more: /faultline list", quiet=True))
    rendered = [
        block
        for part in blocks
        for attachment in render(Message("Faultline", (Paragraph(""), part)), answers=True)["attachments"]
        for block in attachment["blocks"]
    ]
    return {"type": "home", "blocks": _with_ids(rendered)}


def _waiting(one: Overview, person: Person, groups: Sequence[str]) -> Iterator[tuple[Run, PlannedStep]]:
    """The steps whose approval this person can give and has not given."""
    for run in one.runs:
        if run.plan.mode is Mode.SHADOW or run.state.is_over:
            continue
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if record.state is not StepState.AWAITING_APPROVAL:
                continue
            if not record.demands or any(
                is_open_to(demand, person.actor, groups) for demand in record.demands
            ):
                yield run, planned
                break  # an approval is for the whole plan


def _question(one: Overview, run: Run, planned: PlannedStep) -> Iterator[Block]:
    what = planned.describe or f"{planned.action.replace('_', ' ')} {planned.target or ''}".strip()
    yield Paragraph(f"{one.incident.title}\n{what}\n{run.step(planned.id).reason}")
    value = _value(one, s=planned.id, d=run.plan.digest)
    yield Buttons(
        (
            Button(Verb.APPROVE, "Approve", value, "primary"),
            Button(Verb.REJECT, "Reject", value, "danger"),
            Button("explain", "Explain", _value(one)),
        )
    )


def _buttons(one: Overview) -> Iterator[Button]:
    value = _value(one)
    yield Button("explain", "Explain", value)
    if not one.incident.state.is_over:
        yield Button(Verb.ACK, "Acknowledge", value)
        yield Button(Verb.HAND_OVER, "Take over", value)


def _value(one: Overview, **more: str) -> str:
    return orjson.dumps({"i": one.incident.id, "c": one.incident.cluster, **more}).decode()


def _with_ids(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**block, "block_id": f"home-{number}"} for number, block in enumerate(blocks[:100])]


@dataclass(slots=True)
class _Viewer:
    person: Person
    until: float
    shown: str = ""
    notice: str = ""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is published: of two requests on their way, Slack may take the older one last."""


class Homes:
    """Publishes the Homes that were opened lately, when what they show has changed."""

    def __init__(
        self,
        api: WebApi,
        view: LiveView,
        groups: UserGroups,
        clock: MonotonicClock = boot_seconds,
    ) -> None:
        self._api = api
        self._view = view
        self._groups = groups
        self._clock = clock
        self._viewers: OrderedDict[str, _Viewer] = OrderedDict()
        self._shown: Sequence[Overview] = ()
        self._shown_at = float("-inf")
        self._changes: Changes | None = None
        """What wakes `keep_fresh`, while that runs."""

    async def opened(self, person: Person) -> None:
        """Somebody looks: show it now, and keep it up to date for a while."""
        viewer = self._viewers.pop(person.id, None) or _Viewer(person, 0.0)
        viewer.until = self._clock() + WATCHED_S
        self._viewers[person.id] = viewer
        while len(self._viewers) > MAX_VIEWERS:
            self._viewers.popitem(last=False)
        async with viewer.turn:
            viewer.shown = viewer.notice = ""
            await self._publish_soon(viewer)

    async def tell(self, person: Person, text: str) -> None:
        """Show the answer to a press on the Home, at its top, until it is opened again."""
        viewer = self._viewers.get(person.id)
        if viewer is None:
            viewer = self._viewers[person.id] = _Viewer(person, self._clock() + WATCHED_S)
        async with viewer.turn:
            viewer.notice = text
            await self._publish_soon(viewer)

    async def keep_fresh(self) -> NoReturn:
        """Publish what has changed, until cancelled."""
        with self._view.changes() as changes:
            self._changes = changes
            complete = True
            while True:
                if complete:
                    await changes.wait()
                await asyncio.sleep(REFRESH_S)
                now = self._clock()
                for name in [name for name, viewer in self._viewers.items() if viewer.until < now]:
                    del self._viewers[name]
                complete = True
                for viewer in list(self._viewers.values()):
                    async with viewer.turn:
                        complete = await self._publish(viewer) and complete
                    await asyncio.sleep(0)  # presses are not kept waiting by two hundred Homes

    def _open(self) -> Sequence[Overview]:
        if self._clock() - self._shown_at > MAX_AGE_S:
            self._shown, self._shown_at = self._view.overviews(), self._clock()
        return self._shown

    async def _publish_soon(self, viewer: _Viewer) -> None:
        """Publish one Home now, or where Slack does not take it with the next refresh. To be called in its turn."""
        if not await self._publish(viewer) and self._changes is not None:
            self._changes.add(viewer.person.id)

    async def _publish(self, viewer: _Viewer) -> bool:
        """Publish one Home, unless it shows the same already; False when it has to be tried again. To be called in its turn."""
        groups = await self._groups.of(viewer.person.id) or ()
        made = home_view(self._open(), viewer.person, groups, ready=self._view.ready, notice=viewer.notice)
        mark = digest(orjson.dumps(made).decode(), size=8)
        if mark == viewer.shown:
            return True
        viewer.shown = ""  # not known until Slack answers, and not if it does not
        try:
            await self._api.publish_home(viewer.person.id, made)
            viewer.shown = mark
        except Temporary as error:
            log.info("App Home is refreshed later", user=viewer.person.id, reason=str(error))
            return False
        except FaultlineError as error:
            log.warning("App Home refused", user=viewer.person.id, reason=str(error))
        return True
