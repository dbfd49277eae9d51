"""Opens a record by its format, which its bytes decide and never its topic.

JSON objects, however batched, go to the first of `READERS` that knows the format; protobuf messages are recognised by their
fields; everything else is text. What a reader finds wrapped (a text that is JSON again, the data of an event) is opened in the
same way, to a bounded depth. Compressed records are unpacked before.
"""

from __future__ import annotations

from collections.abc import Callable

from streams.ingest import encoding, json_documents, line_reassembly, lldp, protobuf
from streams.ingest.events import (
    agent_verdicts,
    alert_recorder,
    alertmanager,
    cloud_notices,
    cloudevents,
    event_exporter,
    event_layouts,
    kube_objects,
    notices,
    redfish,
    slurm_jobs,
)
from streams.ingest.fields import NAMES
from streams.ingest.logs import (
    cloud_logs,
    cri,
    elastic,
    flat_record,
    flight_recorder,
    fluent_pairs,
    journald,
    loki,
    text,
)
from streams.ingest.metrics import (
    collectd,
    exposition,
    gnmi,
    influx,
    metricbeat,
    prometheus_adapter,
    prometheus_api,
    remote_write_json,
    telegraf,
    vector_metric,
)
from streams.ingest.otlp import json_encoding
from streams.ingest.records import JsonObject, Opened, RecordContext, Row, Unfinished
from streams.model.record import LogLine

READERS: tuple[Callable[[JsonObject, RecordContext, Opened], bool], ...] = (
    flight_recorder.read,
    event_exporter.read,
    kube_objects.read,
    json_encoding.read,
    event_layouts.read,
    alertmanager.read,
    alert_recorder.read,
    cloud_notices.read,
    cloudevents.read,
    agent_verdicts.read,
    slurm_jobs.read,
    loki.read,
    elastic.read,
    cloud_logs.read,
    redfish.read,
    lldp.read,
    prometheus_adapter.read,
    prometheus_api.read,
    remote_write_json.read,
    telegraf.read,
    metricbeat.read,
    vector_metric.read,
    gnmi.read,
    collectd.read,
    notices.read,
    flat_record.read,
)
"""The most specific format first: nearly everything has a `message`."""

METRIC_TEXTS = (influx.read, exposition.read)
"""Formats of text in which every line is a sample."""

ENVELOPE_HINTS = (
    *encoding.HINTS,
    *flat_record.HINTS,
    *flight_recorder.HINTS,
    *cloudevents.HINTS,
    *cloud_logs.HINTS,
    *redfish.HINTS,
    *agent_verdicts.HINTS,
    *notices.HINTS,
    *kube_objects.HINTS,
    *slurm_jobs.HINTS,
    *gnmi.HINTS,
    *lldp.HINTS,
    *line_reassembly.HINTS,
)
"""Bytes (RE2) of records whose text is encoded, so that no family's hint would match."""

MAX_DEPTH = 8
"""Wrappers around wrappers."""

_MAX_REASONS = 20


def open_record(value: bytes, context: RecordContext) -> Opened:
    """Everything in a record's value. Never raises for what the bytes hold: the result lists what is unreadable."""
    opened = Opened()
    if context.unfinished is not None:
        _open(value, context, opened)
    else:
        alone: Unfinished = {}
        context = context._replace(unfinished=alone)
        _open(value, context, opened)
        for row in line_reassembly.due(alone, None):
            line_reassembly.flush(row, context, opened)
    _drain(opened)
    if len(opened.unreadable) > _MAX_REASONS:
        more = len(opened.unreadable) - _MAX_REASONS
        opened.unreadable[_MAX_REASONS:] = [f"and {more} more"]
    return opened


def open_unfinished(row: Row, context: RecordContext) -> Opened:
    """An unfinished line, as `line_reassembly.due` returned it."""
    opened = Opened()
    line_reassembly.flush(row, context, opened)
    _drain(opened)
    return opened


def _open(value: object, context: RecordContext, into: Opened) -> None:
    if isinstance(value, LogLine):
        into.observations.append(value)
    elif context.depth > MAX_DEPTH:
        into.unreadable.append(f"a record wrapped more than {MAX_DEPTH} times")
    elif isinstance(value, bytes):
        _bytes(value, context, into)
    elif isinstance(value, str):
        _text(value, context, into)
    else:
        _document(value, context, into)


def _bytes(value: bytes, context: RecordContext, into: Opened) -> None:
    if value.startswith(protobuf.BEGINNINGS) and protobuf.read(value, context, into):
        _drain(into)
        return
    if value.startswith(journald.BEGINNINGS):
        journald.read(value, context, into)
        _drain(into)
        return
    value = encoding.plain(value)
    if json_documents.looks_like_json(value):
        for document in json_documents.documents(value):
            if isinstance(document, json_documents.Broken):
                reasons = [*into.unreadable, document.reason]
                if document.rest is not None:
                    _open(document.rest, context, into)
                into.unreadable[:] = reasons
            else:
                _open(document, context, into)
    else:
        whole = value.decode("utf-8", "replace").lstrip("\ufeff")
        if not any(reader(whole, context, into) for reader in METRIC_TEXTS):
            _text(whole, context, into)


def _text(value: str, context: RecordContext, into: Opened) -> None:
    if value[:1] in "{[" and json_documents.looks_like_json(value[:64].encode("utf-8", "replace")):
        document = json_documents.parsed(value) if len(value) <= context.max_line else None
        if document is None and context.cut:
            document = json_documents.salvaged(value)
        if document is not None:
            _document(document, context, into)
            return
    if kube_objects.is_yaml(value):
        into.nested += ((document, context) for document in kube_objects.documents(value))
        if into.nested:
            _drain(into)
            return
    if cri.concerns(value, context):
        cri.read(value, context, into)
    else:
        text.read(value, context, into)
    _drain(into)


def _document(document: object, context: RecordContext, into: Opened) -> None:
    if isinstance(document, dict) and isinstance(items := document.get("items"), list) and "kind" in document:
        document = items  # a List of the Kubernetes API
    for record in fluent_pairs.records(document) if isinstance(document, list) else [document]:
        if not isinstance(record, dict):
            into.unreadable.append(f"JSON {type(record).__name__} where a record should be")
        elif _of_a_line(record, context, into) or any(reader(record, context, into) for reader in READERS):
            _drain(into)
        elif context.depth:
            text.read(flat_record.in_one_line(record), context, into)
        else:
            keys = ", ".join(sorted(map(str, record))[:12])[:200]
            into.unreadable.append(f"JSON of an unknown format, with the keys: {keys}")


def _of_a_line(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Read the commonest shape without trying a dozen others first; False when the record may be of another."""
    return NAMES.line_fields.issuperset(record) and flat_record.read(record, context, into)


def _drain(into: Opened) -> None:
    while into.nested:
        nested, into.nested = into.nested, []
        for value, context in nested:
            _open(value, context, into)
