"""A Kafka record as rows of a Parquet file, and back.

A record is one row; a batch of signals is a row for each signal, so that a question in SQL is about signals. `document` holds
the JSON of a row, and what is asked about most stands in columns beside it. The rows of a record give back its very bytes: where
joining them would not, the bytes stand in `record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from streams.kafka.topics import (
    COMMANDS,
    CONTROLS,
    INCIDENTS,
    INVENTORY,
    RUNS,
    SIGNALS,
    TIMELINE,
    Topic,
)
from streams.model.clock import from_millis, parse_rfc3339, to_millis
from streams.model.codec import decode
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.record import RawRecord

TOPICS: tuple[Topic, ...] = (SIGNALS, INVENTORY, INCIDENTS, RUNS, TIMELINE, COMMANDS, CONTROLS)
"""What is archived. Raw records are not: they are a hundred times as much, and signals quote the lines that matter."""

_TEXT = pa.string()
_MILLIS = pa.timestamp("ms", tz="UTC")
_HEADERS = pa.list_(pa.struct([("name", _TEXT), ("value", pa.binary())]))

ASKED_FOR: tuple[str, ...] = (
    "cluster",
    "node",
    "gpu",
    "pool",
    "family",
    "kind",
    "severity",
    "state",
    "root",
    "certainty",
    "job",
    "incident",
    "runbook",
    "action",
    "verdict",
    "rule",
    "actor",
)
"""Columns of text taken out of the document; null where it has none."""

SCHEMA = pa.schema(
    [
        ("topic", _TEXT),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("position", pa.int32()),
        ("timestamp", _MILLIS),
        ("key", pa.binary()),
        ("headers", _HEADERS),
        ("document", pa.binary()),
        ("envelope", pa.binary()),
        ("record", pa.binary()),
        *((name, _TEXT) for name in ASKED_FOR),
        ("xid", pa.int64()),
        ("count", pa.int64()),
        ("happened_at", _MILLIS),
    ]
)
"""`position` is the row's place in its record. `envelope` is the batch without its signals. `happened_at` is the
time in the document (SQL reserves `at`); `timestamp` is Kafka's."""

STORED = ("offset", "position", "timestamp", "key", "headers", "document", "envelope", "record")
"""The columns that a record is made from again."""
_DOCUMENT = STORED.index("document")

_INTEGERS = 2**63
_SIGNALS_EMPTY = b'"signals":[]'

Row = dict[str, Any]


class Entry(NamedTuple):
    """One record as rows, with the cluster that it is about; None where nothing tells (a tombstone keyed by an id)."""

    cluster: str | None
    rows: list[Row]


def entry_of(record: RawRecord) -> Entry:
    """The rows of a record. Whatever cannot be read is one row without typed columns."""
    base: Row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "position": 0,
        "timestamp": to_millis(record.timestamp),
        "key": record.key,
        "headers": [{"name": name, "value": value} for name, value in record.headers] or None,
        "document": record.value,
    }
    document = _json(record.value)
    split = _signals(record.value, document) if record.topic == SIGNALS.name else None
    if split is None:
        row = base | _typed(record.topic, document)
        row["cluster"] = row.get("cluster") or _cluster_of_key(record)
        return Entry(row["cluster"], [row])
    rows = []
    for position, (text, signal) in enumerate(split.signals):
        row = base | {"document": text, "envelope": split.envelope, "position": position}
        rows.append(row | _typed(record.topic, signal))
    rows[0]["record"] = split.record
    cluster = str(document["cluster"])
    for row in rows:
        row["cluster"] = cluster
    return Entry(cluster, rows)


def value_of(documents: Sequence[bytes | None], envelope: bytes | None, record: bytes | None) -> bytes | None:
    """The value of a record from the documents of its rows and from the other two columns of its first row."""
    if record is not None:
        return record
    if envelope is None:
        return documents[0]
    return _joined(envelope, [document or b"" for document in documents])


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns."""
    columns = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


def records_of(topic: str, partition: int, batches: Iterator[pa.Table]) -> Iterator[RawRecord]:
    """The records in tables of `STORED` columns, whose rows are in the order of offsets and positions. Columns that older files
    lack are null."""
    pending: list[tuple[Any, ...]] = []
    for table in batches:
        for row in zip(*(_column(table, name) for name in STORED), strict=True):
            if pending and pending[0][0] != row[0]:
                yield _record(topic, partition, pending)
                pending = []
            pending.append(row)
    if pending:
        yield _record(topic, partition, pending)


def _record(topic: str, partition: int, rows: Sequence[tuple[Any, ...]]) -> RawRecord:
    offset, _, millis, key, headers, _, envelope, record = rows[0]
    value = value_of([row[_DOCUMENT] for row in rows], envelope, record)
    named = tuple((header["name"], header["value"]) for header in headers) if headers else ()
    return RawRecord(topic, partition, offset, from_millis(millis), key, value, named)


def _column(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * table.num_rows
    column = table.column(name)
    found: list[Any] = (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
    return found


class _Split(NamedTuple):
    signals: list[tuple[bytes, Mapping[str, Any]]]
    envelope: bytes
    record: bytes | None
    """The value itself where the rows do not give it back."""


def _signals(value: bytes | None, document: Any) -> _Split | None:
    """A batch of signals, apart; None where it is none, or empty."""
    match document:
        case {"cluster": str(), "signals": [*signals]} if signals and all(
            isinstance(s, dict) for s in signals
        ):
            texts = [orjson.dumps(signal) for signal in signals]
            envelope = orjson.dumps({**document, "signals": []})
            is_same = _joined(envelope, texts) == value
            return _Split(list(zip(texts, signals, strict=True)), envelope, None if is_same else value)
        case _:
            return None


def _joined(envelope: bytes, documents: Sequence[bytes]) -> bytes:
    return envelope.replace(_SIGNALS_EMPTY, b'"signals":[%b]' % b",".join(documents), 1)


def _json(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _cluster_of_key(record: RawRecord) -> str | None:
    """The cluster that a key begins with, in the topics where it does."""
    if record.key is None or record.topic not in (INVENTORY.name, SIGNALS.name, CONTROLS.name):
        return None
    return record.key.decode(errors="replace").partition("/")[0] or None


def _typed(topic: str, document: Any) -> Row:
    """What is asked about most. A document of another form than today's gives what it has."""
    if not isinstance(document, dict):
        return {}
    found = _COLUMNS[topic](document)
    row: Row = {name: value for name in ASKED_FOR if isinstance(value := found.get(name), str) and value}
    for name in ("xid", "count"):
        value = found.get(name)
        if type(value) is int and -_INTEGERS <= value < _INTEGERS:
            row[name] = value
    row["happened_at"] = _at(found.get("at"))
    return row


def _at(text: Any) -> int | None:
    try:
        return to_millis(parse_rfc3339(text)) if isinstance(text, str) else None
    except BadInput:
        return None


def _part(document: Any, *path: str) -> Any:
    """What lies at a path of keys; None where the document ends before."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _gpu(entity: Any) -> Any:
    return _part(entity, "gpu", "pci") or _part(entity, "gpu", "uuid")


def _job(job: Any) -> str | None:
    parts = [_part(job, name) for name in ("kind", "namespace", "name")]
    return "/".join(parts) if all(isinstance(part, str) for part in parts) else None


def _root(entity: Any) -> str | None:
    """The key of a place, as incidents' titles and ids use it."""
    if not isinstance(entity, dict):
        return None
    try:
        return decode(Entity, orjson.dumps(entity)).key
    except BadInput:
        return None


def _signal(document: Row) -> Row:
    entity = _part(document, "entity")
    return {
        "node": _part(entity, "node"),
        "gpu": _gpu(entity),
        "kind": document.get("kind"),
        "severity": document.get("severity"),
        "state": document.get("state"),
        "job": _job(_part(entity, "job")),
        "xid": _part(document, "attributes", "xid"),
        "count": document.get("count"),
        "at": document.get("occurred_at"),
    }


def _fact(document: Row) -> Row:
    fact = _part(document, "fact")
    kind = _part(fact, "kind")
    state = _part(fact, "phase")
    if kind == "node":
        state = "ready" if _part(fact, "ready") else "not ready"
    return {
        "cluster": _part(fact, "cluster"),
        "node": _part(fact, "name") if kind == "node" else _part(fact, "node"),
        "pool": _part(fact, "pool"),
        "kind": kind,
        "state": state,
        "job": _job(_part(fact, "job")),
        "at": _part(fact, "observed_at"),
    }


def _incident(document: Row) -> Row:
    root, jobs = _part(document, "root"), _part(document, "jobs")
    return {
        **{name: document.get(name) for name in ("cluster", "family", "severity", "state", "certainty")},
        "incident": document.get("id"),
        "root": _root(root),
        "node": _part(root, "node"),
        "gpu": _gpu(root),
        "job": _job(_part(root, "job")) or (_job(jobs[0]) if isinstance(jobs, list) and jobs else None),
        "at": document.get("fault_at"),
    }


def _run(document: Row) -> Row:
    steps = _part(document, "plan", "steps")
    targets = [_part(step, "target") for step in steps] if isinstance(steps, list) else []
    nodes = [_part(target, "name") for target in targets if _part(target, "kind") == "Node"]
    return {
        **{name: document.get(name) for name in ("cluster", "incident", "state")},
        "node": nodes[0] if nodes else None,
        "runbook": _part(document, "plan", "runbook"),
        "at": document.get("created_at"),
    }


def _timeline(document: Row) -> Row:
    event, more = document.get("event"), _part(document, "attributes")
    verdict = event.removeprefix("step.") if isinstance(event, str) and event.startswith("step.") else None
    return {
        **{name: document.get(name) for name in ("cluster", "incident", "actor", "at")},
        "kind": event,
        "verdict": verdict,
        **{name: _part(more, name) for name in ("node", "action", "rule", "runbook")},
    }


def _command(document: Row) -> Row:
    scope = document.get("scope")
    is_node = isinstance(scope, str) and scope.startswith("node:")
    return {
        **{name: document.get(name) for name in ("cluster", "incident", "actor", "at")},
        "kind": document.get("verb"),
        "node": str(scope).removeprefix("node:") if is_node else None,
    }


def _control(document: Row) -> Row:
    changes = document.get("changes")
    last = changes[-1] if isinstance(changes, list) and changes else None
    return {
        "cluster": document.get("cluster"),
        "state": "killed" if document.get("kill_switch") else "tripped" if document.get("breaker") else None,
        **{name: _part(last, name) for name in ("actor", "at")},
        "kind": _part(last, "event"),
    }


_COLUMNS: Mapping[str, Callable[[Row], Row]] = {
    SIGNALS.name: _signal,
    INVENTORY.name: _fact,
    INCIDENTS.name: _incident,
    RUNS.name: _run,
    TIMELINE.name: _timeline,
    COMMANDS.name: _command,
    CONTROLS.name: _control,
}
