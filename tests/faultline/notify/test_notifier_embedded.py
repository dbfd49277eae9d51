"""The notifier on the embedded broker, with stand-ins for a pager, an Alertmanager and a Grafana."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from sandbox.emulated import broker
from sandbox.fake_services.alertmanager import AlertmanagerStandin
from sandbox.fake_services.grafana import GrafanaStandin
from sandbox.fake_services.pagerduty import PagerDutyStandin
from sandbox.fake_services.webhook import SECRET, WebhookStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.model.clock import utc_now
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Severity
from tests.faultline.notify.notifier_process import sinks
from tests.faultline.notify.stories import act, asking, incident, node
from tests.faultline.notify.world import Document, notifying, seen, tell

pytestmark = pytest.mark.embedded

LONG_AGO = timedelta(minutes=30)


@dataclass
class World:
    """Topics, and what the other side has."""

    kafka: KafkaSettings
    producer: AIOKafkaProducer
    pager: PagerDutyStandin
    alertmanager: AlertmanagerStandin
    grafana: GrafanaStandin

    async def tell(self, *documents: Document) -> None:
        await tell(self.producer, self.kafka, *documents)

    @property
    def sinks(self) -> dict[str, object]:
        grafana = {"kind": "grafana", "url": self.grafana.url, "key": "standin-token", "settle_s": 0}
        return {**sinks(self.pager.url, self.alertmanager.url), "graphs": grafana}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        PagerDutyStandin(per_minute=100_000) as pager,
        AlertmanagerStandin() as alertmanager,
        GrafanaStandin() as grafana,
    ):
        producer = await clients.started(clients.producer(embedded.settings), embedded.settings)
        yield World(embedded.settings, producer, pager, alertmanager, grafana)
        await producer.stop()


def waiting(
    name: str = "gpu-17", family: str = "gpu_off_bus", severity: Severity = Severity.CRITICAL
) -> Incident:
    """One whose approval has waited for half an hour."""
    return incident(name, family, utc_now() - LONG_AGO, severity=severity)


def ask(one: Incident) -> Document:
    return asking(one, one.opened_at)


def over(one: Incident) -> Incident:
    return replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=utc_now())


async def test_a_page_a_silence_and_an_annotation_live_as_long_as_they_should_and_over_a_restart(
    world: World,
) -> None:
    one = waiting()
    await world.tell(one, ask(one), node("gpu-17", one.id))
    done: list[str] = []
    async with notifying(world.kafka, world.sinks, at=done.append):
        await seen(
            lambda: {"page:after_commit", "silence:after_commit", "annotate:after_commit"} <= set(done),
            "all is told",
        )
    (page,), (silence,), (annotation,) = (
        world.pager.incidents,
        world.alertmanager.live(),
        world.grafana.annotations.values(),
    )
    assert (page.status, page.key, page.log) == ("triggered", f"{one.id}-1", ["trigger"])
    assert silence["annotations"]["faultline_incident"] == one.id
    assert silence["matchers"] == [
        {"name": "instance", "value": "gpu-17(:.*)?", "isRegex": True, "isEqual": True}
    ]
    assert one.id in annotation["tags"]

    await world.tell(act(one, "person.ack", utc_now()))
    async with notifying(world.kafka, world.sinks):
        await seen(lambda: page.status == "acknowledged", "the acknowledgement is passed on")
        await world.tell(over(one), node("gpu-17"))
        await seen(lambda: page.status == "resolved", "the page ends")
        await seen(lambda: not world.alertmanager.live(), "the silence is lifted")
        await seen(lambda: annotation["timeEnd"] > annotation["time"], "the annotation has its end")
    assert page.log == ["trigger", "acknowledge", "resolve"]
    assert [len(world.pager.incidents), len(world.alertmanager.silences), len(world.grafana.annotations)] == [
        1,
        1,
        1,
    ]


async def test_a_sink_that_is_away_holds_up_no_other_and_gets_no_flood_when_it_is_back(world: World) -> None:
    gone, stays = waiting("gpu-1"), waiting("gpu-2", family="storage_fault", severity=Severity.ERROR)
    world.pager.down = True
    await world.tell(gone, ask(gone), node("gpu-1", gone.id))
    async with notifying(world.kafka, world.sinks):
        await seen(lambda: world.pager.turned_away > 1, "the pager was tried")
        await seen(lambda: world.alertmanager.live(), "the node is silenced all the same")
        await world.tell(over(gone), stays, ask(stays))
        await seen(lambda: len(world.grafana.annotations) == 2, "the other one is drawn")
        world.pager.down = False
        await seen(lambda: world.pager.incidents, "the pager hears of what still needs somebody")
    (page,) = world.pager.incidents
    assert page.key.startswith(stays.id)


async def test_two_thousand_incidents_at_once_wake_once_and_the_worst_is_named(world: World) -> None:
    many = [waiting(f"gpu-{n}", family="storage_fault", severity=Severity.ERROR) for n in range(1_999)]
    worst = waiting("gpu-5000")
    everything = [*many, worst]
    await world.tell(*everything, *(ask(one) for one in everything))
    pager = {"oncall": world.sinks["oncall"]}
    began = time.monotonic()
    async with notifying(world.kafka, pager):
        await seen(lambda: world.pager.incidents, "somebody is paged")
        print(f"paged after {time.monotonic() - began:.1f} s")
        await world.tell(*(over(one) for one in everything))
        await seen(lambda: world.pager.incidents[0].status == "resolved", "all is over")
    (page,) = world.pager.incidents
    assert page.key == f"{worst.id}-1"
    assert "(+1999 more)" in page.payload["summary"]
    assert page.log == ["trigger", "resolve"]


async def test_a_person_who_resolves_the_page_is_not_woken_again(world: World) -> None:
    one = waiting()
    await world.tell(one, ask(one))
    pager = {"oncall": world.sinks["oncall"]}
    async with notifying(world.kafka, pager):
        await seen(lambda: world.pager.incidents, "somebody is paged")
    world.pager.incidents[0].status = "resolved"
    second = waiting("gpu-18")
    done: list[str] = []
    await world.tell(second, ask(second))
    async with notifying(world.kafka, pager, at=done.append):
        # The second incident joins that page, and finds that a person has ended it.
        await seen(lambda: world.pager.calls("/incidents", "GET"), "the pager is asked")
        third = incident("gpu-19", "pfc_storm", at=utc_now() - LONG_AGO)
        await world.tell(third, asking(third, third.opened_at))
        await seen(lambda: len(world.pager.incidents) == 2, "a new fault is a new page")
    assert [one.status for one in world.pager.incidents] == ["resolved", "triggered"]


async def test_a_receiver_hears_of_the_beginning_what_waits_and_the_end_in_one_thread(world: World) -> None:
    one = incident(at=utc_now())
    async with WebhookStandin() as hook:
        posts = {"webhook": {"url": f"{hook.url}/hook", "secret": SECRET}}
        sink = {"hook": {"kind": "webhook", "settle_s": 0}}
        await world.tell(one)
        async with notifying(world.kafka, sink, posts=posts):
            await seen(lambda: len(hook.events) == 1, "it opened")
            await world.tell(ask(one))
            await seen(lambda: len(hook.events) == 2, "it waits for an approval")
            await world.tell(over(one))
            await seen(lambda: len(hook.events) == 3, "it has ended")
        told = [event["data"] for event in hook.events.values()]
    words = [data["message"]["summary"].partition(":")[0] for data in told]
    assert words == ["Opened", "Waits for an approval", "Resolved"]
    assert [data["first"] for data in told] == [True, False, False]
    assert {(data["thread"], data["incident"]) for data in told} == {(one.id, one.id)}


async def test_a_page_and_an_end_that_the_pager_took_and_lost_arrive_all_the_same(world: World) -> None:
    one = waiting()
    world.pager.lose = 1
    await world.tell(one, ask(one))
    async with notifying(world.kafka, {"oncall": world.sinks["oncall"]}):
        await seen(lambda: len(world.pager.incidents) == 1, "the page is there")
        (page,) = world.pager.incidents
        world.pager.lose = 1
        await world.tell(over(one))
        await seen(lambda: page.status == "resolved", "the page ends")
    assert (page.key, page.log) == (f"{one.id}-1", ["trigger", "resolve"])
