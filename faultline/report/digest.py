"""What happened on a cluster over some days, as data: what `digest --format json` prints. Pure.

Incidents belong to the time in which they were opened. Every figure carries the ids of the incidents that made it. Merged ones
are counted, and left out of times and costs: they are part of another. Drills are left out of everything. Field names are
stable; null is what is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from faultline.drawings.milestones import Milestones, Wait, milestones, waits
from faultline.report.cost import Basis, Cost, cost_of
from faultline.report.figures import MEDIAN_FROM, Amount, Count, Times, amount_of, count_of, times_of
from faultline.report.incident_report import in_order, in_time
from faultline.report.repeat_offenders import Offender, offenders_of
from runbooks.engine.shadow_report import ShadowReport, shadow_report
from streams.model.conversation import TimelineEntry
from streams.model.counted import many
from streams.model.drill import is_drill
from streams.model.facts import NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.run import Mode, Run, RunOutcome

SCHEMA = 1
_OVERRULING = (
    "person.rejected",
    "person.stopped",
    "person.resolved",
    "person.hand_over",
    "person.handed_over",
)
"""Events by which a person decided against a run. Resolving an incident is one only where it ended a run."""


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """The incidents of one family."""

    family: str
    total: Count
    by_state: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class Speed:
    """How long it took, in seconds, from the fault unless it says otherwise."""

    detect: Times
    decide: Times
    """From notice to plan."""
    close: Times
    """Until a node was closed."""
    recover_automatic: Times
    """Until the job's first new step, or its pods running where it reports no progress: of what a run ended."""
    recover_by_people: Times
    """Until the incident ended: of what no run ended."""


@dataclass(frozen=True, slots=True)
class Saved:
    """GPU-hours saved by automation, against this cluster's own median time by people in the same days.

    `value` is None where that time is not known, and `why` says so. What was slower than people counts against it.
    """

    value: float | None
    by_people_s: float | None
    by_people: tuple[str, ...]
    incidents: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step that waited for a person."""

    incident: str
    step: str
    since: datetime
    waited_s: float
    by: str
    outcome: str
    """`approved`, `rejected`, `no answer` or `still waiting`."""


@dataclass(frozen=True, slots=True)
class Overruled:
    """What a person decided against automation."""

    at: datetime
    incident: str
    by: str
    what: str


@dataclass(frozen=True, slots=True)
class ShadowFigures:
    """What shadow-mode runs would have done, compared with what people did (`faultline shadow report` has each)."""

    by_agreement: Mapping[str, Count]
    agreed_share: float | None
    minutes_saved_median: float | None
    gpu_hours_saved: Amount
    kept_in_service: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One incident in a line."""

    incident: str
    opened_at: datetime
    family: str
    root: str
    state: str
    handled_by: str
    """`automation`, `people`, `merged`, or empty while it is open."""
    without_progress_s: float | None
    gpu_hours_lost: float | None
    title: str


@dataclass(frozen=True, slots=True)
class Digest:
    """Everything that is reported of a cluster's days."""

    schema: int
    cluster: str
    since: datetime
    until: datetime
    opened: Count
    still_open: Count
    """Of those opened in this time."""
    open_from_before: Count
    families: tuple[FamilyRow, ...]
    speed: Speed
    gpu_hours_lost: Amount
    gpu_hours_out_of_service: Amount
    gpu_hours_saved: Saved
    repeat_offenders: tuple[Offender, ...]
    shadow: ShadowFigures
    waited: Times
    waits: tuple[Waiting, ...]
    overruled: tuple[Overruled, ...]
    incidents: tuple[IncidentRow, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """One incident with what follows from its documents."""

    incident: Incident
    runs: Sequence[Run]
    clocks: Milestones
    cost: Cost
    waits: Sequence[Wait]
    handled_by: str


def digest_of(
    cluster: str,
    incidents: Mapping[str, Incident],
    runs: Sequence[Run],
    timeline: Sequence[TimelineEntry],
    nodes: Mapping[str, NodeFact],
    *,
    since: datetime,
    until: datetime,
) -> Digest:
    """The digest of one cluster between two times. The same documents give the same digest.

    Raises:
        BadInput: an `observed.*` entry of the timeline is not one of ours.
    """
    incidents = {name: one for name, one in incidents.items() if not is_drill(one)}
    runs = [run for run in in_order(runs) if run.incident in incidents]
    timeline = in_time(timeline)
    mine = sorted(
        (one for one in incidents.values() if since <= one.opened_at <= until),
        key=lambda one: (one.opened_at, one.id),
    )
    of_incident: dict[str, list[Run]] = {}
    for run in runs:
        of_incident.setdefault(run.incident, []).append(run)
    lines: dict[str, list[TimelineEntry]] = {}
    for entry in timeline:
        lines.setdefault(entry.incident, []).append(entry)
    cases = [
        _case(one, of_incident.get(one.id, []), lines.get(one.id, []), nodes, until)
        for one in mine
    ]  # fmt: skip
    whole = [case for case in cases if case.incident.state is not IncidentState.MERGED]
    # Work that people planned is not mended: it counts for no time to repair and makes no node an offender.
    faults = [case for case in whole if case.incident.family != IncidentFamily.PLANNED_WORK]
    earlier = [one for one in incidents.values() if one.opened_at < since and not one.state.is_over]
    waited = tuple(_waited(whole, until))
    return Digest(
        schema=SCHEMA,
        cluster=cluster,
        since=since,
        until=until,
        opened=count_of(one.id for one in mine),
        still_open=count_of(one.id for one in mine if not one.state.is_over),
        open_from_before=count_of(sorted(one.id for one in earlier)),
        families=tuple(_families(mine)),
        speed=_speed(faults),
        gpu_hours_lost=amount_of((case.incident.id, case.cost.lost) for case in whole),
        gpu_hours_out_of_service=amount_of(
            (case.incident.id, case.cost.out_of_service) for case in whole if case.cost.out_of_service_nodes
        ),
        gpu_hours_saved=_saved(faults),
        repeat_offenders=offenders_of(case.incident for case in faults),
        shadow=_shadow(shadow_report(runs, timeline, incidents, since=since, until=until)),
        waited=times_of((wait.incident, wait.waited_s) for wait in waited),
        waits=waited,
        overruled=tuple(_overruled(timeline, {case.incident.id: case for case in cases}, since, until)),
        incidents=tuple(map(_row, cases)),
    )


def _case(
    incident: Incident, runs: Sequence[Run], lines: Sequence[TimelineEntry], nodes: Mapping[str, NodeFact],
    now: datetime,
) -> _Case:  # fmt: skip
    clocks = milestones(incident, runs)
    cost = cost_of(incident, runs, clocks, nodes, now)
    return _Case(incident, runs, clocks, cost, waits(runs, lines), _handled_by(incident, runs))


def _handled_by(incident: Incident, runs: Sequence[Run]) -> str:
    if incident.state is IncidentState.MERGED:
        return "merged"
    if not incident.state.is_over:
        return ""
    ended = any(
        run.plan.mode is not Mode.SHADOW and run.outcome is RunOutcome.SUCCEEDED and not run.overruled
        for run in runs
    )
    return "automation" if ended else "people"


def _families(incidents: Sequence[Incident]) -> Iterator[FamilyRow]:
    families: dict[str, list[Incident]] = {}
    for incident in incidents:
        families.setdefault(incident.family, []).append(incident)
    for family, found in sorted(families.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        states: dict[str, list[str]] = {}
        for incident in found:
            states.setdefault(incident.state.value, []).append(incident.id)
        by_state = {state: count_of(ids) for state, ids in sorted(states.items())}
        yield FamilyRow(family, count_of(one.id for one in found), by_state)


def _speed(cases: Sequence[_Case]) -> Speed:
    return Speed(
        detect=times_of((c.incident.id, c.incident.detection_delay.total_seconds()) for c in cases),
        decide=times_of(
            (c.incident.id, max((c.clocks.decided - c.clocks.noticed).total_seconds(), 0.0))
            for c in cases
            if c.clocks.decided is not None
        ),
        close=times_of(
            (c.incident.id, (c.clocks.closed - c.clocks.fault).total_seconds())
            for c in cases
            if c.clocks.closed is not None
        ),
        recover_automatic=times_of(
            (c.incident.id, c.cost.without_progress_s)
            for c in cases
            if c.handled_by == "automation"
            and c.cost.basis in (Basis.FIRST_STEP, Basis.RUNNING)
            and c.cost.without_progress_s is not None
        ),
        recover_by_people=times_of(_by_people(cases)),
    )


def _by_people(cases: Sequence[_Case]) -> list[tuple[str, float]]:
    """From fault to end, of what stopped jobs and was ended without a run."""
    return [
        (c.incident.id, c.cost.without_progress_s)
        for c in cases
        if c.handled_by == "people" and c.cost.gpus and c.cost.without_progress_s is not None
    ]


def _saved(cases: Sequence[_Case]) -> Saved:
    automatic = [
        c
        for c in cases
        if c.handled_by == "automation" and c.cost.gpus and c.cost.basis in (Basis.FIRST_STEP, Basis.RUNNING)
    ]
    ids = tuple(c.incident.id for c in automatic)
    manual = _by_people(cases)
    people = tuple(name for name, _ in manual)
    if not automatic:
        return Saved(None, None, people, ids, "no run has brought a stopped job back in this time")
    if len(manual) < MEDIAN_FROM:
        why = f"people ended {many(len(manual), 'incident')} with stopped jobs in this time, and a median needs {MEDIAN_FROM}"
        return Saved(None, None, people, ids, why)
    usual = float(median(value for _, value in manual))
    value = sum((c.cost.gpus or 0) * (usual - (c.cost.without_progress_s or 0.0)) / 3600 for c in automatic)
    return Saved(value, usual, people, ids)


def _shadow(made: ShadowReport) -> ShadowFigures:
    groups: dict[str, list[str]] = {}
    for one in made.comparisons:
        groups.setdefault(one.agreement.name.lower(), []).append(one.run.incident)
    return ShadowFigures(
        by_agreement={name: count_of(ids) for name, ids in sorted(groups.items())},
        agreed_share=made.summary.agreed_share,
        minutes_saved_median=made.summary.minutes_saved_median,
        gpu_hours_saved=amount_of(
            (one.run.incident, one.gpu_hours) for one in made.comparisons if one.later_s is not None
        ),
        kept_in_service=made.summary.kept_in_service,
    )


def _waited(cases: Sequence[_Case], now: datetime) -> Iterator[Waiting]:
    found = [
        Waiting(
            case.incident.id, wait.step, wait.since, wait.length(now).total_seconds(), wait.by, _outcome(wait)
        )
        for case in cases
        for wait in case.waits
    ]
    yield from sorted(found, key=lambda one: (-one.waited_s, one.incident, one.step))


def _outcome(wait: Wait) -> str:
    if wait.until is None:
        return "still waiting"
    return {True: "approved", False: "rejected", None: "no answer"}[wait.approved]


def _overruled(
    timeline: Sequence[TimelineEntry], cases: Mapping[str, _Case], since: datetime, until: datetime
) -> Iterator[Overruled]:
    for entry in timeline:
        case = cases.get(entry.incident)
        if case is None or entry.event not in _OVERRULING or not since <= entry.at <= until:
            continue
        if entry.event != "person.resolved" or any(run.outcome is RunOutcome.CANCELLED for run in case.runs):
            yield Overruled(entry.at, entry.incident, entry.actor, entry.text)


def _row(case: _Case) -> IncidentRow:
    incident = case.incident
    return IncidentRow(
        incident.id, incident.opened_at, incident.family, str(incident.root), incident.state.value,
        case.handled_by, case.cost.without_progress_s, case.cost.lost, incident.title,
    )  # fmt: skip
