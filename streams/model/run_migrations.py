"""Migrates run documents of older schemas, so that an upgrade continues the runs that are in progress.

Each step takes a document, as plain JSON values, from one `schema` to the next. Runs continue as planned: a migration only
fills in what a newer schema adds. A document of an unknown newer schema is refused: acting on half of it could repeat a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from streams.model.errors import BadInput

Document = dict[str, Any]

SCHEMA = 2
"""The schema of run documents that is written."""

_ROOTS = (
    (re.compile(r"GPU (?P<gpu>\S+) on (?P<node>\S+)", re.ASCII), ("gpu:{node}/{gpu}", "node:{node}")),
    (re.compile(r"NIC \S+ on (?P<node>\S+)", re.ASCII), ("node:{node}",)),
    (re.compile(r"node (?P<node>\S+)", re.ASCII), ("node:{node}",)),
)
"""How a run of schema 1 named its root cause, in `context.root`."""


def upgraded(document: Document) -> Document:
    """The document in the present schema.

    Raises:
        BadInput: its schema is newer than the known ones, or not a number.
    """
    schema, name = document.get("schema", 1), document.get("id", "without an id")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise BadInput(f"Run {name}: schema: {schema!r} is no schema")
    if schema > SCHEMA:
        raise BadInput(
            f"Run {name}: schema: {schema} is newer than {SCHEMA}, the newest that this version knows: "
            "upgrade every responder before it takes over"
        )
    for number in range(schema, SCHEMA):
        document = {**MIGRATIONS[number](document), "schema": number + 1}
    return document


def _from_1(document: Document) -> Document:
    """Adds rounds, escalation and offenders. Ids and keys of a first round are the same as before."""
    context = document.get("context")
    root = str(context.get("root", "")) if isinstance(context, dict) else ""
    names = _offenders(root)
    over = str(document.get("reason", "")).startswith(("merged into ", "the incident is over: "))
    return {
        **document,
        "offender": names[0] if names else "",
        "offenders": names,
        "incident_over": over or bool(document.get("undoing")),
        "overruled": str(document.get("reason", "")).startswith(("stopped by ", "resolved by ")),
    }


def _offenders(root: str) -> list[str]:
    for shape, names in _ROOTS:
        if (found := shape.fullmatch(root)) is not None:
            return [name.format(**found.groupdict()) for name in names]
    return []


MIGRATIONS: Mapping[int, Callable[[Document], Document]] = {1: _from_1}
"""By the schema they migrate from."""
