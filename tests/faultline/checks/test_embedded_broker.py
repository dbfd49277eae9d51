"""The check of a broker that tells no rights and has no admin requests: the embedded one, which allows everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline.checks.kafka_probe import probe_kafka
from faultline.runtime.processes import PROCESSES
from sandbox.emulated import broker

pytestmark = pytest.mark.embedded


async def test_a_broker_without_an_authorizer_has_nothing_to_find(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        assert await probe_kafka(embedded.settings, "west", tuple(PROCESSES)) == []
