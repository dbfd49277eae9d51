from datetime import timedelta
from pathlib import Path

import pytest

from faultline.replay.capture import write
from faultline.replay.sources import KAFKA, opened
from faultline.runtime.settings import Settings
from streams.model.errors import BadInput
from tests.faultline.replay.test_replay import NOON, capture

SETTINGS = Settings(cluster="east")


def test_a_capture_brings_its_own_times(tmp_path: Path) -> None:
    write(tmp_path, capture())
    with opened(str(tmp_path), SETTINGS) as found:
        assert found.meta == capture().meta
    with pytest.raises(BadInput, match="times of its own"), opened(str(tmp_path), SETTINGS, NOON):
        pass


@pytest.mark.parametrize("source", [KAFKA, "s3://bucket/archive"])
def test_what_is_no_capture_has_to_be_told_where_to_begin(source: str) -> None:
    with pytest.raises(BadInput, match="--from has to say"), opened(source, SETTINGS):
        pass
    with (
        pytest.raises(BadInput, match="not before"),
        opened(source, SETTINGS, NOON, NOON - timedelta(hours=1)),
    ):
        pass


def test_a_directory_with_neither_a_capture_nor_an_archive_is_told_as_that(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match=r"neither a capture .* nor an archive"),
        opened(str(tmp_path), SETTINGS),
    ):
        pass
    (tmp_path / "raw.node-logs" / "day=2026-03-01").mkdir(parents=True)
    with pytest.raises(BadInput, match="--from has to say"), opened(str(tmp_path), SETTINGS):
        pass


def test_a_directory_that_is_not_there_is_named() -> None:
    with (
        pytest.raises(BadInput, match="captures/nowhere: no such directory"),
        opened("captures/nowhere", SETTINGS),
    ):
        pass
