"""The schema of the chart's value `settings`, from the settings themselves: a misspelt key is refused by `helm install`, not by a
process that does not start; so is a secret, which would stand in a ConfigMap or a Deployment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from faultline.runtime.settings import Settings

_LISTS = (list, tuple, set, frozenset)
_NAME = "<NAME>"
"""Stands in a variable for the name under which a mapping has a row."""


def settings_schema() -> dict[str, Any]:
    """Every key that may be set, by section, in lists and mappings too. Values are checked by the processes, which know more."""
    return {"type": "object", **_section(Settings, "FAULTLINE")}


def variable_schema() -> dict[str, Any]:
    """One row of `extraEnv`: a secret comes by `valueFrom`, alone or as part of a section that is given as JSON."""
    secrets = sorted(_secrets(Settings, "FAULTLINE"))
    sections = {name.rsplit("__", count)[0] for name in secrets for count in range(1, name.count("__") + 1)}
    names = sorted({re.escape(name).replace(re.escape(_NAME), ".+") for name in {*secrets, *sections}})
    return {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
        "if": {"properties": {"name": {"pattern": f"^(?i:{'|'.join(names)})$"}}},
        "then": {
            "properties": {"value": {"const": "no value: put it into existingSecret, or use valueFrom"}}
        },
    }


def _section(model: type[BaseModel], variable: str) -> dict[str, Any]:
    return {
        "additionalProperties": False,
        "properties": {
            name: _value(field.annotation, _below(variable, name))
            for name, field in sorted(model.model_fields.items())
        },
    }


def _value(annotation: Any, variable: str) -> dict[str, Any]:
    kinds = list(_kinds(annotation))
    if SecretStr in kinds or any(SecretStr in _kinds(row) for row in _rows(kinds)):
        # Helm prints what the value must be.
        return {"const": f"no value: put it into existingSecret as {variable}"}
    sections = [kind for kind in kinds if _is_section(kind)]
    if len(sections) == 1 and set(kinds) <= {sections[0], NoneType}:
        return {
            "type": ["object", "null"] if NoneType in kinds else "object",
            **_section(sections[0], variable),
        }
    found: dict[str, Any] = {}
    for row in _rows(kinds):
        if below := _value(row, variable):
            found["items"] = below
    for row in _mapped(kinds):
        if below := _value(row, _below(variable, _NAME)):
            found["additionalProperties"] = below
    return found


def _secrets(annotation: Any, variable: str) -> Iterator[str]:
    """The variables that hold secrets. Of a list that is the list: its rows have no variables of their own."""
    kinds = list(_kinds(annotation))
    if SecretStr in kinds:
        yield variable
    for section in (kind for kind in kinds if _is_section(kind)):
        for name, field in section.model_fields.items():
            yield from _secrets(field.annotation, _below(variable, name))
    for row in _rows(kinds):
        if any(True for _ in _secrets(row, variable)):
            yield variable
    for row in _mapped(kinds):
        yield from _secrets(row, _below(variable, _NAME))


def _below(variable: str, name: str) -> str:
    return f"{variable}{'__' if variable != 'FAULTLINE' else '_'}{name.upper()}"


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _rows(kinds: list[Any]) -> Iterator[Any]:
    """What the lists among the kinds are of."""
    for kind in kinds:
        if get_origin(kind) in _LISTS:
            yield from (row for row in get_args(kind)[:1])


def _mapped(kinds: list[Any]) -> Iterator[Any]:
    """What the mappings among the kinds are to."""
    for kind in kinds:
        origin = get_origin(kind)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            yield get_args(kind)[1]


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation
