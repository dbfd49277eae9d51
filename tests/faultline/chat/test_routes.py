"""The channel of an incident: the first route that fits when its thread begins, and that one for good."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from connectors.chat.slack import Slack
from faultline.chat.process import Chat
from faultline.chat.routes import NOWHERE, Routes, is_within
from faultline.chat.thread_sources import ThreadSources
from faultline.chat.wanted_threads import WantedThreads
from sandbox.emulated import broker
from sandbox.fake_services.slack import SlackStandin
from streams.config.connector_settings import BusinessHours, SlackRoute
from streams.config.settings import KafkaSettings
from streams.config.tenant_settings import Tenant
from streams.model.clock import utc_now
from streams.model.entity import Entity
from streams.model.facts import JobFact
from streams.model.incident import Audience, Incident, IncidentState, incident_id
from streams.model.run import Mode, StepState
from streams.model.signal import Severity
from streams.model.thread import ROOT, Thread
from tests.connectors.chat.test_slack_contract import CHANNEL, slack
from tests.connectors.chat.thread_documents import NOW, incident, run
from tests.faultline.chat.test_chat_embedded import running, seen
from tests.faultline.chat.test_storm_embedded import writing

VISION = "C0VISION"
WEDNESDAY = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("route", "fits"),
    [
        ({}, True),
        ({"cluster": "c1"}, True),
        ({"cluster": "c2*"}, False),
        ({"namespace": "res*"}, True),
        ({"namespace": "vision"}, False),
        ({"family": "gpu_*"}, True),
        ({"family": "nic_*"}, False),
        ({"severities": (Severity.ERROR, Severity.CRITICAL)}, True),
        ({"severities": (Severity.WARNING,)}, False),
        ({"cluster": "c1", "family": "nic_*"}, False),
        ({"hours": BusinessHours()}, True),
        ({"hours": BusinessHours(days=("sat", "sun"))}, False),
    ],
)
def test_all_that_a_route_names_has_to_fit(route: dict[str, object], fits: bool) -> None:
    routes = Routes(CHANNEL, [SlackRoute(channel=VISION, **route)])
    assert routes.channel_of(incident(), WEDNESDAY) == (VISION if fits else CHANNEL)


def test_an_incident_of_one_team_alone_is_told_in_its_channel() -> None:
    (job,) = incident().jobs
    ml = Tenant(team="ml", namespaces=(job.namespace,), channel="C0ML")
    queued = Tenant(team="queued", queues=("gpu-vision",), channel=VISION)
    routes = Routes(CHANNEL, (), (queued, ml))
    assert routes.channel_of(incident(), NOW) == "C0ML"
    fact = JobFact("c1", job, NOW, queue="gpu-vision")
    assert routes.channel_of(incident(), NOW, {job.key: fact}) == VISION
    # What affects several teams, or nobody's jobs, is the platform's.
    others = replace(job, namespace="other", name="other")
    assert routes.channel_of(replace(incident(), jobs=(job, others)), NOW) == CHANNEL
    assert routes.channel_of(replace(incident(), jobs=()), NOW) == CHANNEL
    assert (
        Routes(CHANNEL, (), (Tenant(team="ml", namespaces=(job.namespace,)),)).channel_of(incident(), NOW)
        == CHANNEL
    )
    assert Routes(CHANNEL, [SlackRoute(channel="C0A")], (ml,)).channel_of(incident(), NOW) == "C0A"


@pytest.mark.parametrize(
    ("route", "owners", "on_call"),
    [
        (None, NOWHERE, CHANNEL),
        ({}, NOWHERE, VISION),
        ({"cluster": "c1"}, NOWHERE, VISION),
        ({"namespace": "res*"}, VISION, VISION),
        ({"family": "gpu_*"}, VISION, VISION),
        ({"family": "nic_*"}, NOWHERE, CHANNEL),
        ({"audience": "owner"}, VISION, CHANNEL),
        ({"audience": "on_call", "namespace": "res*"}, NOWHERE, VISION),
    ],
)
def test_what_is_for_a_jobs_owner_never_comes_into_the_channel_of_those_on_call(
    route: dict[str, object] | None, owners: str, on_call: str
) -> None:
    routes = Routes(
        CHANNEL, [] if route is None else [SlackRoute.model_validate({"channel": VISION, **route})]
    )
    assert routes.channel_of(incident(), NOW, audience=Audience.OWNER) == owners
    assert routes.channel_of(incident(), NOW, audience=Audience.ON_CALL) == on_call


def test_what_is_for_a_jobs_owner_comes_into_the_channel_of_their_team() -> None:
    ml = Tenant(team="ml", namespaces=(incident().jobs[0].namespace,), channel="C0ML")
    assert Routes(CHANNEL, (), (ml,)).channel_of(incident(), NOW, audience=Audience.OWNER) == "C0ML"


def test_an_owners_incident_has_a_thread_once_a_run_of_it_asks_for_more() -> None:
    sources, owners = ThreadSources(), replace(incident(), audience=Audience.OWNER)
    threads = WantedThreads(sources, lambda name, cluster: thread_at(name, cluster))
    routes = Routes(CHANNEL)

    def thread_at(name: str, cluster: str) -> Thread:
        return Thread(name, cluster, threads.channel_of(name, routes, NOW), NOW, NOW)

    sources.take_incident(owners)
    assert threads.joining([owners.id]) == []
    wanted = threads.wanted(owners.id, NOW)
    assert wanted is not None
    assert (wanted.thread.channel, wanted.slots) == (NOWHERE, ())
    sources.take_run(run(owners, Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL))
    wanted = threads.wanted(owners.id, NOW)
    assert wanted is not None
    assert (wanted.thread.channel, wanted.slots[0].name) == (CHANNEL, ROOT)


def test_the_first_route_that_fits_counts() -> None:
    routes = Routes(CHANNEL, [SlackRoute(channel="C0A", cluster="c1"), SlackRoute(channel="C0B")])
    assert routes.channel_of(incident(), NOW) == "C0A"
    assert routes.channel_of(incident("c2"), NOW) == "C0B"


@pytest.mark.parametrize(
    ("hours", "at", "within"),
    [
        (BusinessHours(), WEDNESDAY, True),
        (BusinessHours(), WEDNESDAY.replace(hour=18, minute=0), False),
        (BusinessHours(), WEDNESDAY - timedelta(days=3), False),
        (BusinessHours(tz="Asia/Tokyo"), WEDNESDAY, False),
        (BusinessHours(start="22:00", end="06:00"), WEDNESDAY.replace(hour=23), True),
        (BusinessHours(days=("wed",), start="22:00", end="06:00"), WEDNESDAY.replace(day=5, hour=5), True),
        (BusinessHours(days=("wed",), start="22:00", end="06:00"), WEDNESDAY.replace(hour=5), False),
    ],
    ids=[
        "morning",
        "evening",
        "sunday",
        "evening in Tokyo",
        "night",
        "the morning after",
        "the morning before",
    ],
)
def test_hours_are_those_of_their_place(hours: BusinessHours, at: datetime, within: bool) -> None:
    assert is_within(hours, at) is within


@pytest.mark.parametrize(
    "wrong", [{"start": "25:00"}, {"start": "09:00", "end": "09:00"}, {"tz": "Mars/Olympus"}, {"days": ()}]
)
def test_hours_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BusinessHours(**wrong)


def other(number: int) -> Incident:
    now, root = utc_now(), Entity("c1", node=f"node-{number}")
    return incident(
        id=incident_id("c1", root, "gpu_off_bus", 1), root=root, fault_at=now, opened_at=now, updated_at=now
    )


@pytest.mark.embedded
async def test_an_incident_keeps_the_channel_it_began_in(tmp_path: Path) -> None:
    route = SlackRoute(channel=VISION, severities=(Severity.CRITICAL,))
    first = other(1)
    eased = replace(first, revision=2, severity=Severity.WARNING, state=IncidentState.MITIGATING)
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin(channels=(CHANNEL, VISION)) as server,
        writing(embedded.settings) as write,
    ):
        await write(first)
        async with running(_chat(embedded.settings, slack(server.base_url), (route,))):
            await seen(lambda: server.roots(VISION), "it begins in the other channel")
        await write(eased, replace(other(2), severity=Severity.WARNING))
        async with running(_chat(embedded.settings, slack(server.base_url), (route,))):
            await seen(lambda: "mitigated" in server.roots(VISION)[0].text, "it goes on there")
            await seen(lambda: server.roots(CHANNEL), "another one begins in the default channel")
    assert (len(server.roots(VISION)), len(server.roots(CHANNEL))) == (1, 1)


def _chat(settings: KafkaSettings, connector: Slack, routes: tuple[SlackRoute, ...]) -> Chat:
    return Chat(settings, connector, channel=CHANNEL, debounce_s=0.05, lease_s=30, routes=routes)
