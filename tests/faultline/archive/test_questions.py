"""The questions in SQL that the documentation shows, asked of an archive by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultline.archive.folder import Archive
from faultline.archive.upkeep import keep_up
from streams.kafka.topics import INCIDENTS, INVENTORY, SIGNALS, TIMELINE
from streams.model.clock import utc_now
from streams.model.incident import IncidentState
from tests.faultline.archive.documents import batch, entry, incident, node, xid
from tests.faultline.archive.writing import archive_at, write

PAGE = Path(__file__).parents[3] / "docs/replay.md"
QUESTIONS = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
XIDS, FAMILIES, REFUSED, BETWEEN = QUESTIONS
DAY = timedelta(days=1)
NOW = utc_now()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive where the page has it."""
    monkeypatch.chdir(tmp_path)
    return archive_at(tmp_path / "archive")


def ask(question: str) -> Sequence[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.sql(question).fetchall()


def week(at: datetime) -> Any:
    return (at - at.weekday() * DAY).date()


def test_xids_by_node_of_the_last_month(archive: Archive) -> None:
    dead = [xid(n, "gpu-1", NOW - 3 * DAY) for n in range(3)]
    write(
        archive,
        [
            batch(0, xid(7, "gpu-9", NOW - 60 * DAY), at=NOW - 60 * DAY),
            batch(1, *dead, xid(8, "gpu-2", NOW - 2 * DAY, code=94), at=NOW - 3 * DAY),
            batch(2, xid(9, "gpu-2", NOW - DAY, code=94).rolled_up(40, NOW - 2 * DAY), at=NOW - DAY),
        ],
    )
    keep_up(archive, SIGNALS, 0, NOW)
    assert [row[:3] for row in ask(XIDS)] == [("gpu-2", 94, 41), ("gpu-1", 79, 3)]


def test_incidents_by_family_and_week(archive: Archive) -> None:
    last, before = NOW - 7 * DAY, NOW - 14 * DAY
    write(
        archive,
        [
            incident(0, "gpu-1", at=before),
            incident(1, "gpu-1", at=before, revision=2, state=IncidentState.RESOLVED),
            incident(2, "gpu-2", at=before, family="nic_link_down"),
            incident(3, "gpu-3", at=before, family="nic_link_down", state=IncidentState.OPEN),
            incident(4, "gpu-3", at=before, family="nic_link_down", revision=2, state=IncidentState.MERGED),
            incident(5, "gpu-4", at=last),
        ],
    )
    assert ask(FAMILIES) == [
        (week(before), "gpu_off_bus", 1),
        (week(before), "nic_link_down", 1),
        (week(last), "gpu_off_bus", 1),
    ]


def test_what_was_refused_by_which_guardrail(archive: Archive) -> None:
    at = NOW - DAY
    write(
        archive,
        [
            entry(0, "step.refused", at, action="cordon_node", rule="protected"),
            entry(1, "step.blocked", at, action="cordon_node", rule="blast radius"),
            entry(2, "step.blocked", at, action="cordon_node", rule="blast radius"),
            entry(3, "step.would", at, action="cordon_node"),
        ],
    )
    assert set(ask(REFUSED)) == {
        ("protected", "cordon_node", "refused", 1),
        ("blast radius", "cordon_node", "blocked", 1),
    }


def test_node_hours_between_faults_of_each_pool(archive: Archive) -> None:
    write(
        archive,
        [
            node(0, "gpu-1", at=NOW - 2 * DAY, pool="old"),
            node(1, "gpu-1", at=NOW - DAY, pool="train"),
            node(2, "gpu-2", at=NOW - DAY, pool="train"),
            node(3, "gpu-3", at=NOW - DAY, pool="serve"),
            incident(0, "gpu-1", at=NOW - DAY),
            incident(1, "gpu-1", at=NOW - DAY, revision=2),
            incident(2, "gpu-2", at=NOW - 2 * DAY),
        ],
    )
    assert ask(BETWEEN) == [("train", 2, 2, 2160), ("serve", 1, 0, None)]


def test_files_of_an_older_version_are_asked_together_with_todays(archive: Archive, tmp_path: Path) -> None:
    write(archive, [batch(0, xid(1, "gpu-1", NOW - 3 * DAY), at=NOW - 3 * DAY)])
    write(archive, [batch(1, xid(2, "gpu-1", NOW - 2 * DAY), at=NOW - 2 * DAY)])
    old, _ = sorted((tmp_path / "archive").rglob("*.parquet"))
    kept = [name for name in pq.read_schema(old).names if name not in ("state", "gpu", "position")]
    without = pq.read_table(old, partitioning=None).select(kept)
    pq.write_table(without.append_column("rack", pa.array(["r7"])), old)
    files = "read_parquet('archive/signals/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    assert ask(f'SELECT node, xid, gpu, rack FROM {files} ORDER BY "offset"') == [
        ("gpu-1", 79, None, "r7"),
        ("gpu-1", 79, "0000:1b:00", None),
    ]


def test_rows_that_a_late_writer_left_twice_are_counted_once_on_wish(
    archive: Archive, tmp_path: Path
) -> None:
    (part,) = write(archive, [batch(n, xid(2 * n), xid(2 * n + 1)) for n in range(3)])
    late = tmp_path / "archive" / part._replace(last=1).path
    rows = pq.read_table(tmp_path / "archive" / part.path, partitioning=None).slice(0, 4)
    pq.write_table(rows, late)
    files = "read_parquet('archive/signals/**/*.parquet')"
    (once,) = re.findall(r"`(DISTINCT ON .*?)`", PAGE.read_text())
    assert ask(f"SELECT count(*) FROM {files}") == [(10,)]
    assert ask(f"SELECT count(*) FROM (SELECT {once} * FROM {files})") == [(6,)]


def test_a_field_without_a_column_is_in_the_document(archive: Archive) -> None:
    write(archive, [batch(0, xid(41), at=NOW)])
    (text,) = re.findall(r"`(decode\(document\).*?)`", PAGE.read_text())
    assert ask(f"SELECT {text} FROM read_parquet('archive/signals/**/*.parquet')") == [("41",)]


def test_all_topics_are_asked_by_the_columns_that_they_have_in_common(archive: Archive) -> None:
    write(archive, [batch(0, xid(1)), node(0, "gpu-1"), incident(0), entry(0, "incident.opened")])
    files = "read_parquet('archive/*/day=*/**/*.parquet', hive_partitioning = true, union_by_name = true)"
    topics = {row[0] for row in ask(f"SELECT DISTINCT topic FROM {files} WHERE cluster = 'gpu-east-1'")}
    assert topics == {topic.name for topic in (SIGNALS, INVENTORY, INCIDENTS, TIMELINE)}
