"""Blocks about the topics themselves, on a real broker that has none of them yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.checkout import checkout, run
from tests.docs.pages import Block, Needs, command_blocks
from tests.testbed.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

BLOCKS = [block for block in command_blocks() if block.needs is Needs.BROKER]


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BLOCKS])
def test_a_block_about_topics_runs_on_a_real_broker(block: Block, kafka: Kafka, tmp_path: Path) -> None:
    settings = kafka.settings("docs").model_dump(mode="json", exclude_defaults=True)
    run(
        block,
        checkout(tmp_path),
        **{f"FAULTLINE_KAFKA__{name.upper()}": str(value) for name, value in settings.items()},
    )
