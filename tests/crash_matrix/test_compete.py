"""Two and three responders that freeze, die and leave while they work: every effect once. `make compete` has 10,000 of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash_matrix.compete import EFFECTS, Contest
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

INCIDENTS = 20

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


@pytest.mark.parametrize("responders", [2, 3])
async def test_every_effect_happens_once_whoever_owns_its_partition(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path, responders: int
) -> None:
    contest = Contest(kafka, control_plane, tmp_path, responders, incidents=INCIDENTS, seed=responders)
    figures = await contest.run()
    assert figures.problems == {}, "\n\n".join(figures.examples)
    assert figures.effects == INCIDENTS * EFFECTS
    assert figures.doubled == 0
    blows = figures.freezes + figures.freezes_before_a_request + figures.kills + figures.ends
    assert blows >= 3, "it was no contest"
