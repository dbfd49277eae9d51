"""Who asks for a session of diagnostics at a terminal is told when the API server does not answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from connectors.kubernetes.client import Cluster
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_preflight import PATIENCE, Preflight
from connectors.kubernetes.work_templates import Template
from tests.connectors.kubernetes.node_jobs import a_template

NOWHERE = "http://127.0.0.1:1"


async def test_an_api_server_that_does_not_answer_is_given_up_and_named() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += timedelta(seconds=45)

    diagnostics = [Diagnostic("sound", Template("validate_node", a_template()))]
    async with await Cluster.at(NOWHERE) as cluster:
        preflight = Preflight(cluster, "work", diagnostics, clock=lambda: now, sleep=sleep)
        verdict = await preflight.run("gpu-1")
    assert not verdict.passed
    assert verdict.reason.startswith("given up: ")
    assert NOWHERE.removeprefix("http://") in verdict.reason
    assert len(pauses) == PATIENCE // timedelta(seconds=45) + 1
