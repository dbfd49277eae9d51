"""What pydantic finds wrong with data, in plain words, with the name that a mistyped one may have meant. Used by every loader."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, get_args

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from streams.model.similar import suggestion

Path = tuple[int | str, ...]

_KEY = "[key]"
"""What pydantic adds to the path of a key of a mapping that is wrong itself."""
_MOST_LISTED = 8
_PLAIN = {
    "Input should ": "must ",
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
}


def one_of(names: Collection[str]) -> AfterValidator:
    """A closed vocabulary for a value that stays plain text."""
    known = tuple(str(name) for name in names)

    def check(value: str) -> str:
        if value not in known:
            listed = ", ".join(f"'{name}'" for name in known)
            raise PydanticCustomError("enum", "it is none of {expected}", {"expected": listed})
        return value

    return AfterValidator(check)


def faults(error: ValidationError, kind: Any) -> Iterator[tuple[Path, str]]:
    """The path of each fault in data that should be a `kind`, and what is wrong there.

    Faults below a key that is wrong itself are left out: the value may be right under the key that was meant.
    """
    found = error.errors(include_url=False)
    wrong_keys = [_path(one)[0] for one in found if _KEY in one["loc"]]
    for one in found:
        path, is_key = _path(one)
        if is_key or not any(path[: len(key)] == key for key in wrong_keys):
            yield path, what(one, kind)


def what(
    error: ErrorDetails, kind: Any, *, noun: str = "key", elsewhere: Callable[[str], str] | None = None
) -> str:
    """One fault in plain words.

    Args:
        noun: What a key is called: `key`, `setting`.
        elsewhere: The whole name of a key that is known, but not here; empty where there is none.
    """
    path = _path(error)[0]
    if error["type"] in ("enum", "literal_error"):
        known = re.findall(r"'([^']+)'", str(error["ctx"]["expected"]))
        return none_of(str(error["input"]), known)
    if error["type"] == "extra_forbidden":
        name, within = str(path[-1]), model_at(kind, path[:-1])
        names = key_names(within) if within is not None else []
        meant = suggestion(name, names)
        if not meant and elsewhere is not None and (found := elsewhere(name)):
            meant = f"; did you mean {found}?"
        listed = f"; known here are {', '.join(sorted(names))}" if names and not meant else ""
        return f"there is no such {noun}{meant}{listed}"
    if error["type"] == "missing":
        return "it is missing, and has no default"
    if error["type"] in (
        "model_type",
        "model_attributes_type",
        "dict_type",
        "mapping_type",
        "dataclass_type",
    ):
        return "must be a mapping of keys" + ("; it is empty" if error["input"] is None else "")
    if error["type"] in ("list_type", "tuple_type", "set_type", "frozen_set_type"):
        return "must be a list"
    message = str(error["msg"]).removeprefix("Value error, ")
    for theirs, ours in _PLAIN.items():
        message = message.replace(theirs, ours)
    return message


def none_of(word: str, known: Collection[str]) -> str:
    """That a word is none of a vocabulary: all of it where it is short or nothing in it is similar."""
    meant = suggestion(word, known)
    if meant and len(known) > _MOST_LISTED:
        return f"{word!r} is not a known value{meant}"
    return f"{word!r} is none of {', '.join(known)}{meant}"


def said(path: Path, what: str, content: Any) -> str:
    """A fault with its place in the content."""
    return f"{shown}: {what}" if (shown := _named(path, content)) else what


def _named(path: Path, content: Any) -> str:
    """A path as people find it: rows of a list by their id or codes where they have one (`code 79: action`)."""
    parts: list[str] = []
    rows: list[str] = []
    for part in path:
        row = _inner(content, part)
        if isinstance(part, int) and (name := _row_name(row)):
            parts, rows = [], [*rows, name]
        else:
            parts.append(str(part))
        content = row
    return ": ".join([*rows, *([".".join(parts)] if parts else [])])


def model_at(kind: Any, path: Path) -> type[BaseModel] | None:
    """The model at a path. Indexes of lists and keys of mappings on the way are passed over."""
    here = model_of(kind)
    for part in path:
        if here is not None and (field := _field(here, part)) is not None:
            here = model_of(field)
    return here


def key_names(model: type[BaseModel]) -> list[str]:
    """The keys of a model, as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _path(error: ErrorDetails) -> tuple[Path, bool]:
    """The path of a fault, and whether the key itself is wrong."""
    return tuple(part for part in error["loc"] if part != _KEY), _KEY in error["loc"]


def _field(model: type[BaseModel], part: int | str) -> Any:
    return next(
        (field.annotation for name, field in model.model_fields.items() if part in (name, field.alias)), None
    )


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is of or holds: itself, the items of a tuple, the values of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        if (found := model_of(inner)) is not None:
            return found
    return None


def _inner(content: Any, part: int | str) -> Any:
    if isinstance(content, list):
        return content[part] if isinstance(part, int) and part < len(content) else None
    return content.get(part) if isinstance(content, Mapping) else None


def _row_name(row: Any) -> str:
    if not isinstance(row, Mapping):
        return ""
    if isinstance(row.get("id"), str):
        return f"row {row['id']}"
    codes = row.get("codes")
    if not isinstance(codes, list) or not codes:
        return ""
    return f"code {codes[0]}" if len(codes) == 1 else f"codes {codes[0]} …"
