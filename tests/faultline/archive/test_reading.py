"""What is read of an archive between two times, and in which order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from faultline.archive.folder import Archive
from faultline.archive.reader import ArchivedRecords
from faultline.replay.archived import open_archive
from streams.kafka.topics import INVENTORY, SIGNALS
from streams.model.errors import BadInput, ConfigError
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, T0, batch, node, one_of_each, xid
from tests.faultline.archive.writing import archive_at, write

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def every(count: int, step: timedelta = MINUTE) -> list[RawRecord]:
    return [batch(n, xid(n), xid(n + 1000), at=T0 + n * step) for n in range(count)]


def test_records_come_in_order_across_midnight_and_bounded_by_time(tmp_path: Path) -> None:
    archive, records = archive_at(tmp_path), every(300)
    for start in range(0, 300, 50):
        write(archive, records[start : start + 50])
    found = ArchivedRecords(archive, SIGNALS.name, CLUSTER, T0 + 100 * MINUTE, T0 + 200 * MINUTE)
    assert list(found.of(0)) == records[100:200]


def test_records_whose_times_run_back_over_midnight_still_come_by_offset(tmp_path: Path) -> None:
    late = [3 * MINUTE, 121 * MINUTE, 119 * MINUTE, 122 * MINUTE, 5 * MINUTE, 123 * MINUTE]
    records = [batch(n, xid(n), at=T0 + at) for n, at in enumerate(late)]
    archive = archive_at(tmp_path)
    write(archive, records[:3])
    write(archive, records[3:])
    assert list(ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)) == records


def test_a_cluster_sees_its_own_records(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    other = batch(1, xid(1))._replace(value=b'{"cluster":"../b c","signals":[{"id":"x"}]}', key=b"../b c")
    write(archive, [batch(0, xid(0)), other, batch(2, xid(2))])
    assert [r.offset for r in ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)] == [0, 2]
    assert list(ArchivedRecords(archive, SIGNALS.name, "../b c", None, None).of(0)) == [other]
    assert not (tmp_path.parent / "b c").exists()


def test_a_capture_is_opened_without_reading_records(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    write(archive, [*one_of_each(), node(1, "gpu-0008", at=T0 + MINUTE)])
    capture = open_archive(str(tmp_path), CLUSTER, T0 - MINUTE, T0 + DAY)
    assert {name: next(iter(topic)) for name, topic in capture.records.items()} == {
        record.topic: record for record in one_of_each()
    }
    assert len(capture.records[INVENTORY.name]) == 2
    assert not capture.state


def test_a_topic_tells_where_it_begins_and_ends_and_can_be_read_again_in_batches(tmp_path: Path) -> None:
    records = every(30)
    write(archive_at(tmp_path), records)
    topic = open_archive(str(tmp_path), CLUSTER, T0, T0 + 20 * MINUTE).records[SIGNALS.name]
    assert len(topic) == 20
    assert list(topic) == list(topic) == records[:20]
    survey = topic.survey  # type: ignore[attr-defined]
    assert (survey.last - survey.first) / 60e6 == 19
    values = [value for batch_ in topic.batches() for value in batch_.values]  # type: ignore[attr-defined]
    assert values == [record.value for record in records[:20]]


def test_records_of_two_partitions_are_merged_by_time(tmp_path: Path) -> None:
    one = [batch(n, xid(n), at=T0 + 2 * n * MINUTE) for n in range(5)]
    other = [batch(n, xid(n), at=T0 + (2 * n + 1) * MINUTE, partition=3) for n in range(5)]
    write(archive_at(tmp_path), one + other)
    topic = open_archive(str(tmp_path), CLUSTER, T0, T0 + DAY).records[SIGNALS.name]
    assert [record.timestamp for record in topic] == [T0 + n * MINUTE for n in range(10)]


def test_an_archive_that_has_nothing_of_the_time_or_cluster_says_so(tmp_path: Path) -> None:
    write(archive_at(tmp_path), one_of_each())
    with pytest.raises(BadInput, match="nothing of cluster elsewhere"):
        open_archive(str(tmp_path), "elsewhere", T0, T0 + DAY)
    with pytest.raises(BadInput, match="nothing of cluster"):
        open_archive(str(tmp_path), CLUSTER, T0 + 3 * DAY, T0 + 4 * DAY)


def test_an_address_that_no_archive_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"archive\.url"):
        Archive.at("ftp://example.com/archive")


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"archive\.url: a login") as refused:
        Archive.at("s3://standin:hunter2@bucket/archive")
    assert "hunter2" not in str(refused.value)
