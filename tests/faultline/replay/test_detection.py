import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faultline.replay import topic_records
from faultline.replay.capture import Capture, Meta, read, write
from faultline.replay.detection import TICK, Clock, Detection, Found, TopicDetection, detector_of, order
from faultline.replay.topic_records import (
    HeldRecords,
    TopicFile,
    TopicRecords,
    blocks,
    from_micros,
    in_time_order,
)
from streams.detect import Detector
from streams.detect.batch import read_safely
from streams.detect.deduplication import RollUp
from streams.model.clock import to_millis
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.effort import tries

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPIC = "raw.job-logs"

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus."
DULL = "systemd[1]: Started Session 4 of user root."


def line(text: str, node: str = "n1") -> bytes:
    return orjson.dumps({"host": node, "msg": text})


def piece(text: str, tag: str, pod: str = "train-0") -> bytes:
    """A line of a container, as containerd tags it and Fluent Bit ships it."""
    about = {"pod_name": pod, "namespace_name": "ml", "container_name": "c", "host": "n1"}
    return orjson.dumps({"log": text, "stream": "stdout", "logtag": tag, "kubernetes": about})


ERROR = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"
VALUES = (
    line(XID),
    line(XID, "n2"),
    line(DULL),
    line(DULL, "n3"),
    piece("[rank3]: RuntimeError: CUDA error: an illegal ", "P"),
    piece("memory access was encountered", "F"),
    piece(ERROR, "F", "train-1"),
    piece("loss 2.1", "F", "train-1"),
    b"",
    b'{"host": "n1", "msg": "cut',
)


def as_one_writes_it_first(records: Sequence[RawRecord]) -> list[tuple[datetime, tuple[Signal, ...]]]:
    """Every record is read, whether or not anything is in it; time ticks before each."""
    detector = Detector("c1")
    detector.set_partitions({TOPIC: max((r.partition for r in records), default=0) + 1})
    rollups: defaultdict[int, RollUp] = defaultdict(RollUp)
    found: list[tuple[datetime, tuple[Signal, ...]]] = []
    now = in_time_order(records)[0].timestamp

    def tick_to(to: datetime) -> None:
        nonlocal now
        while now + TICK <= to:
            now += TICK
            for _, rollup in sorted(rollups.items()):
                if rollup.waiting:
                    found.append((now, tuple(rollup.due(to_millis(now), now.timestamp()))))

    for record in in_time_order(records):
        tick_to(record.timestamp)
        rollup = rollups[record.partition]
        at = record.timestamp
        found.append((at, tuple(detector.flush_unfinished(TOPIC, record.partition, at, rollup))))
        found.append((at, read_safely(detector, record, rollup).signals))
    for partition in sorted(rollups):
        found.append((now, tuple(detector.flush_unfinished(TOPIC, partition, None, rollups[partition]))))
    tick_to(max(r.timestamp for r in records) + timedelta(minutes=3))
    return [(at, signals) for at, signals in found if signals]


def clock_of(records: Iterable[RawRecord]) -> Clock:
    survey = HeldRecords(records).survey
    assert survey.first is not None
    assert survey.last is not None
    last = from_micros(survey.last)
    return Clock(from_micros(survey.first), last, last + timedelta(minutes=3))


def detected(topic: TopicRecords, clock: Clock) -> list[Found]:
    return list(TopicDetection(TOPIC, topic, detector_of("c1", {TOPIC: topic}), clock).found())


def recorded(steps: Iterable[tuple[int, int, int]]) -> list[RawRecord]:
    """Records by partition, milliseconds since the one before (or back), and value."""
    offsets: defaultdict[int, int] = defaultdict(int)
    records, at = [], NOON
    for partition, millis, value in steps:
        at += timedelta(milliseconds=millis)
        records.append(RawRecord(TOPIC, partition, offsets[partition], at, None, VALUES[value]))
        offsets[partition] += 1
    return records


steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from((0, 0, 1, 400, 1000, 3000, 11_000, 300_000, -700, -20_000)),
        st.integers(0, len(VALUES) - 1),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=tries(60))
@given(steps, st.sampled_from((1, 3, 5000)))
@example([(0, 0, 0), (0, 400, 0), (0, 300_000, 0)], 5000)  # a count that is due before the next report
@example([(0, 0, 4), (0, 11_000, 2), (0, 0, 5)], 5000)  # a line whose rest comes too late
@example([(0, 0, 4), (1, 400, 2), (0, 400, 5), (1, -700, 4)], 5000)
def test_what_the_prefilter_leaves_out_changes_nothing(steps: list[tuple[int, int, int]], batch: int) -> None:
    records = recorded(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_records, "_BATCH", batch)
        found = detected(HeldRecords(records), clock_of(records))
    assert [(one.at, one.signals) for one in found] == as_one_writes_it_first(records)
    assert found == sorted(found, key=order)


@settings(max_examples=tries(30))
@given(
    steps, st.randoms(use_true_random=False), st.sampled_from(("as recorded", "partitions apart", "mixed"))
)
def test_a_file_gives_the_same_however_it_is_ordered(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int, int]],
    shuffle: random.Random,
    ordered: str,
) -> None:
    records = recorded(steps)
    expected = detected(HeldRecords(records), clock_of(records))
    if ordered == "partitions apart":
        records.sort(key=lambda record: -record.partition)
    elif ordered == "mixed":
        shuffle.shuffle(records)
    folder = tmp_path_factory.mktemp("capture")
    write(folder, Capture(Meta("c1", NOON, NOON), {TOPIC: records}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_records, "_BLOCK", 300)
        topic = TopicFile(TOPIC, folder / f"{TOPIC}.jsonl")
        assert detected(topic, clock_of(records)) == expected
        for dealt in ({0}, {1, 2}):
            found = Detection("c1", clock_of(records), {TOPIC: topic}, {TOPIC: dealt}).found()
            assert list(found) == [one for one in expected if one.partition in dealt]


def test_a_file_in_order_is_read_a_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = recorded([(number % 3, 100, number % 4) for number in range(500)])
    write(tmp_path, Capture(Meta("c1", NOON, NOON), {TOPIC: records}))
    monkeypatch.setattr(topic_records, "_BLOCK", 1000)
    read_so_far: list[int] = []

    def counted(path: Path) -> Iterator[tuple[int, list[bytes]]]:
        for number, lines in blocks(path):
            read_so_far.append(len(lines))
            yield number, lines

    topic = read(tmp_path).records[TOPIC]
    assert isinstance(topic, TopicFile)
    assert len(topic) == 500
    monkeypatch.setattr(topic_records, "blocks", counted)
    found = TopicDetection(TOPIC, topic, detector_of("c1", {TOPIC: topic}), clock_of(records)).found()
    assert next(found).offset == 0
    assert sum(read_so_far) < 30
    list(found)
    assert sum(read_so_far) == 500
    assert max(read_so_far) < 20


def test_a_line_may_be_written_in_any_way(tmp_path: Path) -> None:
    rows = [
        {"value": VALUES[0].decode(), "timestamp": 1772366400000, "offset": 7, "partition": 0},
        {"partition": 1, "offset": 3, "timestamp": 1772366400500, "value": None, "key": {"base64": "/w=="}},
        {
            "partition": 1,
            "offset": 4,
            "timestamp": 1772366401000,
            "value": VALUES[1].decode(),
            "headers": [["h", "x"]],
        },
    ]
    lines = [orjson.dumps(row) for row in rows]
    path = tmp_path / f"{TOPIC}.jsonl"
    path.write_bytes(b"\r\n".join([b"", lines[0], b"  ", *lines[1:], b""]))
    topic = TopicFile(TOPIC, path)
    assert [(record.partition, record.offset) for record in topic] == [(0, 7), (1, 3), (1, 4)]
    assert dict(topic.survey.weights).keys() == {0, 1}
    (batch,) = topic.batches(frozenset({1}))
    assert [batch.record(index).headers for index in range(2)] == [(), (("h", b"x"),)]
    found = detected(topic, clock_of(topic))
    assert [(one.partition, one.offset) for one in found] == [(0, 7), (1, 4)]
