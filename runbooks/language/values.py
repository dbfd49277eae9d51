"""Values in a runbook: plain ones within bounds, or expressions that are evaluated when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from runbooks.language.cel_syntax import CelFault
from runbooks.language.conditions import condition


class StrictModel(BaseModel):
    """Base of everything in a runbook's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _compiled(source: str) -> str:
    try:
        condition(source)
    except CelFault as error:
        place = {"what": str(error), "line": error.line, "column": error.column}
        raise PydanticCustomError("cel", "{what}", place) from error
    return source


Cel = Annotated[str, AfterValidator(_compiled)]
Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class Computed(StrictModel):
    """`{cel: …}`: an expression over `parameters` and `incident`, evaluated when the plan is made."""

    cel: Cel


def _branch(value: object) -> str:
    return "computed" if isinstance(value, Computed | Asks | Mapping) else "plain"


def _one_value(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool | Mapping | Computed):
        raise PydanticCustomError("value", "{what}", {"what": "expected one plain value or {cel: …}"})
    return value


_Given = Discriminator(_branch)
_Computed = Annotated[Computed, Tag("computed")]

Deadline = Annotated[Annotated[float, Field(gt=0, le=7 * 86400), Tag("plain")] | _Computed, _Given]
Pause = Annotated[Annotated[float, Field(gt=0, le=86400), Tag("plain")] | _Computed, _Given]
Rest = Annotated[Annotated[float, Field(ge=0, le=86400), Tag("plain")] | _Computed, _Given]
Factor = Annotated[Annotated[float, Field(ge=1, le=10), Tag("plain")] | _Computed, _Given]
Attempts = Annotated[Annotated[int, Field(ge=1, le=1000), Tag("plain")] | _Computed, _Given]
Size = Annotated[Annotated[int, Field(ge=1, le=100), Tag("plain")] | _Computed, _Given]
Param = Annotated[
    Annotated[str | int | float | bool, Tag("plain")] | _Computed, _Given, BeforeValidator(_one_value)
]
Params = Mapping[str, Param]


class RetryPolicy(StrictModel):
    """When a failed call is repeated."""

    attempts: Attempts | None = Field(None, description="calls at most; none for the deadline alone")
    first_s: Pause = 1.0
    factor: Factor = 2.0
    longest_s: Pause = 60.0


class Waves(StrictModel):
    """`size` targets at a time; the next wave starts `pause_s` after the previous one has succeeded."""

    size: Size
    pause_s: Rest = 0.0


class Asks(StrictModel):
    """Whose approval a step needs, and of how many people."""

    group: str = Field("", max_length=63, description="a name of responder.approval_groups")
    quorum: int = Field(1, ge=1, le=10)


Approval = Annotated[Annotated[bool, Tag("plain")] | Annotated[Asks, Tag("computed")], _Given]


class Escalate(StrictModel):
    """The next escalation step: started when this runbook has run so often for the same entity, or failed with `escalate`."""

    to: Id
    after: int = Field(1, ge=1, le=100)
    within_s: float = Field(86400.0, gt=0, le=90 * 86400)
    per: Literal["gpu", "node", "job"] = "gpu"


class StepChange(StrictModel):
    """What an override or an include may change in one step. Of `params`, `retry` and `waves` only the given keys change."""

    deadline_s: Deadline | None = None
    params: Params | None = None
    retry: RetryPolicy | None = None
    waves: Mapping[Literal["size", "pause_s"], Any] | None = None
    approval: Approval | None = None
    on_failure: Literal["stop", "continue", "escalate", "undo"] | None = None
    describe: str | None = None


class Include(StrictModel):
    """In place of a step: the steps of a fragment."""

    include: Id
    revision: int | None = Field(None, ge=1, description="the fragment's; any other is refused")
    steps: Mapping[Id, StepChange] = Field(default_factory=dict, description="changes to its steps here")
