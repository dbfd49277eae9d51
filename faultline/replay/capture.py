"""A capture: the records of the topics between two times, as a directory that can be made with a text editor.

    meta.json           {"cluster", "from", "to", "format": 1}; times RFC 3339
    TOPIC.jsonl[.zst]   one record a line: {"partition","offset","timestamp","key","value","headers"}
    topology.yaml       which NIC is attached to which switch port, like `inventory.topology_file`; optional
    kube-objects.jsonl  instead of inventory.jsonl: {"time","type","object"} as a watch would show them

How a record is written: `record_format`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from faultline.replay.record_format import json_of, record_line
from faultline.replay.topic_records import TopicFile, blocks
from streams.inventory.recorded_watch import read_change
from streams.model.clock import parse_rfc3339, rfc3339
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
    """A capture; records of a topic are in their file's order. `topology` is the topology file, empty without one.

    `records` are in memory, or read whenever they are iterated (`TopicFile`).
    """

    meta: Meta
    records: Mapping[str, Collection[RawRecord]]
    kube_changes: tuple[ObjectChange, ...] = field(default=())
    topology: str = ""


def read(directory: Path) -> Capture:
    """Open a capture. The records of its topics are read when they are asked for.

    Raises:
        BadInput: naming the file and line that is invalid; also while records are read.
    """
    meta = _read_meta(directory / META)
    records: dict[str, Collection[RawRecord]] = {}
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
            records[topic] = TopicFile(topic, path)
    return Capture(meta, records, changes, _topology(directory / TOPOLOGY))


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


def _read_meta(path: Path) -> Meta:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BadInput(f"{path.parent} is no capture: it has no {META}") from error
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{path}: {error}") from error
    match content:
        case {"cluster": str(cluster), "from": str(begin), "to": str(end), "format": 1}:
            try:
                return Meta(cluster, parse_rfc3339(begin), parse_rfc3339(end))
            except BadInput as error:
                raise BadInput(f"{path}: {error}") from error
        case {"format": int(number)} if number != FORMAT:
            raise BadInput(f"{path}: format {number} is not known, only {FORMAT}")
        case _:
            raise BadInput(f'{path}: needs "cluster", "from", "to" (RFC 3339) and "format": {FORMAT}')


def _topology(path: Path) -> str:
    try:
        return path.read_text() if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _lines(path: Path) -> Iterator[tuple[Any, str]]:
    for first, lines in blocks(path):
        for number, line in enumerate(lines, first):
            if line.strip():
                where = f"{path}:{number}"
                yield json_of(line, where), where


def _kube_change(line: Any, where: str) -> ObjectChange:
    try:
        return read_change(line, where)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error
