"""Values to bytes and back. Every document on a Faultline topic goes through these two functions.

pydantic validates on the way in and gives errors that name the field; inside, values are plain frozen dataclasses.
Fields that are None are left out of the bytes. Unknown fields are ignored on the way in: an older reader must survive a
newer writer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from streams.model.errors import BadInput

T = TypeVar("T")


class _Upgrade(NamedTuple):
    schema: int
    upgraded: Callable[[dict[str, Any]], dict[str, Any]]


_adapters: dict[Any, TypeAdapter[Any]] = {}
_upgrades: dict[Any, _Upgrade] = {}


def on_decode(kind: Any, schema: int, upgraded: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """From now on documents of `kind` whose field `schema` is another one go through `upgraded` first.

    It takes plain JSON values and returns them in today's form, or raises BadInput.
    """
    _upgrades[kind] = _Upgrade(schema, upgraded)


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(value: Any) -> bytes:
    """A frozen dataclass (or a list of them) as compact JSON; the same value always gives the same bytes."""
    return _adapter(type(value)).dump_json(value, exclude_none=True)


def encode_plain(value: Any) -> Any:
    """The same as `encode`, as plain Python values ready for a JSON or YAML writer."""
    return _adapter(type(value)).dump_python(value, mode="json", exclude_none=True)


def decode(kind: type[T], raw: bytes | str) -> T:
    """Bytes back into `kind`.

    Raises:
        BadInput: naming the first field that is wrong.
    """
    try:
        if kind in _upgrades:
            return _decode_upgraded(kind, raw, _upgrades[kind])  # type: ignore[no-any-return]
        return _adapter(kind).validate_json(raw)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise BadInput(f"{getattr(kind, '__name__', kind)}: {where}: {first['msg']}") from error


def _decode_upgraded(kind: Any, raw: bytes | str, upgrade: _Upgrade) -> Any:
    """Nearly all documents are of today's form: only what is not is read twice."""
    fault: ValidationError | None = None
    try:
        value = _adapter(kind).validate_json(raw)
        if value.schema == upgrade.schema:
            return value
    except ValidationError as error:
        fault = error
    try:
        document = from_json(raw)
    except ValueError:
        document = None
    if not isinstance(document, dict) or (fault and document.get("schema") == upgrade.schema):
        raise fault or BadInput(f"{getattr(kind, '__name__', kind)}: no document")
    return _adapter(kind).validate_python(upgrade.upgraded(document))
