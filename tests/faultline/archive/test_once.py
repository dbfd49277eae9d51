"""Every record once: whatever crashes, is read again, is written late by a process that lost its partition, or is merged."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.archive.daily_state import state_at
from faultline.archive.folder import Archive, Place
from faultline.archive.merge import merge
from faultline.archive.pending import PendingRows
from faultline.archive.reader import ArchivedRecords
from faultline.archive.upkeep import keep_up
from streams.kafka.topics import INVENTORY, RUNS, SIGNALS, Topic
from streams.model.crash_points import ARCHIVE_FILE_IN_PLACE, ARCHIVE_FILE_WRITTEN, ARCHIVE_MERGED
from streams.model.errors import ConfigError
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, T0, batch, gone, node, one_of_each, run, xid
from tests.faultline.archive.writing import archive_at, parts, write

NOON = datetime(2026, 9, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
POINTS = (ARCHIVE_FILE_WRITTEN, ARCHIVE_FILE_IN_PLACE, ARCHIVE_MERGED)


class Crash(BaseException):
    """The process is gone."""


@dataclass
class CrashAt:
    """Crashes at a point when it is reached for the given time."""

    label: str
    left: int = 1

    def __call__(self, label: str) -> None:
        if label == self.label:
            self.left -= 1
            if self.left == 0:
                raise Crash


@dataclass
class Story:
    """One partition, its archive, and whoever writes it: an archiver, and perhaps one that was frozen and has lost it."""

    archive: Archive
    topic: Topic
    log: Sequence[RawRecord]
    committed: int = 0
    pending: PendingRows | None = None
    written: dict[Place, int] = field(default_factory=dict)
    frozen: tuple[PendingRows, dict[Place, int]] | None = None

    def take(self, count: int) -> None:
        start = self.pending.next if self.pending else self.committed
        if start >= len(self.log):
            return
        self.pending = self.pending or PendingRows(self.topic.name, 0, start, 0.0)
        for record in self.log[start : start + count]:
            self.pending.take(record)

    def restart(self) -> None:
        self.pending, self.written = None, {}

    def freeze(self) -> None:
        if self.pending is not None:
            self.frozen = (self.pending, self.written)
        self.restart()

    def thaw(self) -> None:
        if self.frozen is not None:
            pending, written = self.frozen
            pending.write(self.archive, written, len(self.log))
            self.frozen = None

    def write(self, crash: CrashAt | None, *, commits: bool) -> None:
        if self.pending is None:
            return
        try:
            self.pending.write(self.archive, self.written, len(self.log), crash or CrashAt(""))
        except Crash:
            self.restart()
            return
        if commits:
            self.committed = self.pending.next
            self.pending = None
        else:
            self.restart()

    def keep_up(self, day: int, crash: CrashAt | None) -> None:
        try:
            keep_up(self.archive, self.topic, 0, NOON + day * 24 * HOUR, at=crash or CrashAt(""))
        except Crash:
            self.restart()

    def merge(self, crash: CrashAt | None) -> None:
        for place in {part.place for part in parts(self.archive, self.topic.name)}:
            try:
                merge(self.archive, place, 0, at=crash or CrashAt(""))
            except Crash:
                self.restart()

    def finish(self) -> None:
        self.thaw()
        self.restart()
        self.take(len(self.log))
        self.write(None, commits=True)

    def check(self) -> None:
        found = list(ArchivedRecords(self.archive, self.topic.name, CLUSTER, None, None).of(0))
        assert found == list(self.log)
        for day in (NOON, NOON + 24 * HOUR, NOON + 31 * HOUR, NOON + 90 * HOUR):
            latest = {record.key: record for record in self.log if record.timestamp < day}
            expected = [record for record in latest.values() if record.value is not None]
            state = state_at(self.archive, self.topic, CLUSTER, day)
            assert state == sorted(expected, key=lambda record: record.offset)


CRASH = st.one_of(st.none(), st.builds(CrashAt, st.sampled_from(POINTS), st.integers(1, 3)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 8)),
        st.tuples(st.just("write"), CRASH, st.booleans()),
        st.tuples(st.just("restart")),
        st.tuples(st.just("freeze")),
        st.tuples(st.just("thaw")),
        st.tuples(st.just("keep_up"), st.integers(0, 4), CRASH),
        st.tuples(st.just("merge"), CRASH),
    ),
    max_size=25,
)


@st.composite
def logs(draw: st.DrawFn, topic: Topic) -> list[RawRecord]:
    """Records over some days, some of them with the time of an earlier one, some of them deletions."""
    found: list[RawRecord] = []
    for offset in range(draw(st.integers(1, 25))):
        at = NOON + draw(st.integers(-2, 3)) * HOUR + offset * 3 * HOUR
        if topic is INVENTORY:
            name = f"gpu-{draw(st.integers(0, 3))}"
            key = f"{CLUSTER}/node/{name}"
            found.append(
                gone(offset, topic.name, key, at) if draw(st.booleans()) else node(offset, name, at=at)
            )
        else:
            found.append(gone(offset, topic.name, "run-1", at) if draw(st.booleans()) else run(offset, at))
    return found


@pytest.mark.parametrize("topic", [INVENTORY, RUNS], ids=lambda topic: topic.name)
@given(st.data())
def test_no_record_is_lost_or_doubled_whatever_happens_in_whatever_order(
    topic: Topic, data: st.DataObject
) -> None:
    log = data.draw(logs(topic))
    with tempfile.TemporaryDirectory() as folder:
        story = Story(archive_at(Path(folder)), topic, log)
        for name, *arguments in data.draw(STEPS):
            match name:
                case "take":
                    story.take(arguments[0])
                case "write":
                    story.write(arguments[0], commits=arguments[1])
                case "keep_up":
                    story.keep_up(*arguments)
                case "merge":
                    story.merge(arguments[0])
                case _:
                    getattr(story, name)()
        story.finish()
        story.check()
        story.merge(None)
        story.check()
        files = parts(story.archive, topic.name)
        assert len(files) == len({part.place for part in files}), "one file each, after a merge"


@pytest.mark.parametrize("point", POINTS[:2])
def test_a_crash_while_several_days_are_written_leaves_none_out_and_none_twice(
    tmp_path: Path, point: str
) -> None:
    log = [batch(n, xid(n), at=T0 + n * HOUR) for n in range(72)]
    archive = archive_at(tmp_path)
    for crash in (1, 2):
        with pytest.raises(Crash):
            write(archive, log, at=CrashAt(point, crash))
    write(archive, log)
    assert list(ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)) == log
    assert [(part.first, part.last) for part in parts(archive, SIGNALS.name)] == [
        (0, 1),
        (2, 25),
        (26, 49),
        (50, 71),
    ]


def test_the_next_owner_leaves_out_what_the_last_one_has_written_and_not_committed(tmp_path: Path) -> None:
    archive, log = archive_at(tmp_path), [batch(n, xid(n)) for n in range(10)]
    write(archive, log[:6])
    write(archive, log)
    assert [(part.first, part.last) for part in parts(archive, SIGNALS.name)] == [(0, 5), (6, 9)]


def test_offsets_that_are_lost_cost_reading_and_no_row(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    write(archive, one_of_each())
    before = {part for topic in ("signals", "runs") for part in parts(archive, topic)}
    assert write(archive, one_of_each()) == []
    assert {part for topic in ("signals", "runs") for part in parts(archive, topic)} == before


def test_topics_that_were_created_anew_are_not_written_into_the_archive_of_the_old_ones(
    tmp_path: Path,
) -> None:
    archive = archive_at(tmp_path)
    write(archive, [batch(n, xid(n)) for n in range(10)])
    with pytest.raises(ConfigError, match="archive of other topics"):
        write(archive, [batch(0, xid(99))], end=1)


def test_all_revisions_of_a_compacted_topic_are_kept(tmp_path: Path) -> None:
    archive = archive_at(tmp_path)
    revisions = [node(n, "gpu-1", ready=n % 2 == 0, at=T0 + n * HOUR) for n in range(6)]
    for revision in revisions:
        write(archive, [revision])
    keep_up(archive, INVENTORY, 0, T0 + 240 * HOUR)
    assert list(ArchivedRecords(archive, INVENTORY.name, CLUSTER, None, None).of(0)) == revisions
