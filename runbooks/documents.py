"""YAML into strict values, with every error at its file, line and column.

Only the plain part of YAML is taken: no tags, no aliases (they can make a small file huge), no key twice, bounded size.
"""

from __future__ import annotations

from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from streams.model.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 64 * 1024
MAX_DEPTH = 12


def parse(kind: type[M], text: str, file: str) -> M:
    """One YAML document as `kind`.

    Raises:
        ConfigError: one line per fault, each `file:line:column: key: what is wrong`.
    """
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{file}:1:1: longer than {MAX_BYTES} bytes")
    try:
        _refuse_aliases(text, file)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise ConfigError(f"{file}:{where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}:1:1: not YAML: {error}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{file}:1:1: the top level must be a mapping of keys")
    value = _plain(root, file, 0)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        lines = [_line(root, e, file) for e in error.errors(include_url=False, include_input=False)]
        raise ConfigError("\n".join(lines)) from error


def place(node: yaml.Node, loc: tuple[int | str, ...]) -> yaml.Node:
    """The YAML node at a path, or the deepest one on the way there."""
    for part in loc:
        found: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                if key.value == str(part):
                    found = child
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
        if found is None:
            return node
        node = found
    return node


def _line(root: yaml.Node, error: Any, file: str) -> str:
    loc = tuple(error["loc"]) or tuple(error.get("ctx", {}).get("at", ()))
    node = place(root, loc)
    if error["type"] == "extra_forbidden" and isinstance(parent := place(root, loc[:-1]), yaml.MappingNode):
        node = next((key for key, _ in parent.value if key.value == str(loc[-1])), node)
    path = ".".join(str(part) for part in loc) or "document"
    message = "there is no such key" if error["type"] == "extra_forbidden" else error["msg"]
    return f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}: {path}: {message}"


def _refuse_aliases(text: str, file: str) -> None:
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            mark = event.start_mark
            where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
            raise ConfigError(f"{file}:{where}: anchors and aliases are not taken")


def _plain(node: yaml.Node, file: str, depth: int) -> Any:
    here = f"{file}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    if depth > MAX_DEPTH:
        raise ConfigError(f"{here}: nested deeper than {MAX_DEPTH}")
    if isinstance(node, yaml.MappingNode):
        pairs: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{here}: a key must be plain text")
            if key.value in pairs:
                mark = key.start_mark
                raise ConfigError(
                    f"{file}:{mark.line + 1}:{mark.column + 1}: {key.value}: the key is there twice"
                )
            pairs[key.value] = _plain(child, file, depth + 1)
        return pairs
    if isinstance(node, yaml.SequenceNode):
        return [_plain(child, file, depth + 1) for child in node.value]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{here}: {str(error).splitlines()[0]}") from error
