"""Run documents of older forms, turned into today's: an upgrade takes over what the version before was in the middle of.

Each step takes a document, as plain JSON values, from one `schema` to the next. What has begun goes on as it was planned: a
migration only fills in what a newer form says besides. A document of a newer form than is known here is refused: whoever acts
on half of what it says may do something twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from streams.model.errors import BadInput

Document = dict[str, Any]

SCHEMA = 2
"""The form of run documents that is written."""

_ROOTS = (
    (re.compile(r"GPU (?P<gpu>\S+) on (?P<node>\S+)", re.ASCII), ("gpu:{node}/{gpu}", "node:{node}")),
    (re.compile(r"NIC \S+ on (?P<node>\S+)", re.ASCII), ("node:{node}",)),
    (re.compile(r"node (?P<node>\S+)", re.ASCII), ("node:{node}",)),
)
"""How a run of the first form told what it was about, in `context.root`."""


def upgraded(document: Document) -> Document:
    """The document in today's form.

    Raises:
        BadInput: its schema is newer than any that is known here, or no number.
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
    """Rounds, rungs and offenders came in. Ids and keys of a first round are the same as before."""
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
"""By the schema that they take a document from."""
