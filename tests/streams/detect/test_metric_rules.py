"""The rules over metrics. That every row tells its stories and leaves its look-alikes alone: `tests/faultline/lint`."""

from __future__ import annotations

from streams.detect.catalog import FOLDER
from streams.detect.metrics.rule_rows import FILES


def test_every_file_of_the_catalog_is_read() -> None:
    assert sorted(FILES) == sorted(path.stem for path in (FOLDER / "metrics").iterdir())
