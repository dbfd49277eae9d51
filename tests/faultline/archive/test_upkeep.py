"""Few files, states of days, deletion of what is old, and files of other versions."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultline.archive.daily_state import state_at
from faultline.archive.folder import Archive
from faultline.archive.merge import MOST_FILES, merge
from faultline.archive.reader import ArchivedRecords
from faultline.archive.upkeep import keep_up
from faultline.replay.archived import open_archive
from streams.kafka.topics import INVENTORY, SIGNALS, Topic
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, T0, batch, gone, node, xid
from tests.faultline.archive.writing import archive_at, parts, write

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
TODAY = datetime(2026, 9, 1, 23, 50, tzinfo=UTC)


def written(archive: Archive, count: int) -> list[RawRecord]:
    """As many files of one day."""
    records = [batch(n, xid(n), at=T0 + n * MINUTE) for n in range(count)]
    for record in records:
        write(archive, [record])
    return records


def read(archive: Archive, topic: Topic = SIGNALS) -> list[RawRecord]:
    return list(ArchivedRecords(archive, topic.name, CLUSTER, None, None).of(0))


def test_files_of_a_day_that_is_over_become_one(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    records = written(archive, 30)
    assert keep_up(archive, SIGNALS, 0, TODAY + DAY) == 29
    assert [(part.first, part.last) for part in parts(archive, SIGNALS.name)] == [(0, 29)]
    assert read(archive) == records


def test_files_of_today_are_left_alone_until_they_are_many(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    written(archive, MOST_FILES)
    assert keep_up(archive, SIGNALS, 0, TODAY) == 0
    written(archive, MOST_FILES + 1)
    assert keep_up(archive, SIGNALS, 0, TODAY) == MOST_FILES
    assert len(parts(archive, SIGNALS.name)) == 1


def test_files_that_are_large_together_stay_apart(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    records = written(archive, 8)
    sizes = [one.size for one in archive.parts(SIGNALS.name)]
    merge(archive, parts(archive, SIGNALS.name)[0].place, 0, merged_bytes=3 * max(sizes))
    assert [(part.first, part.last) for part in parts(archive, SIGNALS.name)] == [(0, 2), (3, 5), (6, 7)]
    assert read(archive) == records


def test_partitions_and_clusters_are_merged_apart(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    for n in range(4):
        write(archive, [batch(n, xid(n)), batch(n, xid(n), partition=1)])
    assert keep_up(archive, SIGNALS, 1, TODAY + DAY) == 3
    assert [part.partition for part in parts(archive, SIGNALS.name)] == [0, 0, 0, 0, 1]


def test_a_reader_whose_files_are_merged_while_it_reads_misses_and_repeats_nothing(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    records = written(archive, 12)
    reading = ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)
    first = [next(reading) for _ in range(5)]
    keep_up(archive, SIGNALS, 0, TODAY + DAY)
    assert first + list(reading) == records


def test_days_that_are_too_old_are_deleted_and_what_still_holds_of_them_is_known(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    still, removed = node(0, "gpu-1"), node(1, "gpu-2")
    write(archive, [still, removed, gone(2, INVENTORY.name, f"{CLUSTER}/node/gpu-2", T0 + DAY)])
    fresh = node(3, "gpu-3", at=T0 + 40 * DAY)
    write(archive, [fresh])
    for day in range(1, 42):
        keep_up(archive, INVENTORY, 0, T0 + day * DAY, keep_days=30)
    assert read(archive, INVENTORY) == [fresh]
    assert state_at(archive, INVENTORY, CLUSTER, T0 + 41 * DAY) == [still, fresh]
    assert len(archive.states(INVENTORY.name)) == 31


def test_what_a_crash_left_half_written_is_deleted_a_day_later(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    written(archive, 1)
    (place,) = {part.place for part in parts(archive, SIGNALS.name)}
    left = tmp_path / place.path / ".part-00000.parquet.1f.tmp"
    left.write_bytes(b"half")
    keep_up(archive, SIGNALS, 0, datetime.now(UTC))
    assert left.exists(), "somebody may be writing it"
    two_days_ago = datetime.now(UTC).timestamp() - 2 * 86_400
    os.utime(left, (two_days_ago, two_days_ago))
    keep_up(archive, SIGNALS, 0, datetime.now(UTC))
    assert not left.exists()
    assert len(read(archive)) == 1


def test_the_state_of_a_topic_is_read_from_the_last_day_that_has_it(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    write(archive, [node(n, f"gpu-{n % 4}", at=T0 + n * MINUTE) for n in range(100)])
    keep_up(archive, INVENTORY, 0, T0 + DAY)
    late = node(100, "gpu-0", at=T0 + 99 * MINUTE, ready=False)
    write(archive, [late])
    before = state_at(archive, INVENTORY, CLUSTER, T0 + DAY)
    assert [record.offset for record in before] == [97, 98, 99, 100], "also what was late"
    capture = open_archive(str(tmp_path), CLUSTER, T0 + DAY, T0 + 2 * DAY, warm_up=DAY)
    assert next(iter(capture.records[INVENTORY.name])).offset == 0
    assert not capture.state


def plainer(path: Path, keep: list[str], more: dict[str, pa.Array] | None = None) -> None:
    """Write a file anew with other columns."""
    table = pq.read_table(path, partitioning=None).select(keep)
    for name, values in (more or {}).items():
        table = table.append_column(name, values)
    pq.write_table(table, path)


def test_files_with_fewer_and_with_more_columns_are_read_and_merged_with_todays(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    records = written(archive, 3)
    old, new, _ = sorted(tmp_path.rglob("*.parquet"))
    plainer(old, ["partition", "offset", "timestamp", "key", "document", "envelope"])
    names = pq.read_schema(new).names
    plainer(new, names, {"datacenter": pa.array(["fra1"])})
    assert read(archive) == records
    keep_up(archive, SIGNALS, 0, TODAY + DAY)
    assert read(archive) == records
    (merged,) = tmp_path.rglob("*.parquet")
    table = pq.read_table(merged, partitioning=None)
    assert table["datacenter"].to_pylist() == [None, "fra1", None]
    assert table["node"].to_pylist() == [None, "gpu-0007", "gpu-0007"]


def test_files_whose_columns_have_other_types_stay_apart_and_are_read(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    records = written(archive, 2)
    first = sorted(tmp_path.rglob("*.parquet"))[0]
    names = [name for name in pq.read_schema(first).names if name != "xid"]
    plainer(first, names, {"xid": pa.array(["79"])})
    assert keep_up(archive, SIGNALS, 0, TODAY + DAY) == 0
    assert read(archive) == records


def test_a_file_that_the_archive_did_not_write_is_named(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    written(archive, 1)
    (file,) = tmp_path.rglob("*.parquet")
    pq.write_table(pa.table({"other": [1]}), file)
    with pytest.raises(BadInput, match="nothing that the archive wrote"):
        read(archive)
    file.write_bytes(b"no parquet")
    with pytest.raises(BadInput, match=r"part-00000.*is not readable"):
        read(archive)


def test_a_long_pass_shows_that_it_moves_on(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    write(archive, [node(n, f"gpu-{n % 4}", at=T0) for n in range(20_001)])
    beats: list[int] = []
    keep_up(archive, INVENTORY, 0, T0 + DAY, beat=lambda: beats.append(1))
    assert len(beats) == 3
