"""YAML into strict values, with every error at its file, line and column.

Only plain YAML is accepted: no tags, no aliases (they can make a small file huge), no key twice, bounded size and depth. Every
node has the file it came from, so a tree assembled from several files still has the place of each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from streams.config.plain_faults import what
from streams.config.yaml_tables import LOADER
from streams.model.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 64 * 1024
MAX_DEPTH = 12

BRANCHES = frozenset({"plain", "computed"})
"""Names of alternatives in the schema: pydantic puts them into the path of an error, and no document has them."""

Path = tuple[int | str, ...]

Fault = tuple[Path, str, int, int]
"""A fault between keys: its path, what is wrong, and the line and column inside an expression (0 outside of one)."""


def faulty(faults: Sequence[Fault]) -> PydanticCustomError:
    """The error with which a model reports all its faults between keys, each with its place in the file."""
    return PydanticCustomError("faults", "{what}", {"what": faults[0][1], "faults": tuple(faults)})


class CrossChecked(BaseModel):
    """A model with checks between its keys. pydantic runs those only when every key is valid by itself."""

    @classmethod
    def other_faults(cls, value: Mapping[str, Any], invalid: Sequence[Path]) -> Iterator[Fault]:
        """The faults between valid keys where those at `invalid` are not, without any that follow from these."""
        yield from ()


def parse(kind: type[M], text: str, file: str) -> M:
    """One YAML document as `kind`.

    Raises:
        ConfigError: one line per fault, each `file:line:column: key: what is wrong`.
    """
    return validated(kind, compose(text, file))


def compose(text: str, file: str) -> yaml.MappingNode:
    """The tree of one document. Raises ConfigError when it is not plain YAML, or no mapping."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise ConfigError(f"{file}:1:1: longer than {MAX_BYTES} bytes")
    try:
        root = _composed(text, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        raise ConfigError(f"{file}:{where}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}:1:1: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{file}:1:1: the top level must be a mapping of keys")
    return root


def validated(kind: type[M], root: yaml.MappingNode) -> M:
    """A tree as `kind`. Raises ConfigError with a line for every fault, each in the file its node came from."""
    value = plain(root)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        own = [e for e in errors if not _follows(e, errors)]
        lines = [line for e in own for line in _lines(root, e, kind)]
        invalid = [_without_branches(root, tuple(e["loc"])) for e in own]
        if issubclass(kind, CrossChecked) and () not in invalid:
            lines += [_line(root, *fault) for fault in kind.other_faults(value, invalid)]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from error


def _follows(error: Any, all_errors: Sequence[Any]) -> bool:
    """Whether a fault only follows from another one: a default needs an invalid key, or no item of a list is valid."""
    path = error["loc"]
    if error["type"] != "too_short":
        return bool(error["type"] == "default_factory_not_called")
    return any(len(e["loc"]) > len(path) and e["loc"][: len(path)] == path for e in all_errors)


def plain(node: yaml.Node) -> Any:
    """The value of a tree. Raises ConfigError for a key that is used twice and for what is no plain value."""
    if isinstance(node, yaml.MappingNode):
        pairs: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{where(node)}: a key must be plain text")
            if key.value in pairs:
                raise ConfigError(f"{where(key)}: {key.value}: the key is used twice")
            pairs[key.value] = plain(child)
        return pairs
    if isinstance(node, yaml.SequenceNode):
        return [plain(child) for child in node.value]
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{where(node)}: {str(error).splitlines()[0]}") from error


def where(node: yaml.Node) -> str:
    """`file:line:column` of a node."""
    mark = node.start_mark
    return f"{mark.name}:{mark.line + 1}:{mark.column + 1}"


def at(root: yaml.Node, path: Path) -> yaml.Node:
    """The node at a path, or the deepest one on the way there."""
    node = root
    for part in path:
        found = child(node, part)
        if found is None:
            return node
        node = found
    return node


def child(node: yaml.Node, part: int | str) -> yaml.Node | None:
    """One step down a tree, None where there is no such key or item."""
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in reversed(node.value) if key.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        found: yaml.Node = node.value[part]
        return found
    return None


def leaves(node: yaml.Node, path: Path = ()) -> Iterator[tuple[Path, yaml.Node]]:
    """Every plain value of a tree with its path."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from leaves(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from leaves(value, (*path, number))
    else:
        yield path, node


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases and depth on the way: a deep document would need as deep a stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        here = f"{self.name}:{event.start_mark.line + 1}:{event.start_mark.column + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"{here}: anchors and aliases are not allowed")
        deeper = isinstance(event, yaml.CollectionStartEvent)
        if self.depth + deeper > MAX_DEPTH:
            raise ConfigError(f"{here}: nested deeper than {MAX_DEPTH}")
        self.depth += deeper
        node = super().compose_node(parent, index)
        self.depth -= deeper
        return node


def _composed(text: str, file: str) -> yaml.Node | None:
    """The tree by libyaml, which takes an eighth of the time; the slow loader words the fault where there is one."""
    try:
        if LOADER is not yaml.SafeLoader and _is_plain(text):
            root: yaml.Node | None = yaml.compose(text, LOADER)
            return None if root is None else _placed(root, text, file)
    except (yaml.YAMLError, UnicodeEncodeError):
        pass  # the other one finds it again, or reads on where libyaml is the stricter one
    loader = _PlainLoader(text)
    loader.name = file
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _is_plain(text: str) -> bool:
    """Whether a document has no alias and no anchor, and is no deeper than may be: libyaml composes by recursion."""
    depth = 0
    for event in yaml.parse(text, LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            return False
    return True


def _placed(node: yaml.Node, text: str, file: str) -> yaml.Node:
    """The tree with the file and its text in the marks, which libyaml does not know."""
    mark = node.start_mark
    node.start_mark = yaml.Mark(file, mark.index, mark.line, mark.column, text, mark.index)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _placed(item, text, file)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _placed(key, text, file)
            _placed(value, text, file)
    return node


def _lines(root: yaml.Node, error: Any, kind: type[BaseModel]) -> Iterator[str]:
    """The lines for one error of pydantic; a check between keys reports several faults in one."""
    context, path = error.get("ctx", {}), tuple(error["loc"])
    if "faults" in context:
        for inner, message, line, column in context["faults"]:
            yield _line(root, (*path, *inner), message, line, column)
        return
    if error["type"] == "extra_forbidden":
        path = _without_branches(root, path)
        parent = at(root, path[:-1])
        keys = [key for key, _ in parent.value] if isinstance(parent, yaml.MappingNode) else []
        node = next((key for key in keys if key.value == str(path[-1])), parent)
        yield f"{where(node)}: {_shown(path)}: {what(error, kind)}"
        return
    yield _line(root, path, what(error, kind), context.get("line", 0), context.get("column", 0))


def _line(root: yaml.Node, path: Path, message: str, line: int, column: int) -> str:
    path = _without_branches(root, path)
    node = at(root, path)
    place = where(node)
    if line and isinstance(node, yaml.ScalarNode):
        place = inside(node, line, column)
    return f"{place}: {_shown(path)}: {message}"


def _shown(path: Path) -> str:
    return ".".join(str(part) for part in path) or "document"


def _without_branches(root: yaml.Node, path: Path) -> Path:
    kept: list[int | str] = []
    for part in path:
        if part not in BRANCHES or child(at(root, tuple(kept)), part) is not None:
            kept.append(part)
    return tuple(kept)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean X?` for the most similar known name; where none is similar, all of them."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f", did you mean {close[0]}?" if close else f"; known are {', '.join(names) or 'none'}"


def inside(node: yaml.Node, line: int, column: int) -> str:
    """`file:line:column` of a place in a scalar's value, found by matching the value's characters in the file in order.

    Quotes, escapes, folded lines and indentation make the two differ, but only by further characters in the file.
    """
    mark, text = node.start_mark, node.start_mark.buffer
    if text is None or not isinstance(node, yaml.ScalarNode):
        return where(node)
    before = "".join(node.value.splitlines(keepends=True)[: line - 1])
    wanted = [c for c in node.value[: len(before) + column] if not c.isspace()]
    spot = mark.pointer
    if node.style in ("|", ">"):
        spot = text.find("\n", spot)
    elif node.style in ("'", '"'):
        spot += 1
    for number, character in enumerate(wanted):
        found = text.find(character, spot)
        if found < 0:
            break
        spot = found if number == len(wanted) - 1 else found + 1
    begin = text.rfind("\n", 0, spot) + 1
    return f"{mark.name}:{mark.line + 1 + text.count(chr(10), mark.pointer, spot)}:{spot - begin + 1}"
