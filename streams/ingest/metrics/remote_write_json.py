"""Prometheus remote-write as JSON: the protobuf messages of versions 1 and 2 as a relay that decodes them prints them.

`{"timeseries": [{"labels": [{"name": "__name__", "value": …}], "samples": [{"value": 79, "timestamp": "1748779200000"}]}]}`;
version 2 has `symbols`, and in `labelsRefs` pairs of indexes into them. Protobuf's JSON writes 64-bit numbers as text, and values
that are no numbers as `"NaN"` and `"Infinity"`; what is zero may be left out, and names may be as in the .proto file (protobuf
docs, ProtoJSON).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from streams.ingest import timestamps
from streams.ingest.metrics.labels import CACHED, bounded, node_of
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_NAME = "__name__"
_Place = tuple[dict[str, str], str | None]
"""Labels, and the node they name."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples of a request to `into`; False for any other format."""
    found = record.get("timeseries")
    if not isinstance(found, list) or not found or not isinstance(found[0], dict):
        return False
    if not ("samples" in found[0] or "labels" in found[0] or _refs(found[0])):
        return False
    symbols = record.get("symbols")
    for series in found:
        if into.full():
            break
        pairs = _pairs(series, symbols if isinstance(symbols, list) else [])
        if pairs is None:
            into.unreadable.append("remote-write JSON: a series whose labels cannot be read")
            continue
        name = next((text for label, text in pairs if label == _NAME), None)
        if name and context.interest.metric(name):
            _add(name, pairs, series.get("samples"), context, into)
    return True


def _add(
    name: str, pairs: tuple[tuple[str, str], ...], samples: Any, context: RecordContext, into: Opened
) -> None:
    labels, node = _place(pairs)
    for sample in samples if isinstance(samples, list) else ():
        try:
            value = float(sample.get("value", 0.0))
            at = timestamps.at_nanos(int(sample.get("timestamp", 0)))
        except (AttributeError, TypeError, ValueError, OverflowError):
            into.unreadable.append(f"remote-write JSON: a sample of {name[:80]!r} that is no number")
            continue
        into.observations.append(Sample(name, value, at, node or context.node, labels))


def _pairs(series: Any, symbols: list[Any]) -> tuple[tuple[str, str], ...] | None:
    """Names and values of a series' labels; None where they cannot be read."""
    if not isinstance(series, dict):
        return None
    labels, refs = series.get("labels"), _refs(series)
    if isinstance(labels, list):
        pairs = tuple(_of_labels(labels))
        return pairs if len(pairs) == len(labels) else None
    if refs is None or len(refs) % 2:
        return None
    known = (symbols[ref] for ref in refs if isinstance(ref, int) and 0 <= ref < len(symbols))
    texts = [text for text in known if isinstance(text, str)]
    if len(texts) < len(refs):
        return None
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def _of_labels(labels: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for label in labels:
        if isinstance(label, dict):
            name, text = label.get("name"), label.get("value", "")
            if isinstance(name, str) and isinstance(text, str):
                yield name, text


def _refs(series: dict[str, Any]) -> list[Any] | None:
    refs = series.get("labelsRefs", series.get("labels_refs"))
    return refs if isinstance(refs, list) else None


@lru_cache(CACHED)
def _place(pairs: tuple[tuple[str, str], ...]) -> _Place:
    labels = bounded((name, text) for name, text in pairs if name != _NAME)
    return labels, node_of(labels)
