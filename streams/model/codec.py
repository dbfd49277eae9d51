"""Values to bytes and back. Every document on a Faultline topic goes through these two functions.

pydantic validates on the way in and gives errors that name the field; inside, values are plain frozen dataclasses.
Fields that are None are left out of the bytes. Unknown fields are ignored on the way in: an older reader must survive a
newer writer.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from streams.model.errors import BadInput

T = TypeVar("T")


_adapters: dict[Any, TypeAdapter[Any]] = {}


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
        return _adapter(kind).validate_json(raw)  # type: ignore[no-any-return]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise BadInput(f"{getattr(kind, '__name__', kind)}: {where}: {first['msg']}") from error
