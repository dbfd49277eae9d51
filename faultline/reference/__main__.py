"""`python -m faultline.reference docs`: the reference pages, written from the code and the data they describe.

A page is a function of the code alone, so a test can tell when one is stale. Everything in a table cell is escaped: log
shapes and patterns are full of characters that Markdown would take for its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from faultline.cli.main import EXIT_CODES, cli
from faultline.reference.catalog_page import catalog_page
from faultline.reference.jobs_page import jobs_page
from faultline.reference.markdown import Row, code, table, text
from faultline.reference.metrics_page import metrics_page
from faultline.runtime.reloadable import how_of
from faultline.runtime.settings import Settings
from runbooks.language.cases import Cases
from runbooks.language.includes_and_overrides import Fragment, Override, RunbookFile
from runbooks.language.loader import load
from runbooks.language.schema import Runbook
from runbooks.language.values import Computed
from streams.kafka.topics import ALL, CHANGELOG, DAY_MS, Topic
from streams.model.counted import many

NOTE = "<!-- Written by `make docs`. Change the code or the data it tells of, not this page. -->"


def settings_page() -> Iterator[str]:
    """Every setting with its variable, values, default and meaning."""
    yield "# Settings"
    yield ""
    yield "Environment variables win over the YAML file (`--config` or `FAULTLINE_CONFIG`), the file over the defaults. Unknown"
    yield 'keys are refused. Lists in a variable are JSON: `FAULTLINE_RESPONDER__APPROVERS=\'["ann", "bo"]\'`.'
    yield ""
    yield "How a change of the file takes effect ([more](../operations.md#changing-settings-runbooks-and-catalog)): `live`"
    yield "between two steps; `anew`: the process ends its step and begins again in place; `restart`: by a restart alone, and"
    yield "until then nothing of the changed files is loaded. Variables are read at the start only."
    yield ""
    yield from _settings(Settings, "", "")


def _settings(model: type[BaseModel], path: str, about: str) -> Iterator[str]:
    sections = {name: field for name, field in model.model_fields.items() if _is_section(field)}
    if path:
        yield f"## {code(path)}"
        yield ""
        yield about
        yield ""
    rows = [
        (
            code(_join(path, name)),
            code("FAULTLINE_" + _join(path, name).replace(".", "__").upper()),
            text(_values(field.annotation) + _bounds(field)),
            code(_default(field)),
            how_of(_join(path, name)),
            text(field.description or ""),
        )
        for name, field in model.model_fields.items()
        if name not in sections
    ]
    yield from table(("key", "variable", "takes", "default", "change", "meaning"), rows)
    for name, field in sections.items():
        assert isinstance(field.annotation, type)
        yield from _settings(
            field.annotation, _join(path, name), text(field.description or field.annotation.__doc__)
        )
    yield from _items(model, path)


def _items(model: type[BaseModel], path: str) -> Iterator[str]:
    """The items of lists, and the values of mappings by name, down to those within them."""
    for name, field in model.model_fields.items():
        if (item := _listed(field)) is not None:
            yield f"## An item of {code(_join(path, name))}"
            yield ""
            yield text(item.__doc__)
            yield ""
            items = [
                (code(key), text(_values(f.annotation)), code(_default(f)), text(f.description or ""))
                for key, f in item.model_fields.items()
            ]
            yield from table(("key", "takes", "default", "meaning"), items)
            yield from _items(item, f"{_join(path, name)}.NAME")


def _listed(field: FieldInfo) -> type[BaseModel] | None:
    """What a list of mappings, or a mapping of mappings, is made of."""
    inner = get_args(field.annotation) if get_origin(field.annotation) in (tuple, Mapping) else ()
    return next((one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _values(annotation: Any) -> str:
    """What may be set: the words of a choice, else the plain name of the type."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(inner[0])
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin in (Union, UnionType):
        return _values(next(kind for kind in inner if kind is not type(None)))
    if origin is Mapping:
        return "JSON object"
    if origin is tuple:
        return f"list of {_values(inner[0])}"
    if issubclass(annotation, BaseModel):
        return "mapping"
    if issubclass(annotation, Enum):
        return ", ".join(member.value for member in annotation)
    names = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "true, false",
        Path: "path",
        AwareDatetime: "time, RFC 3339",
    }
    return names.get(annotation, "secret")


def _bounds(field: FieldInfo) -> str:
    """`, 1 to 100` for a number; the words `above` and `below` where the bound itself is not taken."""
    signs = {"gt": "above ", "ge": "from ", "lt": "below ", "le": "to "}
    found = {
        sign: f"{bound:g}" if bound < 100_000 else f"{bound:.0f}"
        for one in field.metadata
        for sign in signs
        if (bound := getattr(one, sign, None)) is not None and not isinstance(bound, str)
    }
    words = " ".join(word + found[sign] for sign, word in signs.items() if sign in found)
    return f", {words}" if words else ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == "" or field.is_required():
        return ""
    if isinstance(value, Enum):
        return str(value.value)
    return json.dumps(value) if isinstance(value, bool | tuple) else str(value)


def cli_page() -> Iterator[str]:
    """The help text of every command."""
    yield "# Command line"
    yield ""
    yield "Results go to stdout; logs, progress and errors to stderr. `--output json` prints one JSON object a line and nothing"
    yield "else, `--output yaml` one document each. An id may be cut to a unique prefix. On a terminal what is longer than the"
    yield "screen is paged by `$PAGER`; `--no-pager`, `--color` and `--config` may stand anywhere."
    yield ""
    yield from table(("exit code", "meaning"), [(number, text(what)) for number, what in EXIT_CODES.items()])
    yield from _help(cli, None, "faultline")


def _help(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name, terminal_width=100)
    path = context.command_path
    yield f"{'#' * min(4, 1 + len(path.split()))} {path}"
    yield ""
    yield "```text"
    yield from command.get_help(context).rstrip().splitlines()
    yield "```"
    yield ""
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _help(found, context, child)


def topics_page() -> Iterator[str]:
    """The table of topics."""
    yield "# Topics"
    yield ""
    yield "`kafka.topic_prefix` is put before every name. `raw` stands for `kafka.raw_partitions` (more are fine), `cluster` for"
    yield "`kafka.cluster_partitions` (exactly that many). Who writes and reads them: [architecture](../architecture.md#topics)."
    yield ""
    headings = ("topic", "partitions", "clean-up", "kept", "key", "value")
    yield from table(headings, [_topic(topic) for topic in (*ALL, CHANGELOG)])


def _topic(topic: Topic) -> Row:
    for_ever = "latest per key" if topic.cleanup == "compact" else "for ever"
    kept = for_ever if topic.retention_ms is None else _span(topic.retention_ms)
    return (
        code(topic.name), code(topic.partitions), code(topic.cleanup), kept, text(topic.key), text(topic.value),
    )  # fmt: skip


def _span(ms: int) -> str:
    return f"{ms // DAY_MS} d" if ms % DAY_MS == 0 else f"{ms // 3_600_000} h"


def runbooks_page() -> Iterator[str]:
    """The runbooks that ship."""
    yield "# Runbooks that ship"
    yield ""
    yield "How they are chosen, and how to write your own: [runbooks](../runbooks.md)."
    yield "For editors and checks there are JSON schemas: [runbook](runbook.schema.json), [override](override.schema.json),"
    yield "[fragment](fragment.schema.json), [cases](cases.schema.json)."
    yield ""
    for runbook in sorted(load(), key=lambda r: (-r.priority, r.id)):
        yield from _runbook(runbook)


def _runbook(runbook: Runbook) -> Iterator[str]:
    yield f"## {runbook.id}"
    yield ""
    yield text(runbook.description)
    yield ""
    yield f"- match: {code(runbook.match)}"
    yield f"- priority {runbook.priority}, mode {code(runbook.mode)}, owner {code(runbook.owner)}, revision {runbook.revision}"
    yield ""
    if runbook.escalation is not None:
        level = runbook.escalation
        limit = f"after {many(level.after, 'run')} for one {level.per} within {level.within_s:g} s"
        yield f"- {limit}, [{level.to}](#{level.to}) is taken instead"
        yield ""
    if runbook.parameters:
        bounds = ("parameter", "default", "least", "most", "what for")
        yield from table(
            bounds,
            [
                (code(name), code(_value(p.default)), _value(p.min), _value(p.max), text(p.describe))
                for name, p in sorted(runbook.parameters.items())
            ],
        )
        yield ""
    rows = [
        (
            code(s.id), code(s.action), code(s.target), ", ".join(map(code, s.needs)), code(s.when or ""),
            ", ".join(code(f"{key}={_value(value)}") for key, value in sorted(s.params.items())),
            f"{_value(s.deadline_s)} s", s.on_failure,
            _marks(("asks first", bool(s.approval)), ("undone", s.undo)), text(s.describe),
        )
        for s in runbook.steps
    ]  # fmt: skip
    headings = (
        "step",
        "action",
        "target",
        "needs",
        "when",
        "parameters",
        "deadline",
        "on failure",
        "besides",
        "what for",
    )
    yield from table(headings, rows)


def _value(value: object) -> str:
    """A value of a runbook as its file has it."""
    if isinstance(value, Computed):
        return f"{{cel: {value.cel}}}"
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _marks(*marks: tuple[str, bool]) -> str:
    return ", ".join(word for word, is_set in marks if is_set)


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "topics.md": topics_page,
    "metrics.md": metrics_page,
    "catalog.md": catalog_page,
    "runbooks.md": runbooks_page,
    "../jobs.md": jobs_page,
}
"""Every page by its name in `docs/reference`; the page of jobs lies beside those that are written by hand."""


SCHEMAS: Mapping[str, type[BaseModel]] = {
    "runbook": RunbookFile,
    "override": Override,
    "fragment": Fragment,
    "cases": Cases,
}
"""What editors check the files of runbooks with."""


def pages() -> dict[str, str]:
    """Every file of `docs/reference` by name, as it has to be."""
    found = {name: "\n".join([NOTE, "", *page()]).rstrip() + "\n" for name, page in PAGES.items()}
    for name, kind in SCHEMAS.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **kind.model_json_schema()}
        found[f"{name}.schema.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return found


def main(folder: Path) -> None:
    """Write the pages into `folder/reference`."""
    target = folder / "reference"
    target.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (target / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():  # a mistyped option is no folder to make
        sys.exit("usage: python -m faultline.reference FOLDER")
    main(Path(sys.argv[1]))
