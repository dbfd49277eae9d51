"""A capture: the records of the topics between two times, as a directory that can be made with a text editor.

    meta.json           {"cluster", "from", "to", "format": 1}; times RFC 3339; "lead" where records begin earlier than "from"
    TOPIC.jsonl[.zst]   one record a line: {"partition","offset","timestamp","key","value","headers"}
    state/TOPIC.jsonl[.zst]  a compacted topic as it stood when the records begin; optional
    topology.yaml       which NIC is attached to which switch port, like `inventory.topology_file`; optional
    settings.yaml       the settings it was decided with, without secrets; optional
    runbooks/           the runbooks it was decided with, the library included; optional
    kube-objects.jsonl[.zst]  instead of inventory.jsonl: {"time","type","object"} as a watch would show them

`faultline capture` writes format 2: the same, with `manifest.json` instead of `meta.json` and a file for each partition,
`TOPIC/PARTITION.jsonl.zst`. How a record is written: `record_format`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from faultline.replay.frames import opened
from faultline.replay.integrity import STATE, differences
from faultline.replay.manifest import MANIFEST, Manifest, read_manifest
from faultline.replay.record_format import MAX_MILLIS, json_of, record_line
from faultline.replay.topic_folder import TopicFolder
from faultline.replay.topic_records import TopicFile, blocks, to_micros
from faultline.replay.unread_records import Bounds, UnreadRecords
from streams.inventory.recorded_watch import read_change
from streams.model.clock import from_millis, parse_rfc3339, rfc3339
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from streams.model.watch import ObjectChange

FORMAT = 1
META = "meta.json"
KUBE_OBJECTS = "kube-objects.jsonl"
TOPOLOGY = "topology.yaml"
SETTINGS = "settings.yaml"
RUNBOOKS = "runbooks"
_OTHER_FILES = {KUBE_OBJECTS, "truth.jsonl"}
_NAMED = 3
"""So many files are named that are not what the manifest says."""
_FIRST, _LAST = from_millis(0), from_millis(MAX_MILLIS)


@dataclass(frozen=True, slots=True)
class Meta:
    """What a capture is of: `begin` to `end`, in Kafka time. Its records begin `warm_up` earlier."""

    cluster: str
    begin: datetime
    end: datetime
    warm_up: timedelta = timedelta()

    @property
    def lead(self) -> datetime:
        """Where the records begin: those before `begin` are read to know what a running pipeline knows by then."""
        return self.begin - self.warm_up


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture; records of a topic are in their file's order. `topology` is the topology file, empty without one.

    `records` and `state` are in memory, or read whenever they are iterated (`StoredTopic`). `state` is what compacted topics
    held at `meta.lead`: the last record of each key until then. `settings` and `runbooks` are a file and a folder of the capture.
    `unread` grows with the records that whoever reads the capture could not make out.
    `incident` is the one it was cut to.
    """

    meta: Meta
    records: Mapping[str, Collection[RawRecord]]
    kube_changes: tuple[ObjectChange, ...] = field(default=())
    topology: str = ""
    state: Mapping[str, Collection[RawRecord]] = field(default_factory=dict)
    settings: Path | None = None
    runbooks: Path | None = None
    unread: UnreadRecords = field(default_factory=UnreadRecords, compare=False)
    incident: str = ""

    def is_about(self, *incidents: str) -> bool:
        """Whether it holds all that decides one of these incidents. One that was cut to an incident does not of others."""
        return not self.incident or self.incident in incidents


def read(directory: Path, *, changed_ok: bool = False) -> Capture:
    """Open a capture. The records of its topics are read when they are asked for.

    Args:
        directory: Where it lies.
        changed_ok: Whether one that was taken from Kafka may hold other files than its manifest says.

    Raises:
        BadInput: naming the file and line that is invalid; also while records are read.
    """
    manifest = read_manifest(directory / MANIFEST) if (directory / MANIFEST).exists() else None
    if manifest is not None and not manifest.complete:
        raise BadInput(f"{directory} is not complete: give `faultline capture` the same arguments again")
    if manifest is not None and not changed_ok:
        _check(directory, manifest)
    meta = _meta_of(manifest, directory) if manifest else _read_meta(directory / META)
    unread = UnreadRecords()
    bounds = Bounds.of(meta.lead, meta.end, unread)
    objects = [
        path for path in (directory / KUBE_OBJECTS, directory / f"{KUBE_OBJECTS}.zst") if path.exists()
    ]
    settings, runbooks = directory / SETTINGS, directory / RUNBOOKS
    return Capture(
        meta,
        _files(directory, bounds) | (_folders(directory, manifest) if manifest else {}),
        tuple(
            change
            for path in objects
            for number, (line, where) in enumerate(_lines(path))
            if bounds.has(KUBE_OBJECTS, 0, number, to_micros((change := _kube_change(line, where)).at))
        ),
        _topology(directory / TOPOLOGY),
        _state(directory / STATE, manifest),
        settings if settings.exists() else None,
        runbooks if runbooks.is_dir() else None,
        unread,
        manifest.lineage.incident if manifest else "",
    )


def _check(directory: Path, manifest: Manifest) -> None:
    if found := list(differences(directory, manifest)):
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise BadInput(
            f"{directory} is not what its {MANIFEST} says: {'; '.join(found[:_NAMED])}{more}. "
            "Take it again, or copy it anew; --changed-ok of `faultline replay` and `whatif` takes it as it is"
        )


def _state(folder: Path, manifest: Manifest | None) -> dict[str, Collection[RawRecord]]:
    if not folder.is_dir():
        return {}
    empty = {name for name, part in manifest.state.items() if not part.records} if manifest else set()
    return {name: topic for name, topic in _files(folder).items() if name not in empty}


def _files(folder: Path, bounds: Bounds | None = None) -> dict[str, Collection[RawRecord]]:
    """The topics that have one file in a folder."""
    found: dict[str, Collection[RawRecord]] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".zst")
        if not name.endswith(".jsonl") or name in _OTHER_FILES or name.startswith("."):
            continue
        topic = name.removesuffix(".jsonl")
        if topic in found:
            raise BadInput(f"{path}: topic {topic} is there twice, plain and compressed")
        found[topic] = TopicFile(topic, path, bounds)
    return found


def _folders(directory: Path, manifest: Manifest) -> dict[str, Collection[RawRecord]]:
    """The topics that have a file for each partition."""
    return {
        topic: TopicFolder(topic, directory / topic, part.partitions)
        for topic, part in sorted(manifest.topics.items())
        if (directory / topic).is_dir() or not any(one.records for one in part.partitions.values())
    }


def write(directory: Path, capture: Capture) -> None:
    """Write a capture; the directory is created if needed. Existing topic files are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    meta = {
        "cluster": capture.meta.cluster,
        "from": rfc3339(capture.meta.begin),
        "to": rfc3339(capture.meta.end),
        "format": FORMAT,
    }
    if capture.meta.warm_up:
        meta["lead"] = rfc3339(capture.meta.lead)
    (directory / META).write_bytes(orjson.dumps(meta, option=orjson.OPT_INDENT_2) + b"\n")
    _write_topics(directory, capture.records)
    write_rest(directory, capture)


def write_rest(directory: Path, capture: Capture) -> None:
    """Write all of a capture but its records and what it is of: state, Kubernetes objects, topology."""
    if capture.state:
        (directory / STATE).mkdir(exist_ok=True)
        _write_topics(directory / STATE, capture.state)
    if capture.kube_changes:
        with (directory / KUBE_OBJECTS).open("wb") as out:
            for change in capture.kube_changes:
                line = {"time": rfc3339(change.at), "type": change.type, "object": change.object}
                out.write(orjson.dumps(line) + b"\n")
    if capture.topology:
        (directory / TOPOLOGY).write_text(capture.topology, encoding="utf-8")


def _write_topics(folder: Path, topics: Mapping[str, Collection[RawRecord]]) -> None:
    for topic, records in topics.items():
        with (folder / f"{topic}.jsonl").open("wb") as out:
            out.writelines(record_line(record) for record in records)


def _meta_of(manifest: Manifest, directory: Path) -> Meta:
    return _meta(directory / MANIFEST, manifest.cluster, manifest.lead, manifest.begin, manifest.end)


def _meta(path: Path, cluster: str, lead: datetime, begin: datetime, end: datetime) -> Meta:
    if not _FIRST <= lead <= begin <= end <= _LAST:
        told = f"lead {rfc3339(lead)}, from {rfc3339(begin)}, to {rfc3339(end)}"
        raise BadInput(f"{path}: {told}: these do not follow each other, since 1970")
    return Meta(cluster, begin, end, begin - lead)


def _read_meta(path: Path) -> Meta:
    try:
        if not path.exists():
            raise BadInput(f"{path.parent} is no capture: it has no {META} and no {MANIFEST}")
        with opened(path) as file:
            content = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{path}: {error}") from error
    match content:
        case {"cluster": str(cluster), "from": str(begin), "to": str(end), "format": 1}:
            try:
                since, lead = parse_rfc3339(begin), parse_rfc3339(str(content.get("lead", begin)))
                until = parse_rfc3339(end)
            except BadInput as error:
                raise BadInput(f"{path}: {error}") from error
            return _meta(path, cluster, lead, since, until)
        case {"format": int(number)} if number != FORMAT:
            raise BadInput(f"{path}: format {number} is not known, only {FORMAT}; format 2 has a {MANIFEST}")
        case _:
            raise BadInput(f'{path}: needs "cluster", "from", "to" (RFC 3339) and "format": {FORMAT}')


def _topology(path: Path) -> str:
    try:
        if not path.exists():
            return ""
        with opened(path) as file:
            return file.read().decode()
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
