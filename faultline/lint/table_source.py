"""A table as it is in force, and the place of everything in it: in the table that ships, or in what a site lays over it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from runbooks.language.lint import LintFinding
from streams.config.plain_faults import faults, said
from streams.config.table_overlay import laid_over, read_yaml
from streams.config.yaml_tables import LOADER
from streams.model.errors import ConfigError

Path_ = tuple[int | str, ...]


class TableSource:
    """One table. `overlay` is the site's file for it, None without one.

    Raises:
        ConfigError: when a file cannot be read or is not YAML.
    """

    def __init__(self, table: Path, overlay: Path | None) -> None:
        content = read_yaml(table, LOADER)
        self.content = laid_over(content, read_yaml(overlay, LOADER)) if overlay is not None else content
        self._trees = [(file, _tree(file)) for file in (overlay, table) if file is not None]

    def place(self, *path: int | str) -> str:
        """`file:line:column` of what is at a path of the content, or of the nearest thing around it that a file has."""
        best, depth = self._trees[-1], -1
        found: yaml.Node | None = best[1]
        for tree in self._trees:
            node, reached = self._reached(tree[1], path)
            if reached > depth:
                best, found, depth = tree, node, reached
        mark = found.start_mark if found is not None else None
        return f"{best[0]}:{mark.line + 1 if mark else 1}:{mark.column + 1 if mark else 1}"

    def _reached(self, tree: yaml.Node | None, path: Path_) -> tuple[yaml.Node | None, int]:
        """The deepest node on a path in one file, and how deep it is. Rows are found by id or codes: their numbers differ."""
        node, shown, content = tree, tree, self.content
        for depth, part in enumerate(path):
            inner, key = _step(node, part, content)
            if inner is None:
                return shown, depth
            content = _inner(content, part)
            node, shown = inner, key if key is not None else inner
        return shown, len(path)

    def faults(self, kind: Any) -> Iterator[LintFinding]:
        """A finding for each value that does not fit `kind`."""
        try:
            TypeAdapter(kind).validate_python(self.content)
        except ValidationError as error:
            for path, what in faults(error, kind):
                yield LintFinding(self.place(*path), "fault", said(path, what, self.content))


def source_of(table: Path, overlay: Path | None) -> tuple[TableSource | None, list[LintFinding]]:
    """The table, or why it cannot be read."""
    try:
        return TableSource(table, overlay), []
    except ConfigError as error:
        mark = getattr(getattr(error.__cause__, "problem_mark", None), "line", 0)
        return None, [LintFinding(f"{overlay or table}:{mark + 1}:1", "fault", str(error).replace("\n", " "))]


def _tree(file: Path) -> yaml.Node | None:
    node: yaml.Node | None = yaml.compose(file.read_text(encoding="utf-8"), LOADER)
    return node


def _step(node: yaml.Node | None, part: int | str, content: Any) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The node of a part, and that of its key in a mapping."""
    if isinstance(node, yaml.MappingNode):
        return next(((value, key) for key, value in node.value if key.value == str(part)), (None, None))
    if not isinstance(node, yaml.SequenceNode) or not isinstance(part, int):
        return None, None
    row = content[part] if isinstance(content, list) and part < len(content) else None
    at = node.value[part] if part < len(node.value) else None
    if isinstance(row, Mapping) and (name := _name(row)) is not None:
        if at is not None and name & (_node_name(at) or set()):
            return at, None
        return next((one for one in node.value if name & (_node_name(one) or set())), None), None
    return at, None


def _name(row: Mapping[str, Any]) -> set[str] | None:
    if "id" in row:
        return {str(row["id"])}
    codes = row.get("codes")
    return set(map(str, codes)) if isinstance(codes, list) else None


def _node_name(node: yaml.Node) -> set[str] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for key, value in node.value:
        if key.value == "id":
            return {str(value.value)}
        if key.value == "codes" and isinstance(value, yaml.SequenceNode):
            return {str(one.value) for one in value.value}
    return None


def _inner(content: Any, part: int | str) -> Any:
    if isinstance(content, list):
        return content[part] if isinstance(part, int) and part < len(content) else None
    return content.get(part) if isinstance(content, Mapping) else None
