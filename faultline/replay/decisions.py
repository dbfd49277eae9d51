"""What was decided about each incident, in one flat value: by a replay, or by production as its topics hold it.

Both are read by the same rules, so that they can be compared (`difference`). A replay acts on nothing; what its steps and pages
would be is told for the mode that each runbook has here (`ceilings`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from faultline.drawings.milestones import milestones
from faultline.replay.due_pages import Page, due_page, recorded_pages
from faultline.replay.replay import Replayed
from faultline.report.cost import cost_of
from runbooks.engine.guardrails.evidence import APPROVE_MODE
from runbooks.language.schema import Runbook
from runbooks.language.select import select
from streams.config.settings import ResponderSettings
from streams.correlate.policy.rules import meaning
from streams.model.incident import Incident
from streams.model.run import Mode, PlannedStep, Run, RunOutcome, StepRecord, StepState, stricter
from streams.model.thread import Thread

_ASKS = ("refused", "needs_approval")
_NOT_REACHED = (StepState.PENDING, StepState.SKIPPED, StepState.CANCELLED)


@dataclass(frozen=True, slots=True)
class DecidedStep:
    """One step that was decided. `verdict` is `would` (or was) done, `needs_approval` or `refused`."""

    runbook: str
    step: str
    action: str
    target: str
    destructive: bool
    verdict: str
    reason: str
    details: tuple[tuple[str, str], ...] = ()
    """How it is done: its parameters, deadline, what follows from a failure, who approves. By name."""

    @property
    def guardrail(self) -> str:
        """The guardrail that stopped it or asks; empty where none did."""
        name, colon, _ = self.reason.partition(": ")
        return name if colon and self.verdict in _ASKS else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about one incident. Times are UTC; `gpu_hours` and `replayed` are those of `faultline report`."""

    incident: str
    cluster: str
    family: str
    root: str
    root_key: str
    certainty: str
    severity: str
    state: str
    merged_into: str
    title: str
    reason: str
    rule: str
    """The rule that chose the root cause; empty where no candidate is marked as chosen."""
    rule_means: str
    fault_at: datetime
    opened_at: datetime
    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    evidence: frozenset[str]
    """Coordinates of the records that it was decided by."""
    runbooks: tuple[str, ...]
    """Those that ran for it, in their order."""
    runbook_why: str
    """Why the first was chosen, or why none was."""
    mode: str
    """The most permissive mode that they have here; empty without one."""
    steps: tuple[DecidedStep, ...]
    page: Page | None
    gpu_hours: float | None
    """GPUs of the stopped jobs × hours without progress; None where it is not known how many GPUs they have."""
    replayed: float | None
    """GPU-hours that they had worked since their last checkpoints; None as soon as one of them reported none."""

    @property
    def tickets(self) -> tuple[DecidedStep, ...]:
        """The tickets that would be opened, or were."""
        return tuple(step for step in self.steps if step.action == "open_ticket" and step.verdict == "would")

    @property
    def is_told(self) -> bool:
        """Whether anybody would be told of it: it is neither part of another one nor explained by it."""
        return self.state not in ("suppressed", "merged")


def ceilings(runbooks: Iterable[Runbook], responder: ResponderSettings) -> dict[str, Mode]:
    """How far each runbook goes in an installation with these settings, by its id."""
    return {book.id: stricter(book.mode, responder.mode) for book in runbooks}


def decisions_of(
    replayed: Replayed,
    modes: Mapping[str, Mode],
    until: datetime | None = None,
    *,
    runbooks: Sequence[Runbook] = (),
    page_shadow: bool = False,
) -> tuple[Decision, ...]:
    """What a replay decided, by fault time.

    Args:
        replayed: Its result.
        modes: How far each runbook would go (`ceilings`).
        until: When an open incident's costs are counted to, and its pages waited for; by default the last thing that happened.
        runbooks: Those of the replay; with them a decision tells why its runbook was chosen before the others.
        page_shadow: Whether a sink wants pages for plans in shadow mode.
    """
    now = until or _last(replayed.incidents.values(), replayed.runs)
    runs = _by_incident(replayed.runs)
    none = {entry.incident: entry.text for entry in replayed.timeline if entry.event == "run.none"}
    found = []
    for incident in replayed.incidents.values():
        mine = [run for run in runs[incident.id] if run.outcome is RunOutcome.SHADOWED]
        steps = tuple(_steps(mine, modes))
        mode = _mode(mine, modes)
        told = replayed.publications[incident.id].revisions > 0
        page = due_page(incident, mine, steps, mode, now, page_shadow=page_shadow) if told else None
        why = _why(incident, mine, runbooks) or none.get(incident.id, "")
        found.append(_decision(incident, mine, steps, mode, page, now, why))
    return in_time(found)


def decisions_of_topics(
    incidents: Iterable[Incident],
    runs: Iterable[Run],
    notices: Iterable[Thread] = (),
    until: datetime | None = None,
) -> tuple[Decision, ...]:
    """What production decided, from the last documents of its topics, by fault time. Pages are those that were sent."""
    incidents, runs = list(incidents), list(runs)
    now = until or _last(incidents, runs)
    mine = _by_incident(runs)
    pages = recorded_pages(notices)
    found = []
    for incident in incidents:
        own = mine[incident.id]
        steps = tuple(_steps(own, {}))
        found.append(_decision(incident, own, steps, _mode(own, {}), pages.get(incident.id), now))
    return in_time(found)


def in_time(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Decisions by the time of their faults."""
    return tuple(sorted(decisions, key=lambda one: (one.fault_at, one.incident)))


def _decision(
    incident: Incident,
    runs: Sequence[Run],
    steps: tuple[DecidedStep, ...],
    mode: Mode | None,
    page: Page | None,
    now: datetime,
    why: str = "",
) -> Decision:
    chosen = next((one.rule for one in incident.candidates if one.chosen), "")
    cost = cost_of(incident, runs, milestones(incident, runs), {}, now)
    return Decision(
        incident=incident.id,
        cluster=incident.cluster,
        family=incident.family,
        root=str(incident.root),
        root_key=incident.root.key,
        certainty=incident.certainty.value,
        severity=incident.severity.value,
        state=incident.state.value,
        merged_into=incident.merged_into or "",
        title=incident.title,
        reason=incident.reason,
        rule=chosen,
        rule_means=meaning(chosen),
        fault_at=incident.fault_at,
        opened_at=incident.opened_at,
        jobs=tuple(map(str, incident.jobs)),
        nodes=incident.nodes,
        evidence=frozenset(line.coordinates for proof in incident.proofs for line in proof.evidence),
        runbooks=tuple(dict.fromkeys(run.plan.runbook for run in runs)),
        runbook_why=why or "; ".join(dict.fromkeys(run.plan.why for run in runs if run.plan.why)),
        mode=mode.value if mode is not None else "",
        steps=steps,
        page=page,
        gpu_hours=cost.lost,
        replayed=cost.replayed,
    )


def _why(incident: Incident, runs: Sequence[Run], runbooks: Sequence[Runbook]) -> str:
    """The reason of the choice, where it is still the same by the incident's last revision."""
    choice = select(incident, runbooks) if runs and runbooks else None
    return (
        choice.why
        if choice is not None and choice.runbook and choice.runbook.id == runs[0].plan.runbook
        else ""
    )


def _steps(runs: Iterable[Run], modes: Mapping[str, Mode]) -> Iterator[DecidedStep]:
    for run in runs:
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if planned.target is None or not (verdict := _verdict(run, planned, record)):
                continue
            reason = record.reason
            if verdict == "would" and planned.destructive and modes.get(run.plan.runbook) is Mode.APPROVE:
                # A replay plans in shadow mode, where nothing asks for it; the responder would.
                verdict, reason = "needs_approval", str(APPROVE_MODE)
            yield _step(run, planned, verdict, reason)


def _verdict(run: Run, planned: PlannedStep, record: StepRecord) -> str:
    """The verdict of the guardrails; a step that an acting run took was allowed, whatever became of it.

    A question of the runbook stays one that people are asked, whether they answered or the incident was over before they did.
    """
    acts = run.plan.mode is not Mode.SHADOW
    if planned.action == "ask" and acts and record.state is not StepState.SKIPPED:
        return record.verdict or "needs_approval"
    acted = acts and record.state not in _NOT_REACHED
    return record.verdict or ("would" if acted else "")


def _step(run: Run, planned: PlannedStep, verdict: str, reason: str) -> DecidedStep:
    return DecidedStep(
        runbook=run.plan.runbook,
        step=planned.id,
        action=planned.action,
        target=str(planned.target),
        destructive=planned.destructive,
        verdict=verdict,
        reason=reason,
        details=tuple(sorted(_details(planned))),
    )


def _details(planned: PlannedStep) -> Iterator[tuple[str, str]]:
    yield from ((name, str(value)) for name, value in planned.params.items())
    yield "deadline", f"{planned.deadline_s:g} s"
    yield "on failure", planned.on_failure
    yield "undone with the incident", "yes" if planned.undo else "no"
    if planned.approval:
        yield "approval", f"{planned.quorum} of {planned.approval_group or 'any approver'}"
    if planned.wave:
        yield "wave", f"{planned.wave}, {planned.wave_pause_s:g} s after the one before"


def _mode(runs: Sequence[Run], modes: Mapping[str, Mode]) -> Mode | None:
    order = (Mode.SHADOW, Mode.APPROVE, Mode.AUTO)
    found = [modes.get(run.plan.runbook, run.plan.mode) for run in runs]
    return max(found, key=order.index, default=None)


def _by_incident(runs: Iterable[Run]) -> defaultdict[str, list[Run]]:
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.created_at, run.id)):
        found[run.incident].append(run)
    return found


def _last(incidents: Collection[Incident], runs: Collection[Run]) -> datetime:
    times = [*(one.updated_at for one in incidents), *(run.updated_at for run in runs)]
    return max(times, default=datetime.max)
