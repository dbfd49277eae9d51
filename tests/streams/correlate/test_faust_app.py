"""The application of the correlator needs no place to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import build_app

pytestmark = pytest.mark.embedded


async def test_a_start_leaves_nothing_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working_directory = tmp_path / "cwd"
    working_directory.mkdir()
    async with broker.running(KafkaSettings(cluster_partitions=1), log=tmp_path / "broker.log") as running:
        monkeypatch.chdir(working_directory)
        app = build_app(running.settings)
        app.Table("state", partitions=1)
        app.finalize()
        try:
            await app.start()
            assert list(working_directory.iterdir()) == []
        finally:
            await app.stop()
