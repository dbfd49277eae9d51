"""The notifier on a real broker, killed between the call and its record: one page, one silence."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sandbox.fake_services.alertmanager import AlertmanagerStandin
from sandbox.fake_services.pagerduty import PagerDutyStandin
from sandbox.fake_services.server import InjectedFault
from streams.config.settings import KafkaSettings
from streams.kafka.topics import CONTROLS, DEAD_LETTERS, INCIDENTS, INVENTORY, NOTICES, RUNS, TIMELINE
from streams.model.clock import utc_now
from streams.model.incident import Incident, IncidentState
from tests.faultline.notify.stories import act, asking, incident, node
from tests.faultline.notify.world import Document, seen, tell
from tests.testbed.alertmanager import alertmanager
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually
from tests.tiers import sample

pytestmark = pytest.mark.kafka

PARTITIONS = 2
TOPICS = (INCIDENTS, RUNS, INVENTORY, CONTROLS, TIMELINE, NOTICES, DEAD_LETTERS)
CRASH_POINTS = ("before_intent", "after_intent", "after_call", "after_commit")


@dataclass
class World:
    """A broker with topics of its own, a pager, an Alertmanager, and what the other processes would write."""

    settings: KafkaSettings
    producer: AIOKafkaProducer
    pager: PagerDutyStandin
    standin: AlertmanagerStandin
    folder: Path
    started: int = 0

    async def tell(self, *documents: Document) -> None:
        await tell(self.producer, self.settings, *documents)

    @contextmanager
    def notifier(self, alertmanager_url: str = "", **wishes: object) -> Iterator[Child]:
        self.started += 1
        said: dict[str, Any] = {
            "bootstrap": self.settings.bootstrap,
            "prefix": self.settings.topic_prefix,
            "partitions": PARTITIONS,
            "pagerduty": self.pager.url,
            "alertmanager": alertmanager_url or self.standin.url,
        }
        command = [sys.executable, "-m", "tests.faultline.notify.notifier_process", json.dumps(said | wishes)]
        child = Child("notifier", command, log=self.folder / f"notifier-{self.started}.log")
        try:
            yield child
        finally:
            child.kill()

    async def see(self, condition: Callable[[], object], what: str) -> None:
        try:
            await seen(condition, what, timeout_s=120)
        except TimeoutError as late:
            logs = "\n".join(p.read_text()[-3000:] for p in sorted(self.folder.glob("notifier-*.log")))
            raise AssertionError(f"{late}; {self.pager.incidents}; {self.standin.silences}; {logs}") from late


@pytest.fixture
async def world(kafka: Kafka, tmp_path: Path) -> AsyncIterator[World]:
    prefix = f"notifier-{uuid.uuid4().hex[:8]}."
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    names = [prefix + topic.name for topic in TOPICS]
    await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])

    async def have_leaders() -> bool:
        return all(p["leader"] >= 0 for t in await admin.describe_topics(names) for p in t["partitions"])

    await eventually(have_leaders, "the topics have leaders")
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    settings = KafkaSettings(bootstrap=kafka.bootstrap, topic_prefix=prefix, cluster_partitions=PARTITIONS)
    async with PagerDutyStandin() as pager, AlertmanagerStandin() as standin:
        yield World(settings, producer, pager, standin, tmp_path)
    await producer.stop()


def waiting() -> Incident:
    return incident(at=utc_now() - timedelta(minutes=30))


@pytest.mark.parametrize(
    "label",
    sample(
        (f"{action}:{point}" for action in ("page", "silence") for point in CRASH_POINTS),
        "page:after_call",
        "silence:after_call",
    ),
)
async def test_killed_at_any_point_it_pages_once_and_silences_once(world: World, label: str) -> None:
    one = waiting()
    await world.tell(one, asking(one, one.opened_at), node("gpu-17", one.id))
    with world.notifier(die_at=label) as dying:
        await world.see(lambda: dying.exit_code == -signal.SIGKILL, f"dies at {label}")
    # Whoever acknowledges before anybody was paged keeps the page from being sent; that is another story.
    if was_paged := bool(world.pager.incidents):
        await world.tell(act(one, "person.ack", utc_now()))
    with world.notifier():
        await world.see(lambda: world.standin.live(), "the node is silenced")
        expected = "acknowledged" if was_paged else "triggered"
        await world.see(
            lambda: [i for i in world.pager.incidents if i.status == expected], f"it is {expected}"
        )
        over = replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=utc_now())
        await world.tell(over, node("gpu-17"))
        await world.see(lambda: not world.standin.live(), "the silence is lifted")
    assert len(world.pager.incidents) == 1
    assert len(world.standin.silences) == 1
    assert sum(incident.log.count("trigger") for incident in world.pager.incidents) == 1


async def test_a_lost_answer_is_looked_up_and_nobody_is_woken_twice(world: World) -> None:
    world.pager.fail(InjectedFault("enqueue", "lose_answer", times=1))
    world.standin.fail(InjectedFault("silences", "lose_answer", times=1))
    one = waiting()
    await world.tell(one, asking(one, one.opened_at), node("gpu-17", one.id))
    with world.notifier():
        await world.see(lambda: world.pager.incidents and world.standin.live(), "both are there")
        await world.tell(replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=utc_now()))
        await world.see(lambda: not world.pager.open_incidents(), "the page ends")
    assert len(world.pager.incidents) == 1
    assert len(world.standin.silences) == 1


@pytest.mark.alertmanager
async def test_killed_after_the_call_it_finds_its_silence_in_a_real_alertmanager(world: World) -> None:
    one = waiting()
    await world.tell(one, node("gpu-17", one.id))
    with alertmanager(world.folder) as url:
        with world.notifier(url, die_at="silence:after_call") as dying:
            await world.see(lambda: dying.exit_code == -signal.SIGKILL, "dies after the call")

        async def silences() -> list[dict[str, Any]]:
            async with httpx.AsyncClient(trust_env=False) as client:
                rows: list[dict[str, Any]] = (await client.get(f"{url}/api/v2/silences")).json()
            return rows

        async def is_lifted() -> bool:
            return [row["status"]["state"] for row in await silences()] == ["expired"]

        (made,) = await silences()
        assert made["annotations"]["faultline_incident"] == one.id
        with world.notifier(url):
            await world.tell(node("gpu-17"))
            await eventually(is_lifted, "the one silence is lifted", timeout_s=120)
        assert [row["id"] for row in await silences()] == [made["id"]]


async def test_two_notifiers_share_the_work_and_tell_once(world: World) -> None:
    one = waiting()
    with world.notifier(), world.notifier():
        await world.tell(one, asking(one, one.opened_at), node("gpu-17", one.id))
        await world.see(lambda: world.pager.incidents and world.standin.live(), "both are there")
        await world.tell(
            replace(one, revision=9, state=IncidentState.RESOLVED, closed_at=utc_now()), node("gpu-17")
        )
        await world.see(
            lambda: not world.pager.open_incidents() and not world.standin.live(), "both have ended"
        )
    assert [one.log for one in world.pager.incidents] == [["trigger", "resolve"]]
    assert len(world.standin.silences) == 1
