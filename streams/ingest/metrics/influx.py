"""InfluxDB line protocol, the default of Telegraf's Kafka output: one metric a line, many lines a record.

`ethtool,driver=mlx5_core,host=n1,interface=eth2 rx_prio3_pause=12i,tx_prio3_pause=0i 1748779200000000000`. Commas, blanks and
equal signs in names are escaped with a backslash; integers end in `i`, unsigned ones in `u`; texts are quoted, and may hold line
feeds; the time is in nanoseconds by default, its unit told by its size (influxdata, line protocol reference).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from streams.ingest import timestamps
from streams.ingest.metrics import telegraf
from streams.ingest.metrics.labels import CACHED
from streams.ingest.records import Opened, RecordContext

_LINE = re.compile(
    r"(?P<head>(?:[^\\ \n]|\\.){1,8192}+) "
    r"(?P<fields>(?:[^\\ \"\n]|\\.|\"(?:[^\"\\]|\\.){0,65536}+\"){3,65536}+)"
    r"(?: (?P<at>-?\d{1,19}))?\r?(?:\n|$)",
    re.DOTALL,
)
_NAME = re.compile(r"[A-Za-z_](?:[^,=\\ ]|\\.){0,255}")
_FIELD = re.compile(
    r"(?P<name>(?:[^\\,=\"]|\\.){1,512}+)=(?P<value>\"(?:[^\"\\]|\\.){0,65536}+\"|[^,\"]{1,64}+)(?:,|$)",
    re.DOTALL,
)
_NUMBER = re.compile(r"[-+]?(?:\d{1,32}(?:\.\d{0,32})?|\.\d{1,32})(?:[eE][-+]?\d{1,4})?[iu]?")
_BOOLEANS = frozenset({"t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE"})
_COMMA = re.compile(r"(?<!\\),")
_EQUALS = re.compile(r"(?<!\\)=")
_ESCAPED = re.compile(r"\\([,= \\\"])")

Field = tuple[str, str | float]


def read(text: str, context: RecordContext, into: Opened) -> bool:
    """Add the samples and lines to `into`; False when the text is no line protocol."""
    text = text.lstrip("\r\n ")
    first = _LINE.match(text)
    if first is None or not _is_metric(first):
        return False
    lines = [first, *_lines(text, first.end(), into)]
    for index in context.interest.parts([line.group().encode("utf-8", "replace") for line in lines]):
        if into.full():
            break
        line = lines[index]
        name, tags = _named(line["head"])
        at = timestamps.epoch(line["at"]) if line["at"] else None
        telegraf.read_metric(name, tags, dict(_fields(line["fields"])), at, context, into)
    return True


def _lines(text: str, start: int, into: Opened) -> Iterator[re.Match[str]]:
    while start < len(text):
        line = _LINE.match(text, start)
        if line is not None:
            start = line.end()
            yield line
            continue
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if (unread := text[start:end].strip()) and not unread.startswith("#"):
            into.unreadable.append(f"not line protocol: {unread[:80]!r}")
        start = end + 1


def _is_metric(line: re.Match[str]) -> bool:
    """True for what only line protocol has: a bare name, typed fields, and tags or a time."""
    if _NAME.match(line["head"]) is None or not ("," in line["head"] or len(line["at"] or "") >= 10):
        return False
    if any(_EQUALS.search(tag) is None for tag in _split(line["head"])[1:]):
        return False
    return next(_fields(line["fields"]), None) is not None


def _fields(text: str) -> Iterator[Field]:
    start = 0
    while (field := _FIELD.match(text, start)) is not None:
        start = field.end()
        value = field["value"]
        if value[0] == '"':
            yield _unescaped(field["name"]), _unescaped(value[1:-1])
        elif _NUMBER.fullmatch(value) is not None:
            yield _unescaped(field["name"]), float(value.rstrip("iu"))
        elif value in _BOOLEANS:
            yield _unescaped(field["name"]), value
        else:
            return


def _named(head: str) -> tuple[str, dict[str, str]]:
    name, *rest = _COMMA.split(head, 1) if "\\" in head else head.split(",", 1)
    return _unescaped(name), _tags(rest[0]) if rest else {}


@lru_cache(CACHED)
def _tags(text: str) -> dict[str, str]:
    pairs = (_EQUALS.split(tag, 1) if "\\" in tag else tag.split("=", 1) for tag in _split(text))
    return {_unescaped(pair[0]): _unescaped(pair[1]) for pair in pairs if len(pair) == 2}


def _split(head: str) -> list[str]:
    return _COMMA.split(head) if "\\" in head else head.split(",")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text
