"""What shadow-mode runs would have done, compared with what operators did: the basis for switching to `auto`. Pure.

A run is compared with every action on its targets, and on the nodes and jobs of its incident, from shortly before the fault until
`window` after its decision. It is judged by the first verdict of its first destructive step: what operators do meanwhile changes
later verdicts (a node cordoned manually needs an approval before it is cordoned again).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from streams.model.clock import parse_rfc3339
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput
from streams.model.incident import Incident
from streams.model.run import Mode, PlannedStep, Run, RunOutcome, Target

WINDOW = timedelta(hours=4)
"""Operators' actions within this time after a run's decision are compared with it."""

LEAD = timedelta(minutes=15)
"""How long before the fault an action may be: clocks differ, and a person may be faster than the first log line."""

_CLOSES = frozenset({"node_cordoned", "node_tainted", "node_maintenance", "node_deleted", "node_replaced"})
_SAME: Mapping[str, frozenset[str]] = {
    "cordon_node": _CLOSES | {"node_drained"},
    "drain_node": frozenset({"node_drained", "node_deleted", "node_replaced"}),
    "suspend_job": frozenset({"job_suspended", "job_deleted", "job_restarted"}),
    "reset_gpu": frozenset({"node_rebooted"}),
    "reboot_node": frozenset({"node_rebooted"}),
    "power_cycle_node": frozenset({"node_rebooted"}),
    "replace_node": frozenset({"node_deleted", "node_replaced"}),
}
"""Actions of operators that amount to the same as a step."""

_TAKES = _CLOSES | {"node_drained", "node_rebooted", "job_suspended", "job_deleted", "job_restarted"}
"""Actions that take a node or job out of service, as an answer to a fault."""


class Agreement(StrEnum):
    """How a run and people compare."""

    SAME = "same action"
    NOTHING = "people did nothing"
    ELSE = "people did something else"
    ELSEWHERE = "people acted on a different node"
    REFUSED = "a guardrail would have refused"
    ASKS = "it would only have asked"
    EARLY = "too early to tell"


JUDGED = (Agreement.SAME, Agreement.NOTHING, Agreement.ELSE, Agreement.ELSEWHERE)
"""Those that say something about the decision; the share of `SAME` is counted among them."""


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """One observed action, as the timeline has it."""

    act: str
    target: Target
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ShadowStep:
    """One step that would have been taken. `verdict` is the first that it had: `would`, `needs_approval` or `refused`."""

    step: str
    action: str
    target: Target | None
    destructive: bool
    verdict: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Comparison:
    """One shadow-mode run and what operators did. `later_s` is how long after the run they did the same; negative: before it."""

    run: Run
    title: str
    root: str
    would: tuple[ShadowStep, ...]
    people: tuple[OperatorAction, ...]
    agreement: Agreement
    later_s: float | None = None
    gpu_hours: float = 0.0
    """GPU-hours idle between the run's decision and the operators' same action."""

    @property
    def closes(self) -> str:
        """The node that it would have cordoned; empty where none."""
        names = (
            w.target.name
            for w in self.would
            if w.action == "cordon_node" and w.target and w.verdict != "refused"
        )
        return next(names, "")


@dataclass(frozen=True, slots=True)
class Missed:
    """A node that operators acted on although no incident named it. `planned`: it was also put into maintenance."""

    node: str
    acts: tuple[OperatorAction, ...]
    planned: bool


@dataclass(frozen=True, slots=True)
class ShadowSummary:
    """The numbers to decide on `auto` by."""

    runs: int
    by_agreement: Mapping[str, int]
    judged: int
    agreed: int
    agreed_share: float | None
    """Among those judged; None when there are none."""
    minutes_saved: float
    minutes_saved_median: float | None
    gpu_hours_saved: float
    kept_in_service: tuple[str, ...]
    """Nodes that it would have cordoned and that operators kept in service."""
    missed: int
    missed_unplanned: int


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """Everything, oldest first."""

    since: datetime
    until: datetime
    comparisons: tuple[Comparison, ...]
    missed: tuple[Missed, ...]
    summary: ShadowSummary


def shadow_report(
    runs: Iterable[Run],
    timeline: Iterable[TimelineEntry],
    incidents: Mapping[str, Incident],
    *,
    since: datetime,
    until: datetime,
    window: timedelta = WINDOW,
) -> ShadowReport:
    """Compare the shadow-mode runs that began between `since` and `until` with what was observed.

    Raises:
        BadInput: an `observed.*` entry of the timeline is not one of ours.
    """
    entries = list(timeline)
    acts = _acts(entries)
    verdicts = _first_verdicts(entries)
    chosen = [
        r
        for r in runs
        if r.plan.mode is Mode.SHADOW
        and since <= r.created_at <= until
        and r.outcome is not RunOutcome.CANCELLED
    ]
    compared = tuple(
        _compare(run, incidents.get(run.incident), acts, verdicts, until, window)
        for run in sorted(chosen, key=lambda r: (r.created_at, r.id))
    )
    missed = _missed([a for a in acts if since <= a.at <= until], incidents.values(), until, window)
    return ShadowReport(since, until, compared, missed, _summary(compared, missed))


def _acts(entries: Iterable[TimelineEntry]) -> list[OperatorAction]:
    """Every action once, in the order of time: the timeline has it once for each incident."""
    found: dict[OperatorAction, None] = {}
    for entry in entries:
        about = entry.attributes
        if not entry.event.startswith("observed.") or entry.event == "observed.more":
            continue
        if not all(isinstance(about.get(name), str) for name in ("act", "kind", "name", "at")):
            raise BadInput(f"timeline entry {entry.event} of {entry.at} lacks act, kind, name or at")
        target = Target(str(about["kind"]), str(about["name"]), str(about.get("namespace", "")) or None)
        found[
            OperatorAction(
                str(about["act"]), target, parse_rfc3339(str(about["at"])), str(about.get("detail", ""))
            )
        ] = None
    return sorted(found, key=lambda seen: (seen.at, seen.target.key, seen.act))


def _first_verdicts(entries: Iterable[TimelineEntry]) -> dict[tuple[str, str], TimelineEntry]:
    """The first entry for each step of each shadow-mode run."""
    first: dict[tuple[str, str], TimelineEntry] = {}
    for entry in entries:
        if entry.event in ("step.would", "step.needs_approval", "step.refused"):
            key = (str(entry.attributes.get("run", "")), str(entry.attributes.get("step", "")))
            if key not in first or entry.at < first[key].at:
                first[key] = entry
    return first


def _compare(
    run: Run,
    incident: Incident | None,
    acts: Sequence[OperatorAction],
    verdicts: Mapping[tuple[str, str], TimelineEntry],
    until: datetime,
    window: timedelta,
) -> Comparison:
    would = tuple(w for planned in run.plan.steps if (w := _would(run, planned, verdicts)) is not None)
    begin = min(run.created_at, incident.fault_at if incident else run.created_at) - LEAD
    people = tuple(
        act for act in acts if begin <= act.at <= run.created_at + window and _concerns(act, run, incident)
    )
    about = (
        run,
        incident.title if incident else run.title,
        str(incident.root) if incident else "",
        would,
        people,
    )
    first = next((w for w in would if w.destructive and w.action in _SAME), None)
    if first is None or first.target is None:
        return Comparison(*about, Agreement.ASKS)
    if first.verdict == "refused":
        return Comparison(*about, Agreement.REFUSED)
    on_it = [act for act in people if act.target.key == first.target.key]
    same = next((act for act in on_it if act.act in _SAME[first.action]), None)
    if same is not None:
        later_s = (same.at - first.at).total_seconds()
        lost = incident.impact.gpu_hours_per_hour * max(0.0, later_s) / 3600 if incident else 0.0
        return Comparison(*about, Agreement.SAME, later_s, lost)
    answers = [act for act in people if act.act in _TAKES]
    if any(act.target.kind == "Node" and act.target.key != first.target.key for act in answers):
        return Comparison(*about, Agreement.ELSEWHERE)
    if answers:
        return Comparison(*about, Agreement.ELSE)
    return Comparison(*about, Agreement.EARLY if until < run.created_at + window else Agreement.NOTHING)


def _would(
    run: Run, planned: PlannedStep, verdicts: Mapping[tuple[str, str], TimelineEntry]
) -> ShadowStep | None:
    record, entry = run.step(planned.id), verdicts.get((run.id, planned.id))
    verdict = entry.event.removeprefix("step.") if entry is not None else record.verdict
    if not verdict:
        return None
    at = entry.at if entry is not None else record.started_at or run.created_at
    reason = record.reason if entry is None or record.verdict == verdict else entry.text
    return ShadowStep(planned.id, planned.action, planned.target, planned.destructive, verdict, reason, at)


def _concerns(act: OperatorAction, run: Run, incident: Incident | None) -> bool:
    if any(step.target is not None and step.target.key == act.target.key for step in run.plan.steps):
        return True
    if incident is None:
        return False
    if act.target.kind == "Node":
        return act.target.name == incident.root.node or act.target.name in incident.nodes
    return act.target.key in {job.key for job in incident.jobs}


def _missed(
    acts: Iterable[OperatorAction], incidents: Iterable[Incident], until: datetime, window: timedelta
) -> tuple[Missed, ...]:
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for incident in incidents:
        end = incident.closed_at + window if incident.closed_at else until
        for node in {*incident.nodes, incident.root.node or ""}:
            spans.setdefault(node, []).append((incident.fault_at - LEAD, end))
    by_node: dict[str, list[OperatorAction]] = {}
    for act in acts:
        known = any(begin <= act.at <= end for begin, end in spans.get(act.target.name, ()))
        if act.target.kind == "Node" and act.act in _TAKES and not known:
            by_node.setdefault(act.target.name, []).append(act)
    return tuple(
        Missed(node, tuple(seen), any(act.act == "node_maintenance" for act in seen))
        for node, seen in sorted(by_node.items(), key=lambda entry: (entry[1][0].at, entry[0]))
    )


def _summary(compared: Sequence[Comparison], missed: Sequence[Missed]) -> ShadowSummary:
    counts = Counter(c.agreement for c in compared)
    judged, agreed = sum(counts[a] for a in JUDGED), counts[Agreement.SAME]
    later = [max(0.0, c.later_s) / 60 for c in compared if c.later_s is not None]
    kept = [
        c.closes for c in compared if c.agreement in (Agreement.NOTHING, Agreement.ELSEWHERE) and c.closes
    ]
    return ShadowSummary(
        runs=len(compared),
        by_agreement={a.name.lower(): counts[a] for a in Agreement},
        judged=judged,
        agreed=agreed,
        agreed_share=agreed / judged if judged else None,
        minutes_saved=sum(later),
        minutes_saved_median=median(later) if later else None,
        gpu_hours_saved=sum(c.gpu_hours for c in compared),
        kept_in_service=tuple(dict.fromkeys(kept)),
        missed=len(missed),
        missed_unplanned=sum(not m.planned for m in missed),
    )
