"""A sample of the crash matrix; `make crash-matrix` plays all of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from runbooks.language.schema import INTERNAL
from tests.crash_matrix.campaign import Campaign
from tests.crash_matrix.cases import CALLS, WRITTEN, matrix, sample
from tests.crash_matrix.stages import House
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

SAMPLE = 24
STAGES = 8


def test_the_matrix_is_large_and_no_case_is_there_twice() -> None:
    names = Counter(case.name for case in matrix())
    assert len(names) >= 500
    assert set(names.values()) == {1}
    assert set(WRITTEN) > INTERNAL
    assert all(
        len([n for n in names if n.startswith(f"{step}-")]) > 40 for step in CALLS if step != "verify_job"
    )


@pytest.mark.kafka
@pytest.mark.cluster
@pytest.mark.slurm
async def test_killed_at_points_all_over_the_matrix_it_ends_as_if_undisturbed(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    cases = sample(matrix(), SAMPLE)
    assert {len(case.deaths) for case in cases} == {1, 2}
    async with House.open(kafka, control_plane, tmp_path, STAGES) as house:
        results = await Campaign(house).run(cases)
    assert len([result for result in results if result.case.deaths]) == SAMPLE
    wrong = [f"{r.case.name}: {r.problems}\n{r.story}" for r in results if r.problems]
    assert wrong == []
