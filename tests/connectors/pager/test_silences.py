"""Silences: what they match, whose they are, and what becomes of them over time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.base import AlreadyDone, Done, Effect, NoLease, Outcome, Refused, Retry
from connectors.pager.alertmanager import AlertmanagerSilences
from sandbox.fake_services.alertmanager import AlertmanagerStandin
from tests.connectors.pager.effects import INCIDENT, effect, silence, sink

pytestmark = pytest.mark.embedded

LEASE = NoLease()
START = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Silences:
    """An Alertmanager, our connector, and a clock for both."""

    def __init__(self, server: AlertmanagerStandin, clock: Clock, **settings: object) -> None:
        self.server, self.clock = server, clock
        self.connector = AlertmanagerSilences(sink("alertmanager", server.url, **settings), clock=clock)

    def effect(self, action: str, state: str, hours: float = 4) -> Effect:
        until = (self.clock.now + timedelta(hours=hours)).isoformat()
        return effect(action, "k" * 32, silence(state, until=until))

    async def set(self) -> Outcome:
        return await self.connector.apply(self.effect("silence", "silenced"), LEASE)

    async def renew(self) -> Outcome:
        return await self.connector.apply(self.effect("update_silence", "silenced"), LEASE)

    async def lift(self) -> Outcome:
        return await self.connector.apply(self.effect("update_silence", "lifted"), LEASE)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.server.silences.values())


@pytest.fixture
async def silences() -> AsyncIterator[Silences]:
    clock = Clock()
    async with AlertmanagerStandin(clock=clock) as server:
        made = Silences(server, clock)
        yield made
        await made.connector.close()


async def test_it_says_for_which_incident_and_matches_the_node_alone(silences: Silences) -> None:
    await silences.set()
    (row,) = silences.rows
    assert row["createdBy"] == "faultline"
    assert row["annotations"] == {
        "faultline_incident": INCIDENT,
        "faultline_key": "k" * 32,
        "faultline_cluster": "c1",
        "faultline_node": "gpu-17",
        "link": "https://faultline.example.test/incidents/1",
    }
    assert row["comment"].startswith(f"gpu-17 is closed for {INCIDENT}: GPU fell off the bus https://")
    assert row["matchers"] == [
        {"name": "instance", "value": "gpu-17(:.*)?", "isRegex": True, "isEqual": True}
    ]


async def test_a_nodes_dots_are_dots(silences: Silences) -> None:
    wishes = ('node=~"{node}"', 'cluster="{cluster}"', 'severity!="critical"')
    other = Silences(silences.server, silences.clock, matchers=wishes)
    made = other.effect("silence", "silenced")
    await other.connector.apply(
        replace(made, params={**made.params, "node": "gpu-17.c1.example.test"}), LEASE
    )
    await other.connector.close()
    (row,) = silences.rows
    assert [m["value"] for m in row["matchers"]] == [r"gpu-17\.c1\.example\.test", "c1", "critical"]
    assert [(m["isRegex"], m["isEqual"]) for m in row["matchers"]] == [
        (True, True),
        (False, True),
        (False, False),
    ]


async def test_it_is_renewed_in_place(silences: Silences) -> None:
    await silences.set()
    silences.clock.now += timedelta(hours=1)
    assert isinstance(await silences.renew(), Done)
    assert isinstance(await silences.renew(), AlreadyDone)
    (row,) = silences.rows
    assert datetime.fromisoformat(row["endsAt"]) == START + timedelta(hours=5)


async def test_one_that_ran_out_while_nobody_renewed_it_is_set_anew(silences: Silences) -> None:
    await silences.set()
    silences.clock.now += timedelta(hours=9)
    assert isinstance(await silences.renew(), Done)
    assert len(silences.server.live()) == 1


async def test_one_that_a_person_lifted_is_not_set_again(silences: Silences) -> None:
    await silences.set()
    silences.clock.now += timedelta(hours=1)
    (row,) = silences.rows
    row |= {"endsAt": silences.clock.now.isoformat(), "updatedAt": silences.clock.now.isoformat()}
    silences.clock.now += timedelta(minutes=1)
    assert isinstance(await silences.renew(), Refused)
    assert isinstance(await silences.connector.lookup(silences.effect("update_silence", "silenced")), Refused)
    assert silences.server.live() == []


async def test_one_that_a_person_edited_is_theirs(silences: Silences) -> None:
    await silences.set()
    silences.rows[0]["createdBy"] = "alice"
    before = dict(silences.rows[0])
    assert isinstance(await silences.renew(), Refused)
    assert isinstance(await silences.lift(), Refused)
    assert silences.rows == [before]


async def test_a_persons_own_silence_for_the_node_is_left_alone(silences: Silences) -> None:
    await silences.set()
    own = {
        **silences.rows[0],
        "id": "own",
        "createdBy": "alice",
        "comment": "moving racks",
        "annotations": {},
    }
    silences.server.silences["own"] = dict(own)
    await silences.lift()
    assert [row["id"] for row in silences.server.live()] == ["own"]
    assert silences.server.silences["own"] == own


async def test_copies_are_lifted_together(silences: Silences) -> None:
    await silences.set()
    copy = {**silences.rows[0], "id": "copy"}
    silences.server.silences["copy"] = copy
    assert isinstance(await silences.set(), AlreadyDone)
    assert len(silences.server.live()) == 1
    copy["endsAt"] = (silences.clock.now + timedelta(hours=4)).isoformat()
    await silences.lift()
    assert silences.server.live() == []


async def test_an_end_in_the_past_is_not_sent(silences: Silences) -> None:
    outcome = await silences.connector.apply(silences.effect("silence", "silenced", hours=-1), LEASE)
    assert isinstance(outcome, Retry)
    assert silences.rows == []
