"""Verdicts and notices in JSON of nobody's schema: a state that is bad, and a machine that it is about.

`{"component", "health": "Unhealthy", "reason"}`, `{"AlarmName", "NewStateValue": "ALARM"}`, `{"incident": {"state": "open"}}`,
`{"host", "service", "state": "CRITICAL"}`: agents, clouds and alerting systems say it each in their own way, under names that
change with every version. Such a document becomes one line, `notice: name=value …`, which a row of `detect/catalog/signs`
reads as a sign too weak to act on. Which names and values count is data: `notices.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.logs import text
from streams.ingest.logs.flat_record import text_of
from streams.ingest.records import JsonObject, Opened, RecordContext

_MAX_DEPTH = 5
_MAX_LEAVES = 80
_MAX_VALUE = 200
SOURCE = "notice"


class Notices(Strict):
    """`notices.yaml`. Names are in lower case without separators, values in lower case."""

    states: Mapping[str, frozenset[str]]
    """By names (a row's key is a list of them, with blanks between): values that are bad."""
    severities: Mapping[str, frozenset[str]]
    """The same, of documents without a text: a line of a log has a severity too."""
    machines: frozenset[str]
    """Names of fields that say which machine it is."""
    nodes: tuple[str, ...]
    """Those that give its name, the surest first."""
    times: tuple[str, ...]
    not_notices: frozenset[str]
    """Names, as written, of fields that only a program's log line has."""
    hints: tuple[str, ...]


SHEET = load_table(Path(__file__).with_name("notices.yaml"), Notices)
HINTS = tuple(hint.encode() for hint in SHEET.hints)
_BAD = {name: values for names, values in SHEET.states.items() for name in names.split()}
_SEVERE = {name: values for names, values in SHEET.severities.items() for name in names.split()}
_SEPARATORS = str.maketrans("", "", "_-. :/")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the notice to `into`; False for any other document, and for one with a text, which is read as well."""
    if not SHEET.not_notices.isdisjoint(record):
        return False
    leaves = list(_leaves(record, 0))[:_MAX_LEAVES]
    plain = {_plain(name.rpartition(".")[2]): value for name, value in leaves[::-1]}
    bare = text_of(fields(record)) is None
    bad = {**_BAD, **_SEVERE} if bare else _BAD
    if not any(value.lower() in bad.get(name, ()) for name, value in plain.items()):
        return False
    if SHEET.machines.isdisjoint(_plain(part) for name, _ in leaves for part in name.split(".")):
        return False
    said = " ".join(f"{name}={value!r}" for name, value in leaves).replace("\n", " ")
    node = next((plain[name] for name in SHEET.nodes if _is_host(plain.get(name))), None)
    line = f"{SOURCE}: {said}"
    text.read(line, context, into, at=_time(plain), node=node or context.node, source=SOURCE)
    return bare


def _plain(name: str) -> str:
    return name.translate(_SEPARATORS).lower()


def _leaves(value: object, depth: int, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        for name, inner in value.items():
            yield from _leaves(inner, depth + 1, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for inner in value[:8]:
            yield from _leaves(inner, depth + 1, path)
    elif isinstance(value, (str, int, float)):
        yield path, str(value)[:_MAX_VALUE]


def _is_host(name: str | None) -> bool:
    return bool(name) and len(name or "") <= 253 and not any(mark in (name or "") for mark in " \t\"'/{}")


def _time(plain: Mapping[str, str]) -> datetime | None:
    return next((at for name in SHEET.times if (at := timestamps.any_form(plain.get(name)))), None)
