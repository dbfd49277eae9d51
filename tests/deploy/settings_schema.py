"""The schema of the chart's value `settings`, from the settings themselves: a misspelt key is refused by `helm install`, not by a
process that does not start; so is a secret, which would stand in a ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from faultline.runtime.settings import Settings


def settings_schema() -> dict[str, Any]:
    """Every key that may be set, by section. Values are checked by the processes, which know more of them."""
    return _section(Settings, "FAULTLINE")


def _section(model: type[BaseModel], variable: str) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {
            name: _value(
                field.annotation, f"{variable}_{'_' if variable != 'FAULTLINE' else ''}{name.upper()}"
            )
            for name, field in sorted(model.model_fields.items())
        },
    }


def _value(annotation: Any, variable: str) -> dict[str, Any]:
    kinds = list(_kinds(annotation))
    if SecretStr in kinds:
        # Helm prints what the value must be.
        return {"const": f"no value: put it into existingSecret as {variable}"}
    sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return (
        _section(sections[0], variable)
        if len(sections) == 1 and set(kinds) <= {sections[0], NoneType}
        else {}
    )


def _kinds(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation
