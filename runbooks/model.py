"""What a runbook is: YAML, strict, without anything in it that executes. Unknown keys are refused at their place.

id: gpu-off-bus
revision: 1
match: incident.family == "gpu_off_bus" && incident.root.node != ""
steps:
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from runbooks.conditions import Condition
from streams.model.run import Mode

DESTRUCTIVE = frozenset({"cordon_node", "drain_node", "suspend_job", "reset_gpu", "reboot_node"})
"""Actions that take something away from somebody. Everything else always flows."""

ON_A_CLOSED_NODE = DESTRUCTIVE - {"cordon_node"}
"""Actions that come only after the bad node is closed: what is stopped or moved before could come back to it."""

TICKETS = frozenset({"open_ticket", "comment_ticket", "close_ticket"})
"""Actions that an installation may do without: they are skipped where nothing carries them out."""

TICKET_DEADLINE_S = 86400.0
"""How long a ticket is tried for when the runbook does not say: it holds up nothing, and ticket systems are down for hours."""

UNDOABLE = frozenset({"cordon_node", "suspend_job"})
"""Actions that a runbook may mark with `undo`."""

INTERNAL = frozenset({"await_progress", "notify", "ask"})
"""Actions of the engine itself: they change nothing outside."""

Action = Literal[
    "cordon_node", "uncordon_node", "drain_node", "suspend_job", "resume_job", "verify_job",
    "reset_gpu", "reboot_node", "validate_node",
    "open_ticket", "comment_ticket", "close_ticket", "await_progress", "notify", "ask",
]  # fmt: skip

Selector = Literal["root_node", "root_job", "jobs", "root_node_jobs", "incident"]
"""`jobs` are all the incident stopped, `root_node_jobs` only those placed on the root's node. Both may be several or none."""

SEVERAL = frozenset({"jobs", "root_node_jobs"})
"""Selectors that give a planned step for each of several targets."""


def _compiled(source: str) -> str:
    condition(source)
    return source


Cel = Annotated[str, AfterValidator(_compiled)]
Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


@lru_cache(maxsize=512)
def condition(source: str) -> Condition:
    """The compiled form of a condition. Raises ValueError when it is not CEL."""
    return Condition(source)


class Strict(BaseModel):
    """Base of everything in a runbook's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Params = Mapping[str, str | int | float | bool]


class RetryPolicy(Strict):
    """When a call that did not work is made again."""

    attempts: int | None = Field(
        None, ge=1, le=1000, description="calls at most; none for the deadline alone"
    )
    first_s: float = Field(1.0, gt=0, le=3600)
    factor: float = Field(2.0, ge=1, le=10)
    longest_s: float = Field(60.0, gt=0, le=86400)


class Waves(Strict):
    """Targets are taken `size` at a time; the next wave begins `pause_s` after the one before is over and well."""

    size: int = Field(ge=1, le=100)
    pause_s: float = Field(0.0, ge=0, le=86400)


class Compensate(Strict):
    """An ordinary action on the same target that takes the step back in place of the connector's own undo."""

    action: Action
    params: Params = Field(default_factory=dict)


class Asks(Strict):
    """Whose approval a step wants, and of how many people."""

    group: str = Field("", max_length=63, description="a name of responder.approval_groups")
    quorum: int = Field(1, ge=1, le=10)


class Escalate(Strict):
    """The next rung: which runbook is begun when this one has run so often for the same offender, or failed with `escalate`."""

    to: Id
    after: int = Field(1, ge=1, le=100)
    within_s: float = Field(86400.0, gt=0, le=90 * 86400)
    per: Literal["gpu", "node", "job"] = "gpu"


class Step(Strict):
    """One typed action. A step whose target is several jobs becomes one planned step per job."""

    id: Id
    action: Action
    target: Selector
    params: Params = Field(default_factory=dict)
    needs: tuple[Id, ...] = ()
    when: Cel | None = None
    approval: bool | Asks = False
    deadline_s: float = Field(
        default_factory=lambda given: TICKET_DEADLINE_S if given.get("action") in TICKETS else 900.0,
        gt=0,
        le=7 * 86400,
        description="when not given: 86400 for a ticket, else 900",
    )
    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    waves: Waves | None = None
    on_failure: Literal["stop", "continue", "escalate", "undo"] = "stop"
    undo: bool = False
    compensate: Compensate | None = None
    describe: str = Field("", max_length=300)


class Runbook(Strict):
    """What to do about one kind of incident. The highest priority that matches is taken, then the id decides."""

    id: Id
    revision: int = Field(ge=1)
    description: str = Field(min_length=10)
    owner: str
    mode: Mode
    match: Cel
    priority: int = Field(0, ge=0, le=1000)
    escalation: Escalate | None = None
    steps: tuple[Step, ...] = Field(min_length=1, max_length=30)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        seen: dict[str, Step] = {}
        for number, step in enumerate(self.steps):
            if step.id in seen:
                raise _fault(f"step {step.id} is there twice", number, "id")
            for need in step.needs:
                if need not in seen:
                    raise _fault(f"step {step.id} needs {need}, which is no earlier step", number, "needs")
            seen[step.id] = step
            if step.action in ON_A_CLOSED_NODE and not _after_closing(step, seen):
                what = f"step {step.id} ({step.action}) must need a cordon_node step that stops the run when it fails"
                raise _fault(what, number, "needs")
            if step.undo and step.action not in UNDOABLE and step.compensate is None:
                raise _fault(f"{step.action} cannot be taken back", number, "undo")
            if step.compensate is not None and not step.undo:
                raise _fault("it happens only where the step says undo: true", number, "compensate")
            if step.compensate is not None and step.compensate.action in DESTRUCTIVE | INTERNAL:
                what = f"{step.compensate.action} gives nothing back"
                raise _fault(what, number, "compensate")
            if step.waves is not None and step.target not in SEVERAL:
                raise _fault(f"{step.target} is one target", number, "waves")
            if step.on_failure == "escalate" and self.escalation is None:
                raise _fault("the runbook has no escalation", number, "on_failure")
        return self


def _fault(what: str, step: int, key: str) -> PydanticCustomError:
    """A fault between keys, with its place for the reader of the file."""
    return PydanticCustomError("runbook", "{what}", {"what": what, "at": ("steps", step, key)})


def _after_closing(step: Step, seen: Mapping[str, Step]) -> bool:
    """A job is acted on only after its bad node is closed, else it could come back to it."""
    reached, waiting = set[str](), list(step.needs)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += seen[name].needs
    return any(seen[n].action == "cordon_node" and seen[n].on_failure != "continue" for n in reached)
