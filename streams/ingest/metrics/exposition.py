"""Prometheus' text format and OpenMetrics: the scrape of an exporter, shipped as it is.

`# TYPE DCGM_FI_DEV_GPU_TEMP gauge`, then `DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="n1"} 61 1748779200000`, the time being optional,
in milliseconds or, in OpenMetrics, seconds with a fraction; exemplars follow after ` # ` (prometheus docs, exposition formats).
"""

from __future__ import annotations

import re
from functools import lru_cache

from streams.ingest import timestamps
from streams.ingest.metrics.labels import CACHED, bounded, node_of
from streams.ingest.records import Opened, RecordContext
from streams.model.record import Sample

_DESCRIPTION = re.compile(r"# (?:HELP|TYPE|UNIT) [a-zA-Z_:][\w:]{0,255}(?: |$)|# EOF\s{0,4}$")
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]{0,255})(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.){0,16384}+\"){0,16384}+)\})?"
    r"[ \t]{1,8}(?P<value>[-+]?(?:(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?|Inf|NaN))"
    r"(?:[ \t]{1,8}(?P<at>-?\d{1,20}(?:\.\d{1,9})?))?(?:[ \t]{1,8}# \{.{0,1024}|[ \t]{0,8})\r?$"
)
_LABEL = re.compile(
    r"[\s,]{0,8}(?P<name>[a-zA-Z_][\w]{0,255})\s{0,4}=\s{0,4}\"(?P<value>(?:[^\"\\]|\\.){0,16384}+)\""
)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPED = re.compile(r"\\[\\\"n]")
_LOOKED_AT = 20


def read(text: str, context: RecordContext, into: Opened) -> bool:
    """Add the samples of a scrape to `into`; False for any other text."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or not _is_scrape(lines):
        return False
    for index in context.interest.parts([line.encode("utf-8", "replace") for line in lines]):
        if lines[index].startswith("#"):
            continue
        if into.full():
            break
        match = _SAMPLE.match(lines[index])
        if match is None:
            into.unreadable.append(f"not a line of a scrape: {lines[index][:80]!r}")
        elif context.interest.metric(match["name"]):
            labels, node = _labels(match["labels"] or "")
            at = timestamps.epoch(match["at"]) if match["at"] else None
            into.observations.append(
                Sample(match["name"], float(match["value"]), at, node or context.node, labels)
            )
    return True


@lru_cache(CACHED)
def _labels(text: str) -> tuple[dict[str, str], str | None]:
    labels = bounded((label["name"], _unescaped(label["value"])) for label in _LABEL.finditer(text))
    return labels, node_of(labels)


def _is_scrape(lines: list[str]) -> bool:
    """True for what only exporters write: descriptions or samples, the first with a description or labels."""
    if _DESCRIPTION.match(lines[0]) is None and "{" not in lines[0]:
        return False
    looked_at = lines[:_LOOKED_AT] if len(lines) > _LOOKED_AT else lines[:-1] or lines
    return all(line.startswith("#") or _SAMPLE.match(line) is not None for line in looked_at)


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], value) if "\\" in value else value
