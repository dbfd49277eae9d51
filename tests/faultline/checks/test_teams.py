"""Rows of teams and the jobs of the inventory, held against each other."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from faultline.checks.teams_probe import probe_teams, team_findings
from faultline.runtime.settings import Settings
from streams.config.tenant_settings import Tenant
from streams.kafka import clients, provisioning
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.codec import encode
from streams.model.entity import JobRef
from streams.model.facts import FactRecord, JobFact
from tests.testbed.kafka import Kafka

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(namespace: str, name: str = "train", team: str | None = None, queue: str | None = None) -> JobFact:
    return JobFact("west", JobRef("PyTorchJob", namespace, name), NOW, team=team, queue=queue)


def told(rows: list[Tenant], jobs: list[JobFact]) -> list[tuple[str, str, str]]:
    return [(one.level, one.where, one.what) for one in team_findings(rows, jobs)]


def test_rows_that_fit_some_jobs_and_jobs_of_some_row_are_nothing_to_tell() -> None:
    rows = [Tenant(team="ml", namespaces=("ml-*",)), Tenant(team="vision", marks=("vision",))]
    assert told(rows, [job("ml-a"), job("web", team="vision"), job("other")]) == []
    assert told(rows, []) == [], "an inventory that was lost says nothing of teams"


def test_a_misspelt_mark_is_told_with_the_team_that_was_meant() -> None:
    rows = [Tenant(team="vision", marks=("vision",))]
    found = told(rows, [job("a", "one", "visoin"), job("a", "two", "visoin"), job("b", team="vision")])
    assert found == [
        (
            "warning",
            "responder.tenants",
            "2 jobs say that they are of team 'visoin' (faultline.dev/team), and no row fits them: a/one, a/two; "
            "did you mean vision?",
        )
    ]


def test_a_mark_on_a_job_that_its_namespace_gives_to_a_team_is_not_judged() -> None:
    assert told([Tenant(team="ml", namespaces=("ml",))], [job("ml", team="anything")]) == []


def test_a_row_without_jobs_is_noted_and_one_that_others_cover_is_wrong() -> None:
    rows = [
        Tenant(team="ml", namespaces=("ml-*",)),
        Tenant(team="ml-dev", namespaces=("ml-dev",)),
        Tenant(team="vision", namespaces=("vison",)),
    ]
    assert told(rows, [job("ml-dev"), job("ml-prod")]) == [
        ("warning", "responder.tenants.1", "team ml-dev: all 1 jobs that it fits are of rows before it (ml)"),
        ("note", "responder.tenants.2", "team vision: none of the 2 jobs in the inventory is its own now"),
    ]


@pytest.mark.kafka
async def test_the_jobs_are_those_that_the_inventory_tells_of_last(kafka: Kafka) -> None:
    rows = (Tenant(team="ml", namespaces=("ml",)),)
    settings = Settings(cluster="west", kafka=kafka.settings("teams"), responder={"tenants": rows})
    await provisioning.apply(settings.kafka)
    assert await probe_teams(settings) == []
    here, gone = job("ml"), job("web", team="m1")
    producer = await clients.started(clients.producer(settings.kafka), settings.kafka)
    name = clients.topic_name(settings.kafka, INVENTORY)
    place = partition_of("west", settings.kafka.cluster_partitions)
    try:
        for key, value in (
            (here.key, encode(FactRecord(here))),
            (gone.key, encode(FactRecord(gone))),
            ("west/node/gpu-1", b"{"),
        ):
            await producer.send_and_wait(name, value, key=key.encode(), partition=place)
        (found,) = await probe_teams(settings)
        assert "'m1'" in found.what
        await producer.send_and_wait(name, None, key=gone.key.encode(), partition=place)
        assert await probe_teams(settings) == []
    finally:
        await producer.stop()
