"""A small soak: what ten million records show in `make soak`, on fewer and with blows that come faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.run import Soak
from tests.testbed.kafka import Kafka

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]


async def test_killed_again_and_again_it_tells_what_it_tells_undisturbed(
    kafka: Kafka, tmp_path: Path
) -> None:
    soak = Soak(kafka.bootstrap, tmp_path, 150_000, seed=7, every_s=1.5, batch_records=500)
    figures = await soak.run()
    assert figures.faults == []
    assert figures.kills > 0
    assert figures.told_at_once > 200
    assert figures.changes > 10
    assert figures.signals_undisturbed < figures.lines / 50
