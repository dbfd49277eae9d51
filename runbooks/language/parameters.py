"""Parameters of a runbook: the numbers and choices that an installation may change, with their type and bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from runbooks.language.cel_types import ANY, INTEGER, NUMBER, TEXT, YES_NO, Type, record
from runbooks.language.conditions import INCIDENT, MAX_TEXT, Plain
from runbooks.language.values import StrictModel
from runbooks.language.yaml_source import faulty

ParameterType = Literal["number", "integer", "text", "yes_no"]

TYPES: Mapping[ParameterType, Type] = {"number": NUMBER, "integer": INTEGER, "text": TEXT, "yes_no": YES_NO}


Value = StrictStr | StrictBool | StrictInt | StrictFloat
"""A plain value as in YAML: `true` is no number, and `"3"` is text."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class Parameter(StrictModel):
    """One of the values that expressions see as `parameters.NAME`."""

    type: ParameterType
    default: Value
    min: StrictInt | StrictFloat | None = Field(
        None, description="least value of a number, least length of a text"
    )
    max: StrictInt | StrictFloat | None = Field(
        None, description="greatest value, or greatest length of a text"
    )
    describe: str = Field("", max_length=300)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        wrong, key = self.wrong(self.default), "default"
        if self.type == "yes_no" and (self.min is not None or self.max is not None):
            wrong, key = "a yes or no has no bounds", "max" if self.min is None else "min"
        elif self.min is not None and self.max is not None and self.min > self.max:
            wrong, key = f"min {self.min} is above max {self.max}", "min"
        if wrong:
            raise faulty([((key,), wrong, 0, 0)])
        return self

    def wrong(self, value: Plain) -> str:
        """What is wrong with a value for this parameter; empty when nothing is."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        fits_type = {
            "number": is_number,
            "integer": is_number and isinstance(value, int),
            "text": isinstance(value, str),
            "yes_no": isinstance(value, bool),
        }
        if not fits_type[self.type]:
            return f"{value!r} is not {TYPES[self.type]}"
        measured = len(value) if isinstance(value, str) else value
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return f"{value} is beyond 64 bits"
        if self.min is not None and measured < self.min:
            return f"{value!r} is below {self.min}"
        if self.max is not None and measured > self.max:
            return f"{value!r} is above {self.max}"
        if isinstance(value, str) and len(value) > MAX_TEXT:
            return f"longer than {MAX_TEXT} characters"
        return ""

    @property
    def value(self) -> Plain:
        """The default in the type that expressions see: a `number` always has a fraction, however it is written."""
        return float(self.default) if self.type == "number" else self.default


Parameters = Annotated[Mapping[Name, Parameter], Field(max_length=40)]


def names_of(parameters: Mapping[str, Parameter], *, invalid: Collection[str] = ()) -> dict[str, Type]:
    """The names that expressions of a runbook can use. The type of parameters that are `invalid` is unknown."""
    return {
        "incident": INCIDENT,
        "parameters": record(
            **dict.fromkeys(invalid, ANY), **{name: TYPES[one.type] for name, one in parameters.items()}
        ),
    }


def values_of(parameters: Mapping[str, Parameter]) -> dict[str, Plain]:
    """The value of every parameter, by name."""
    return {name: one.value for name, one in sorted(parameters.items())}
