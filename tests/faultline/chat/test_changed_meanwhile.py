"""What arrives while the chat stores something is looked at once more: nobody writes twice that an incident is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from aiokafka import TopicPartition

from connectors.base import Absent, Done, Effect, LeaseHeld, Outcome, Refused
from faultline.chat import thread_publisher
from faultline.chat.routes import Routes
from faultline.chat.thread_plan import UNTOUCHED_AFTER
from faultline.chat.thread_publisher import ThreadPublisher
from streams.kafka.fenced_store import FencedStore
from streams.model.entity import Entity
from streams.model.incident import Incident, IncidentState
from streams.model.thread import ROOT, Thread
from tests.connectors.chat.thread_documents import NOW
from tests.faultline.chat.test_summaries import LEAF, at, node
from tests.testbed.background import in_background


class Store:
    """What the publisher needs of a `FencedStore`. `meanwhile` is called with what a commit stores while that is under way."""

    def __init__(self) -> None:
        self.documents: dict[str, Thread] = {}
        self.meanwhile: Callable[[Sequence[Thread]], None] = lambda documents: None
        self._stored = asyncio.Condition()

    async def commit(self, documents: Sequence[Thread] = (), **more: object) -> None:
        """Store the documents."""
        if not documents:
            return
        self.meanwhile(documents)
        async with self._stored:
            self.documents.update({one.incident: one for one in documents})
            self._stored.notify_all()

    async def until(self, condition: Callable[[dict[str, Thread]], object]) -> None:
        """Wait until the documents fulfil the condition."""
        async with self._stored:
            await self._stored.wait_for(lambda: condition(self.documents))


class Taking:
    """A chat that takes everything at once."""

    actions = frozenset({"open_thread", "reply", "edit"})

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Take it."""
        return Done({"ts": effect.key, "channel": "C1"})

    async def lookup(self, effect: Effect) -> Outcome:
        """Nothing is ever lost here."""
        return Absent()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Messages stay."""
        return Refused("not here")

    async def close(self) -> None:
        """Nothing is open."""


def publisher_of(*incidents: Incident) -> tuple[ThreadPublisher, Store]:
    """A publisher that has these incidents before it begins, and its store."""
    store = Store()
    publisher = ThreadPublisher(
        cast("FencedStore[Thread]", store),
        Taking(),
        routes=Routes("C1"),
        timeline=TopicPartition("timeline", 0),
        group="chat",
        debounce_s=0.0,
        lease_s=30,
        clock=lambda: NOW,
    )
    for one in incidents:
        publisher.take_incident(one)
    return publisher, store


def over(incident: Incident, since: timedelta = timedelta()) -> Incident:
    """The incident's last revision; it was over for so long when that arrived."""
    return replace(incident, revision=2, state=IncidentState.RESOLVED, closed_at=NOW - since)


def begun(incident: Incident) -> Callable[[dict[str, Thread]], object]:
    """Whether something of the incident is told, wherever."""
    return lambda documents: (
        (found := documents.get(incident.id)) is not None and (found.parent or found.post(ROOT) is not None)
    )


async def test_what_ends_while_its_summary_is_stored_takes_no_later_fault_of_the_part_in() -> None:
    publisher, store = publisher_of(*LEAF[:2])

    def end(documents: Sequence[Thread]) -> None:
        if any(one.parent for one in documents):
            store.meanwhile = lambda _: None
            for one in LEAF[:2]:
                publisher.take_incident(over(one))

    store.meanwhile = end
    async with in_background(publisher.publish()):
        await store.until(begun(LEAF[1]))
        again = at(Entity("c1", switch="leaf-3", port="Ethernet9"), after_s=700_000)
        publisher.take_incident(again)
        await store.until(begun(again))
    assert store.documents[LEAF[0].id].parent, "both were told together"
    assert not store.documents[again.id].parent, "a part that breaks again is another event"


async def test_what_ends_while_many_others_are_planned_is_summed_up_with_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault alone at its leaf ends between two portions: the next one at that leaf is alone as well."""
    monkeypatch.setattr(thread_publisher, "AT_A_TIME", 1)
    before = node(1)
    publisher, store = publisher_of(before, LEAF[0])

    async def end() -> None:
        publisher.take_incident(over(LEAF[0], since=UNTOUCHED_AFTER * 2))

    async with in_background(publisher.publish()):
        # Its turn comes behind the first step of the publisher's, that is between the two portions.
        await asyncio.create_task(end())
        await store.until(begun(before))
        publisher.take_incident(LEAF[1])
        await store.until(begun(LEAF[1]))
    assert not store.documents[LEAF[1].id].parent, "nothing else is at fault at this leaf"
