"""Responder processes on a real broker: what they read, what they wrote, and what they called."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from streams.config.settings import KafkaSettings
from streams.kafka.topics import (
    COMMANDS,
    CONTROLS,
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    RUNS,
    SIGNALS,
    TIMELINE,
    partition_of,
)
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.facts import FactRecord, JobFact, NodeFact, PodFact
from streams.model.incident import Certainty, Incident
from streams.model.run import Run
from tests.runbooks.scenes import CLUSTER, cluster, incident
from tests.runbooks.topics import committed, with_topics, write
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka

ALL = (INVENTORY, INCIDENTS, CONTROLS, COMMANDS, RUNS, TIMELINE, SIGNALS, DEAD_LETTERS)
PARTITION = partition_of(CLUSTER, 2)


def fresh(certainty: Certainty = Certainty.DECISIVE) -> Incident:
    """An incident of this moment: old ones are asked about."""
    return incident(updated_at=utc_now(), opened_at=utc_now(), certainty=certainty)


async def prepared(kafka: Kafka, about: Incident | None = None) -> KafkaSettings:
    """Topics with a cluster and an incident."""
    settings = await stocked(kafka)
    about = about or fresh()
    await write(settings, INCIDENTS, PARTITION, (about.id, encode(about)))
    return settings


async def stocked(kafka: Kafka) -> KafkaSettings:
    """Topics with a cluster, about which nothing is told yet."""
    settings = await with_topics(kafka.bootstrap, *ALL)
    view = cluster()
    facts: list[NodeFact | PodFact | JobFact] = [
        *view.nodes.values(),
        *view.pods.values(),
        *view.jobs.values(),
    ]
    await write(settings, INVENTORY, PARTITION, *((f.key, encode(FactRecord(f))) for f in facts))
    return settings


async def run_of(settings: KafkaSettings, partition: int = PARTITION) -> Run | None:
    values = [value for _, value in await committed(settings, RUNS, partition) if value]
    return decode(Run, values[-1]) if values else None


async def over(settings: KafkaSettings, partition: int = PARTITION) -> Run | None:
    run = await run_of(settings, partition)
    return run if run is not None and run.state.is_over and not run.has_work else None


def calls(folder: Path) -> list[list[str]]:
    file = folder / "calls"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def hit(folder: Path, label: str) -> bool:
    return (folder / f"hit-{label.replace(':', '-')}").exists()


class Herd:
    """Responder processes of one test."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.children: list[Child] = []

    def start(self, sends: str = "KILL", at: tuple[str, ...] = (), **more: Any) -> Child:
        """`more` are options of `responder_child`."""
        options = {
            "bootstrap": self._settings.bootstrap,
            "prefix": self._settings.topic_prefix,
            "folder": str(self._folder),
            "signal": sends,
            "at": at,
            **more,
        }
        command = [sys.executable, "-m", "tests.runbooks.engine.responder_child", json.dumps(options)]
        child = Child("responder", command, log=self._folder / f"log-{len(self.children)}")
        self.children.append(child)
        return child

    def stop(self) -> None:
        for child in self.children:
            child.kill()
