"""A capture: the records of the topics between two times, as a directory that can be made with a text editor.

    meta.json           {"cluster", "from", "to", "format": 1}; times RFC 3339
    TOPIC.jsonl[.zst]   one record a line: {"partition","offset","timestamp","key","value","headers"}
    topology.yaml       which NIC is attached to which switch port, like `inventory.topology_file`; optional
    kube-objects.jsonl  instead of inventory.jsonl: {"time","type","object"} as a watch would show them

`timestamp` is in milliseconds. `value` and `key` are strings, null, or {"base64": …} for bytes that are not UTF-8.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import orjson
import zstandard

from streams.inventory.recorded_watch import read_change
from streams.model.clock import from_millis, parse_rfc3339, rfc3339, to_millis
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from streams.model.watch import ObjectChange

FORMAT = 1
META = "meta.json"
KUBE_OBJECTS = "kube-objects.jsonl"
TOPOLOGY = "topology.yaml"


@dataclass(frozen=True, slots=True)
class Meta:
    """What a capture is of. `begin` and `end` bound its records in Kafka time."""

    cluster: str
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture in memory; records of a topic are in their file's order. `topology` is the topology file, empty without one."""

    meta: Meta
    records: Mapping[str, tuple[RawRecord, ...]]
    kube_changes: tuple[ObjectChange, ...] = field(default=())
    topology: str = ""


def read(directory: Path) -> Capture:
    """Read a capture whole.

    Raises:
        BadInput: naming the file and line that is invalid.
    """
    meta = _read_meta(directory / META)
    records: dict[str, tuple[RawRecord, ...]] = {}
    changes: tuple[ObjectChange, ...] = ()
    for path in sorted(directory.iterdir()):
        name = path.name.removesuffix(".zst")
        if not name.endswith(".jsonl") or name == "truth.jsonl":
            continue
        if name == KUBE_OBJECTS:
            changes = tuple(_kube_change(line, where) for line, where in _lines(path))
        else:
            topic = name.removesuffix(".jsonl")
            if topic in records:
                raise BadInput(f"{path}: topic {topic} is there twice, plain and compressed")
            records[topic] = tuple(_record(topic, line, where) for line, where in _lines(path))
    cabling = directory / TOPOLOGY
    return Capture(meta, records, changes, cabling.read_text() if cabling.exists() else "")


def write(directory: Path, capture: Capture) -> None:
    """Write a capture; the directory is created if needed. Existing topic files are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    meta = {
        "cluster": capture.meta.cluster,
        "from": rfc3339(capture.meta.begin),
        "to": rfc3339(capture.meta.end),
        "format": FORMAT,
    }
    (directory / META).write_bytes(orjson.dumps(meta, option=orjson.OPT_INDENT_2) + b"\n")
    for topic, records in capture.records.items():
        with (directory / f"{topic}.jsonl").open("wb") as out:
            out.writelines(record_line(record) for record in records)
    if capture.kube_changes:
        with (directory / KUBE_OBJECTS).open("wb") as out:
            for change in capture.kube_changes:
                line = {"time": rfc3339(change.at), "type": change.type, "object": change.object}
                out.write(orjson.dumps(line) + b"\n")
    if capture.topology:
        (directory / TOPOLOGY).write_text(capture.topology)


def record_line(record: RawRecord) -> bytes:
    """One record as one line of a topic's file, line end included."""
    headers = [[name, _text(value)] for name, value in record.headers]
    line = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": to_millis(record.timestamp),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": headers,
    }
    return orjson.dumps(line) + b"\n"


def in_time_order(records: Iterable[RawRecord]) -> list[RawRecord]:
    """Records in one order over all topics and partitions, however a file interleaves them.

    They are sorted by Kafka time, then by topic, partition and offset. Within a partition offsets keep their order even
    where a shipper's clock ran backwards.
    """
    latest: dict[tuple[str, int], datetime] = {}
    ordered: list[tuple[datetime, str, int, int, RawRecord]] = []
    for record in sorted(records, key=lambda r: (r.topic, r.partition, r.offset)):
        partition = (record.topic, record.partition)
        latest[partition] = max(record.timestamp, latest.get(partition, record.timestamp))
        ordered.append((latest[partition], record.topic, record.partition, record.offset, record))
    ordered.sort(key=lambda entry: entry[:4])
    return [entry[4] for entry in ordered]


def _text(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _raw(value: Any, where: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise BadInput(f"{where}: not base64: {error}") from error
        case _:
            raise BadInput(f'{where}: must be a string, null or {{"base64": …}}')


def _read_meta(path: Path) -> Meta:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BadInput(f"{path.parent} is no capture: it has no {META}") from error
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{path}: {error}") from error
    match content:
        case {"cluster": str(cluster), "from": str(begin), "to": str(end), "format": 1}:
            return Meta(cluster, parse_rfc3339(begin), parse_rfc3339(end))
        case {"format": int(number)} if number != FORMAT:
            raise BadInput(f"{path}: format {number} is not known, only {FORMAT}")
        case _:
            raise BadInput(f'{path}: needs "cluster", "from", "to" (RFC 3339) and "format": {FORMAT}')


def _lines(path: Path) -> Iterator[tuple[Any, str]]:
    with _opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield orjson.loads(line), where
            except orjson.JSONDecodeError as error:
                raise BadInput(f"{where}: {error}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix != ".zst":
        return path.open(encoding="utf-8")
    return io.TextIOWrapper(
        zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True), encoding="utf-8"
    )


def _record(topic: str, line: Any, where: str) -> RawRecord:
    match line:
        case {"partition": int(partition), "offset": int(offset), "timestamp": int(millis), "value": value}:
            headers = tuple(
                (str(name), _raw(content, f"{where}: header {name}") or b"")
                for name, content in line.get("headers") or ()
            )
            key = _raw(line.get("key"), f"{where}: key")
            return RawRecord(
                topic, partition, offset, from_millis(millis), key, _raw(value, f"{where}: value"), headers
            )
        case _:
            raise BadInput(f'{where}: needs "partition", "offset", "timestamp" (ms) and "value"')


def _kube_change(line: Any, where: str) -> ObjectChange:
    try:
        return read_change(line)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
