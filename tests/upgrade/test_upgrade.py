"""Every process to this release under load and back to the previous one: nothing lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.mixed.ledger import PERSON
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.upgrade.release import NoPreviousRelease, previous
from tests.upgrade.run import ORDER, upgrade

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


async def test_to_this_release_under_load_and_back(tmp_path: Path) -> None:
    try:
        commit = previous()
    except NoPreviousRelease as missing:
        pytest.fail(f"not run: {missing}")
    with (
        Kafka.running() as kafka,
        ControlPlane.running(node_grace_s=120, users={PERSON: ("system:masters",)}) as plane,
    ):
        figures = await upgrade(tmp_path, kafka, plane, commit, lines_per_s=300)
    assert figures.violations == []
    assert figures.faults_told == 2 * len(ORDER) + 3
