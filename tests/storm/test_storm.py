"""A small storm of every run; `make nightly` has the large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storm.run import Storm
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


async def test_two_hundred_nodes_gone_at_once_are_one_matter_and_the_one_true_fault_is_acted_on(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    brewing = Storm(kafka, control_plane, tmp_path, nodes=200, closed_within_s=60, quiet_within_s=300)
    figures = await brewing.run()
    assert figures.faults == [], figures
