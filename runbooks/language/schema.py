"""The schema of a runbook: strict YAML, nothing in it is executed. Unknown keys are refused at their place.

id: gpu-off-bus
revision: 1
match: incident.family == "gpu_off_bus" && incident.root.node != ""
steps:
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from runbooks.language.cel_types import ANY, INTEGER, NUMBER, TEXT, YES_NO, Type, check, fits, one_of
from runbooks.language.conditions import INCIDENT, condition
from runbooks.language.parameters import Parameter, Parameters, names_of
from runbooks.language.values import (
    Approval,
    Cel,
    Computed,
    Deadline,
    Escalate,
    Id,
    Params,
    RetryPolicy,
    StrictModel,
    Waves,
)
from runbooks.language.yaml_source import CrossChecked, Fault, Path, faulty
from streams.model.run import Mode

DESTRUCTIVE = frozenset(
    {
        "cordon_node",
        "cordon_slow_nodes",
        "drain_node",
        "suspend_job",
        "reset_gpu",
        "reboot_node",
        "power_cycle_node",
        "replace_node",
        "apply_template",
    }
)
"""Actions that take a node or job out of service. The guardrails limit these; everything else always passes.

`apply_template` is one unless its step says `as: nothing`: see `is_destructive`."""

AFTER_CORDON = DESTRUCTIVE - {"cordon_node", "cordon_slow_nodes"}
"""Actions that come only after the bad node is cordoned: a pod stopped before could be scheduled there again.

What that protects is the start, not the stop: no job that we stopped is started while the node that made us stop it is open. So
a job may also be stopped to find that node: see `is_diagnosed_before_it_starts`."""

TICKETS = frozenset({"open_ticket", "comment_ticket", "close_ticket"})
"""Actions that are skipped where no connector carries them out."""

TICKET_DEADLINE_S = 86400.0
"""The default deadline of a ticket: it delays nothing else, and ticket systems may be down for hours."""

NODE_WORK = frozenset(
    {
        "reset_gpu",
        "reboot_node",
        "power_cycle_node",
        "validate_node",
        "replace_node",
        "apply_template",
        "diagnose_nodes",
    }
)
"""Actions that are left for manual handling, with all steps that need them, where no connector carries them out."""

DISRUPTIVE = frozenset({"reset_gpu", "reboot_node", "power_cycle_node", "replace_node", "apply_template"})
"""Node work that continues once it has started, whoever waits for it: until its end is known nothing may run on the node."""

OF_JOB_NODES = frozenset({"diagnose_nodes", "cordon_slow_nodes"})
"""Actions on all nodes of a job. The second one becomes a `cordon_node` for each node that the first one found slow."""

SPARES = frozenset({"release_spare", "return_spare"})
"""Actions on nodes in reserve. The plan names the nodes; where there are none to release, both are left out."""

IF_OFFERED = frozenset({"collect_evidence"})
"""Actions that are planned only where a connector carries them out, and something on the node is there to act on."""

ON_REQUEST = frozenset({"request_checkpoint"})
"""Actions that are planned only for jobs that declare how. No step on another job waits for them."""

UNDOABLE = frozenset({"cordon_node", "cordon_slow_nodes", "suspend_job", "release_spare", "apply_template"})
"""Actions that a runbook may mark with `undo`."""

INTERNAL = frozenset({"await_progress", "await_work", "notify", "ask"})
"""Actions of the engine itself: they change no other system."""

Action = Literal[
    "cordon_node", "cordon_slow_nodes", "uncordon_node", "drain_node", "request_checkpoint", "collect_evidence",
    "suspend_job", "resume_job", "verify_job",
    "reset_gpu", "reboot_node", "power_cycle_node", "validate_node", "replace_node", "apply_template", "diagnose_nodes",
    "release_spare", "return_spare",
    "open_ticket", "comment_ticket", "close_ticket", "await_progress", "await_work", "notify", "ask",
]  # fmt: skip

Selector = Literal[
    "root_node",
    "root_job",
    "jobs",
    "root_node_jobs",
    "victim_jobs",
    "unmovable_jobs",
    "job_nodes",
    "incident",
]
"""`jobs` are all jobs that the incident stopped and that can be suspended, `root_node_jobs` only those on the root's node,
`victim_jobs` only those that are not; `unmovable_jobs` are those that died or that nothing can move, and bare pods on that node.
`job_nodes` are all nodes of each job, as one step per job. Each may be several."""

SEVERAL = frozenset({"jobs", "root_node_jobs", "victim_jobs", "unmovable_jobs", "job_nodes"})
"""Selectors that give one planned step per target."""


PARAMS: Mapping[str, Mapping[str, Type]] = {
    "drain_node": {
        "only": one_of("gpu", "all"), "bare": YES_NO, "protected": YES_NO,
        "local_data": one_of("keep", "scratch", "all"), "dead_node": YES_NO, "fenced": YES_NO, "scope": one_of("node", "gpu"),
        "device_taint": one_of("none", "NoSchedule", "NoExecute"),
    },
    "open_ticket": {"summary": TEXT, "text": TEXT},
    "comment_ticket": {"text": TEXT, "ticket": TEXT},
    "close_ticket": {"text": TEXT, "ticket": TEXT},
    "await_progress": {"settle_s": NUMBER},
    "release_spare": {}, "return_spare": {},
    "cordon_node": {}, "cordon_slow_nodes": {}, "uncordon_node": {}, "request_checkpoint": {},
    "collect_evidence": {}, "suspend_job": {},
    "resume_job": {"avoid": TEXT}, "verify_job": {}, "notify": {}, "ask": {},
    "await_work": {},
    "diagnose_nodes": {},
    "power_cycle_node": {"leave_off": YES_NO},
}  # fmt: skip
"""The parameters of each action. The connector of an action that is not here checks them when it is called: a template has
its own besides `template` and `as`."""


TEMPLATE_CLASSES = frozenset({"nothing", "close", "move", "reset", "reboot", "replace"})
"""What `as` of an `apply_template` may say: the guardrails and approvals count the step as that."""


def is_destructive(action: str, params: Mapping[str, object]) -> bool:
    """Whether a step takes something out of service. A template counts as what the runbook says; where it does not, it does."""
    return action in DESTRUCTIVE and not (action == "apply_template" and params.get("as") == "nothing")


class Compensate(StrictModel):
    """An action on the same target that rolls the step back in place of the connector's own undo."""

    action: Action
    params: Params = Field(default_factory=dict)


class Step(StrictModel):
    """One typed action. A step whose target is several jobs becomes one planned step per job."""

    id: Id
    action: Action
    target: Selector
    params: Params = Field(default_factory=dict)
    needs: tuple[Id, ...] = ()
    when: Cel | None = None
    approval: Approval = False
    deadline_s: Deadline = Field(
        default_factory=lambda given: TICKET_DEADLINE_S if given.get("action") in TICKETS else 900.0,
        description="when not given: 86400 for a ticket, else 900",
    )
    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    waves: Waves | None = None
    on_failure: Literal["stop", "continue", "escalate", "undo"] = "stop"
    undo: bool = False
    compensate: Compensate | None = None
    describe: str = Field("", max_length=300)


class Runbook(StrictModel, CrossChecked):
    """The steps against one kind of incident. Of those that match, the highest priority is taken, then the most specific."""

    id: Id
    revision: int = Field(ge=1, lt=10**9)
    description: str = Field(min_length=10)
    owner: str
    mode: Mode
    match: Cel
    priority: int = Field(0, ge=0, le=1000)
    parameters: Parameters = Field(default_factory=dict)
    escalation: Escalate | None = None
    only_with: Action | None = Field(
        None, description="as an escalation step it is passed over where nothing carries this action out"
    )
    steps: tuple[Step, ...] = Field(min_length=1, max_length=30)

    @model_validator(mode="after")
    def _cross_check(self) -> Self:
        steps = list(enumerate(self.steps))
        faults = [
            *_order_faults(steps, escalates=self.escalation is not None),
            *_type_faults(self.match, steps, names_of(self.parameters)),
        ]
        if faults:
            raise faulty(faults)
        return self

    @classmethod
    def other_faults(cls, value: Mapping[str, Any], invalid: Sequence[Path]) -> Iterator[Fault]:
        """The faults between steps and expressions that are valid by themselves."""
        wrong = _InvalidPaths(invalid)
        raw = value.get("steps")
        raw_steps = raw if isinstance(raw, list) else []
        steps = [(number, _step(item, number, wrong)) for number, item in enumerate(raw_steps)]
        yield from _order_faults(steps, escalates=bool(value.get("escalation")))
        declared = value.get("parameters")
        names = names_of({})
        if isinstance(declared, dict):
            valid = {
                str(name): Parameter.model_validate(one)
                for name, one in declared.items()
                if not wrong.touches(("parameters", name))
            }
            names = names_of(valid, invalid=frozenset(map(str, declared)) - valid.keys())
        match = value.get("match")
        known = match if isinstance(match, str) and not wrong.touches(("match",)) else None
        yield from _type_faults(known, [(n, s) for n, s in steps if isinstance(s, Step)], names)


@dataclass(frozen=True, slots=True)
class InvalidStep:
    """A step that is invalid by itself. Its id may be known, else it is empty."""

    id: str


def _step(item: Any, number: int, wrong: _InvalidPaths) -> Step | InvalidStep:
    if not wrong.touches(("steps", number)):
        return Step.model_validate(item)
    named = isinstance(item, dict) and not wrong.touches(("steps", number, "id"))
    return InvalidStep(str(item["id"]) if named else "")


class _InvalidPaths:
    """Paths at which something is wrong. A hostile document has thousands of them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._at = set(paths)
        self._above = {path[:length] for path in paths for length in range(1, len(path) + 1)}

    def touches(self, path: Path) -> bool:
        """Whether a fault lies at a path, beneath it or above it."""
        return path in self._above or any(path[:length] in self._at for length in range(1, len(path)))


def expressions(runbook: Runbook) -> Iterator[tuple[Path, str, Type]]:
    """Every expression of a runbook with its path and expected type."""
    yield from _expressions(runbook.match, enumerate(runbook.steps))


def _expressions(match: str | None, steps: Iterable[tuple[int, Step]]) -> Iterator[tuple[Path, str, Type]]:
    if match is not None:
        yield ("match",), match, YES_NO
    for number, step in steps:
        here: Path = ("steps", number)
        if step.when is not None:
            yield (*here, "when"), step.when, YES_NO
        for path, source, wanted in computed(step):
            yield (*here, *path, "cel"), source, wanted


def computed(step: Step) -> Iterator[tuple[Path, str, Type]]:
    """The values of a step that are computed when the plan is made: path, expression, expected type."""
    retry, waves = step.retry, step.waves
    values: list[tuple[Path, object, Type]] = [
        (("deadline_s",), step.deadline_s, NUMBER),
        (("retry", "attempts"), retry.attempts, INTEGER),
        (("retry", "first_s"), retry.first_s, NUMBER),
        (("retry", "factor"), retry.factor, NUMBER),
        (("retry", "longest_s"), retry.longest_s, NUMBER),
        (("waves", "size"), waves and waves.size, INTEGER),
        (("waves", "pause_s"), waves and waves.pause_s, NUMBER),
        *given(step),
    ]
    for path, value, wanted in values:
        if isinstance(value, Computed):
            yield path, value.cel, wanted


def given(step: Step) -> Iterator[tuple[Path, object, Type]]:
    """The parameters of a step's action and of its compensation, each with its expected type."""
    for name, value in step.params.items():
        yield ("params", name), value, PARAMS.get(step.action, {}).get(name, ANY)
    if (back := step.compensate) is not None:
        for name, value in back.params.items():
            yield ("compensate", "params", name), value, PARAMS.get(back.action, {}).get(name, ANY)


def _type_faults(
    match: str | None, steps: Sequence[tuple[int, Step]], names: Mapping[str, Type]
) -> Iterator[Fault]:
    for path, source, wanted in _expressions(match, steps):
        found = check(condition(source).tree, {"incident": INCIDENT} if path == ("match",) else names)
        yield from ((path, str(fault), fault.line, fault.column) for fault in found.faults)
        if not found.faults and not _serves(found.type, wanted):
            yield path, f"expected {wanted}, this is {found.type}", 1, 1
    for number, step in steps:
        for path, value, wanted in given(step):
            action = step.compensate.action if path[0] == "compensate" and step.compensate else step.action
            known = PARAMS.get(action)
            if known is not None and path[-1] not in known:
                what = f"{action} takes {', '.join(sorted(known)) or 'no parameters'}"
                yield ("steps", number, *path), f"no such parameter; {what}", 0, 0
            elif not isinstance(value, Computed) and (wrong := unlike(value, wanted)):
                yield ("steps", number, *path), wrong, 0, 0


def _serves(given: Type, wanted: Type) -> bool:
    return fits(given, wanted) or (wanted.name == NUMBER.name and given.name == INTEGER.name)


def unlike(value: object, wanted: Type) -> str:
    """Why a plain value is not of the expected type; empty when it is."""
    kinds = ((bool, YES_NO), (int, INTEGER), (float, NUMBER), (str, TEXT))
    kind = next(of for python, of in kinds if isinstance(value, python))
    if not _serves(kind, wanted):
        return f"expected {wanted}, this is {kind}"
    if wanted.words and value not in wanted.words:
        return f"known are {', '.join(sorted(wanted.words))}"
    return ""


def _order_faults(steps: Sequence[tuple[int, Step | InvalidStep]], *, escalates: bool) -> Iterator[Fault]:
    """Faults between steps: twice the same id, needs that no earlier step meets, nothing cordoned before."""
    whole: dict[str, Step | InvalidStep] = {}
    for _, step in steps:
        whole.setdefault(step.id, step)
    seen: dict[str, Step | InvalidStep] = {}
    for number, step in steps:
        if isinstance(step, Step):
            for key, what in _faults_of(step, seen, escalates=escalates):
                yield ("steps", number, key), what, 0, 0
            if step.action == "suspend_job" and (what := _stopped_too_early(step, seen, whole)):
                yield ("steps", number, "needs"), what, 0, 0
        seen.setdefault(step.id, step)


def _stopped_too_early(
    step: Step, seen: Mapping[str, Step | InvalidStep], whole: Mapping[str, Step | InvalidStep]
) -> str:
    """Why a job must not be stopped here: no node is closed yet, and it could start again before the bad one is found and
    closed. Empty where it may be."""
    if not {*step.needs} <= seen.keys() or _after_cordon(step, seen):
        return ""
    later = {name: one for name, one in whole.items() if name not in seen}
    if "" in whole or is_diagnosed_before_it_starts(step, later):
        return ""
    return f"{_open_node(step)}, or be followed by diagnose_nodes and cordon_slow_nodes before any resume_job"


def is_diagnosed_before_it_starts(stop: Step, steps: Mapping[str, Step | InvalidStep]) -> bool:
    """Whether the jobs that a step stops start again only after all their nodes were measured, and the slow ones were closed.

    `steps` are those from that step on. An invalid one counts as one that does so.
    """
    after = [one for one in steps.values() if isinstance(one, Step) and stop.id in all_needs(one, steps)]
    closing = {
        one.id
        for one in after
        if one.action == "cordon_slow_nodes"
        and any(found.action == "diagnose_nodes" and found in after for found in _needed(one, steps))
    }
    closing |= {one.id for one in steps.values() if isinstance(one, InvalidStep)}
    starting = [one for one in steps.values() if isinstance(one, Step) and one.action == "resume_job"]
    return bool(closing) and all(closing & all_needs(one, steps) for one in starting)


def _open_node(step: Step) -> str:
    return f"step {step.id} ({step.action}) must need a cordon_node step that stops the run when it fails"


def _faults_of(
    step: Step, seen: Mapping[str, Step | InvalidStep], *, escalates: bool
) -> Iterator[tuple[str, str]]:
    if step.id in seen:
        yield "id", f"step id {step.id} is used twice"
    # Where the id of an earlier step is not known, it may be any.
    missing = [need for need in step.needs if need not in seen] if "" not in seen else []
    for need in missing:
        yield "needs", f"step {step.id} needs {need}, which is no earlier step"
    if (step.action in OF_JOB_NODES) != (step.target == "job_nodes"):
        yield "target", "job_nodes is the target of diagnose_nodes and cordon_slow_nodes, and of nothing else"
    if step.action in OF_JOB_NODES and step.on_failure == "continue":
        yield (
            "on_failure",
            f"{step.action} decides where a job may start again: the run cannot go on without it",
        )
    if step.action == "cordon_slow_nodes" and not missing and not _needs_action(step, seen, "diagnose_nodes"):
        yield "needs", f"step {step.id} must need the diagnose_nodes step that finds the slow nodes"
    if step.action == "apply_template":
        yield from _template_faults(step)
    closes = step.action == "apply_template" and step.params.get("as") in ("nothing", "close")
    if (
        step.action in AFTER_CORDON - {"suspend_job"}
        and not closes
        and not missing
        and not _after_cordon(step, seen)
    ):
        yield "needs", _open_node(step)
    back = step.compensate
    if step.undo and step.action not in UNDOABLE and back is None:
        yield "undo", f"{step.action} cannot be undone"
    if back is not None and not step.undo:
        yield "compensate", "needs undo: true on the step"
    if back is not None and back.action in DESTRUCTIVE | INTERNAL:
        yield "compensate", f"{back.action} does not roll anything back"
    if step.waves is not None and step.target not in SEVERAL:
        yield "waves", f"{step.target} is a single target"
    if step.on_failure == "escalate" and not escalates:
        yield "on_failure", "the runbook has no escalation"


def _template_faults(step: Step) -> Iterator[tuple[str, str]]:
    """A template is named in the runbook, and so is what it counts as: neither follows from an incident."""
    if not isinstance(step.params.get("template"), str):
        yield "params", "apply_template needs the name of a template: params.template"
    if step.params.get("as") not in TEMPLATE_CLASSES:
        yield (
            "params",
            f"apply_template needs params.as, what it counts as: {', '.join(sorted(TEMPLATE_CLASSES))}",
        )


def _after_cordon(step: Step, seen: Mapping[str, Step | InvalidStep]) -> bool:
    """Whether the step waits for a cordon, or may do so: an invalid step counts as one."""
    needs = all_needs(step, seen)
    if "" in seen and not needs <= seen.keys():
        return True
    return any(_may_cordon(seen[name]) for name in needs & seen.keys())


def _needed(step: Step, seen: Mapping[str, Step | InvalidStep]) -> list[Step]:
    needed = (seen.get(name) for name in all_needs(step, seen))
    return [one for one in needed if isinstance(one, Step)]


def _needs_action(step: Step, seen: Mapping[str, Step | InvalidStep], action: str) -> bool:
    """Whether the step needs one with this action, or may do so: an invalid step counts as one."""
    found = [seen.get(name) for name in all_needs(step, seen)]
    return any(isinstance(one, InvalidStep) or (one is not None and one.action == action) for one in found)


def all_needs(step: Step, steps: Mapping[str, Step | InvalidStep]) -> set[str]:
    """Ids of all steps that this one needs, directly or through others; ids that are not among `steps` as well."""
    reached, waiting = set[str](), list(step.needs)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            found = steps.get(name)
            waiting += found.needs if isinstance(found, Step) else ()
    return reached


def _may_cordon(step: Step | InvalidStep) -> bool:
    return isinstance(step, InvalidStep) or (step.action == "cordon_node" and step.on_failure != "continue")
