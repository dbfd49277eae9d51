"""A small mixed soak: what an hour shows in `python -m tests.soak.mixed.run --minutes 60`, with blows that come faster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.mixed.run import Options, soak

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


async def test_whatever_is_hit_the_truth_is_handled_once(tmp_path: Path) -> None:
    options = Options(
        minutes=2, lines_per_s=300, seed=7, blow_every_s=4, fault_every_s=6, job_every_s=20, disk_mb=800
    )
    figures = await soak(tmp_path, options)
    assert figures.violations == []
    assert figures.faults_told >= 10
    assert len(figures.blows) >= 8
