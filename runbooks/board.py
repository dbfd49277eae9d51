"""Everything known of one partition: inventory, incidents and runs, and what has changed since the last commit. Pure.

The responder and the replay both work a board: they feed it, let it `advance`, and `collect` what has to be written and called.
Nothing it says may be acted on before the collected runs are committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from connectors.base import Outcome
from runbooks.blind import advance_blind, stand_in
from runbooks.controls import Changed, commanded
from runbooks.decisions import decided, may_be_superseded, meant, revised, superseded
from runbooks.desk import IN_THE_AIR, Call, Note, Report, Situation, Turn
from runbooks.escalation import climb, is_above
from runbooks.model import Runbook
from runbooks.outcomes import concluded, recover
from runbooks.plan import plan, tamer
from runbooks.releasing import Hold, choose, holds_of, node_of, release
from runbooks.run import advance, begin, due_at
from runbooks.select import select
from runbooks.standing import Standing
from runbooks.view import ClusterView
from streams.model.control import Control
from streams.model.conversation import CLUSTER_VERBS, Command, TimelineEntry, Verb
from streams.model.entity import Entity
from streams.model.incident import Incident, IncidentState
from streams.model.inventory import Fact
from streams.model.run import Mode, Plan, Run, run_id
from streams.model.settings import ResponderSettings
from streams.model.signal import MAX_BATCH, Severity, Signal, SignalBatch, signal

PROCESS = "responder"

KEEP_FINISHED = timedelta(days=30)
"""How long a finished run stays in the journal once its incident is over: it is read at every take-up."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be committed together, and the calls that may start after that."""

    runs: tuple[Run, ...] = ()
    gone: tuple[Run, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    signals: tuple[SignalBatch, ...] = ()
    calls: tuple[Call, ...] = ()
    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class _Pending:
    runs: dict[str, None] = field(default_factory=dict)
    gone: list[Run] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
    signals: defaultdict[str, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    calls: list[Call] = field(default_factory=list)
    controls: dict[str, None] = field(default_factory=dict)


class Board:
    """The state of one partition. `runs` are as last read or decided, committed or about to be."""

    def __init__(
        self,
        runbooks: Sequence[Runbook],
        policy: ResponderSettings,
        actions: frozenset[str],
        runs: Mapping[str, Run] | None = None,
    ) -> None:
        self._runbooks = runbooks
        self._books = {runbook.id: runbook for runbook in runbooks}
        self._policy = policy
        self._actions = actions
        self.runs: dict[str, Run] = dict(runs or {})
        self._by_incident: dict[str, list[str]] = {}
        for run in sorted(self.runs.values(), key=_age):
            self._by_incident.setdefault(run.incident, []).append(run.id)
        self.incidents: dict[str, Incident] = {}
        self._busy: dict[str, dict[str, frozenset[str]]] = {}
        self._clusters: dict[str, Standing] = {}
        for run in self.runs.values():
            self._note_busy(None, run)
            self._cluster(run.cluster).census.put(run)
        self._ended: dict[str, None] = dict.fromkeys(self._by_incident)
        self._fresh: dict[str, None] = {}
        self._said: list[Command] = []
        self._pending = _Pending()

    def inherit(self, now: datetime) -> None:
        """Take over what a predecessor left: calls whose end nobody saw are looked up once their lease is out."""
        for run in list(self.runs.values()):
            if run.has_work:
                self._take(recover(run, now), now)

    def view(self, cluster: str) -> ClusterView:
        """What is known of a cluster's inventory."""
        return self._cluster(cluster).view

    def control(self, cluster: str) -> Control:
        """What people and the breaker have switched off in a cluster."""
        return self._cluster(cluster).control

    def _cluster(self, cluster: str) -> Standing:
        if cluster not in self._clusters:
            self._clusters[cluster] = Standing(cluster)
        return self._clusters[cluster]

    def take_fact(self, key: str, fact: Fact | None) -> None:
        """A record of the inventory; None for a tombstone."""
        if fact is not None:
            self.view(fact.cluster).put(fact)
        else:
            self.view(key.split("/", 1)[0]).forget(key)

    def take_control(self, control: Control) -> None:
        """What is switched off in a cluster, as it was written down; an older revision than known is left out."""
        standing = self._cluster(control.cluster)
        if control.revision > standing.control.revision:
            standing.control = control

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident; older ones than known are left out."""
        known = self.incidents.get(incident.id)
        if known is None or incident.revision > known.revision:
            self.incidents[incident.id] = incident
            self._fresh[incident.id] = None

    def take_command(self, command: Command) -> None:
        """A person's decision. It is heard in the next `advance`, after new incidents have got their runs: whoever says stop
        while nobody is there to act means the run that is about to begin."""
        self._said.append(command)

    def _hear(self, command: Command, now: datetime) -> None:
        """Give a decision to every run of the incident that it is about, or to the cluster."""
        if command.verb in CLUSTER_VERBS:
            standing = self._cluster(command.cluster)
            changed = commanded(standing.control, command, self._policy, now)
            self._govern(standing, changed, now, command.incident)
            return
        if command.verb is Verb.RELEASE:
            self._release(command, now)
            return
        runs = meant([self.runs[run_id] for run_id in self._by_incident.get(command.incident, ())], command)
        for run in runs:
            self._take(decided(run, command, self._policy, now), now)
        if runs:
            return
        said = f"{command.actor}: {command.verb}, and no run is there to hear it"
        about = {"command": command.id, "via": command.via}
        note = Note(f"person.{command.verb}", said, command.actor, about)
        self._say(note, command.incident, command.cluster, command.at)
        if command.verb is Verb.RESOLVE:
            report = Report("run.resolved", actor=command.actor, reason=command.reason)
            self._report(report, command.incident, command.cluster, "", "", command.at)

    def _release(self, command: Command, now: datetime) -> None:
        """Give a node back, or say what stands against it."""
        runs = [run for run in self.runs.values() if run.cluster == command.cluster]
        if any(command.id in run.commands for run in runs):
            return
        node = node_of(command)
        chosen = choose(command, runs, self.view(command.cluster).nodes.get(node), self._policy, now)
        if isinstance(chosen, Hold):
            self._take(release(chosen, command, holds_of(runs, node), now), now)
            return
        note = Note(
            "person.release_refused",
            f"{command.actor} cannot give {node[:253]} back: {chosen}",
            command.actor,
            {"command": command.id, "via": command.via},
        )
        self._say(note, command.incident, command.cluster, now)

    def take_outcome(self, call: Call, outcome: Outcome, now: datetime) -> None:
        """What became of a call."""
        run = self.runs.get(call.run)
        if run is not None:
            self._take(concluded(run, call.step, call.kind, outcome, now), now)

    def advance(self, now: datetime) -> None:
        """Begin runs for new incidents, take in revisions and decisions, and move every run as far as it goes now."""
        fresh, self._fresh = self._fresh, {}
        for incident_id in fresh:
            self._revise(self.incidents[incident_id], now)
        said, self._said = self._said, []
        for command in said:
            self._hear(command, now)
        self._go_on(now)
        for standing in list(self._clusters.values()):
            changed = standing.watch(self.runs, self.incidents, self._policy.breaker, now)
            self._govern(standing, changed, now)
        for run in sorted(self.runs.values(), key=lambda r: (r.created_at, r.id)):
            incident = self.incidents.get(run.incident)
            if incident is not None and run.has_work:
                self._take(advance(run, self._situation(run, incident), now), now)
            elif run.has_work:
                self._take(advance_blind(run, self._situation(run, stand_in(run)), now), now)
            elif self._is_old(run, now):
                self._forget(run)
        self._go_on(now)

    def due_at(self) -> datetime | None:
        """The earliest time at which `advance` may have something to do without news."""
        times = [due for run in self.runs.values() if run.has_work and (due := due_at(run)) is not None]
        return min(times, default=None)

    def collect(self) -> Changes:
        """Everything since the last time, in the order in which it came to be."""
        pending, self._pending = self._pending, _Pending()
        batches = [
            SignalBatch(cluster, tuple(signals[i : i + MAX_BATCH]))
            for cluster, signals in pending.signals.items()
            for i in range(0, len(signals), MAX_BATCH)
        ]
        return Changes(
            runs=tuple(self.runs[run_id] for run_id in pending.runs if run_id in self.runs),
            gone=tuple(pending.gone),
            timeline=tuple(pending.timeline),
            signals=tuple(batches),
            calls=tuple(pending.calls),
            controls=tuple(self._cluster(name).control for name in pending.controls),
        )

    def _revise(self, incident: Incident, now: datetime) -> None:
        runs = [self.runs[run_id] for run_id in self._by_incident.get(incident.id, ())]
        if not runs:
            self._begin(incident, now)
            return
        for run in runs:
            runbook = next((r for r in self._runbooks if r.id == run.plan.runbook), None)
            same = runbook is not None and runbook.revision == run.plan.runbook_revision
            bound = (
                self._bound(incident, runbook, run.plan.mode, now)
                if same and runbook and not incident.state.is_over
                else None
            )
            self._take(revised(run, incident, bound, now, self._guilty(incident)), now)
        self._supersede(incident, self.runs[runs[-1].id], now)
        self._ended[incident.id] = None

    def _begin(self, incident: Incident, now: datetime, *, after: Run | None = None) -> None:
        """Begin a run for the incident; `after` is one that has failed a rung below and says what is next."""
        if incident.state.is_over or incident.state is IncidentState.SUPPRESSED:
            return
        rung = after.plan.escalation if after is not None else None
        if rung is None:
            choice = select(incident, self._runbooks)
            chosen, why = choice.runbook, choice.why
        else:
            chosen, why = self._books.get(rung.to), f"there is no runbook {rung.to} to go on with"
        if chosen is None:
            self._leave(incident, why, now)
            return
        chosen, why = self._climb(incident, chosen, now)
        if after is not None:
            why = "; ".join(
                said for said in (f"the next rung after {after.plan.runbook}", after.reason, why) if said
            )
        bound = self._bound(incident, chosen, self._policy.mode, now)
        if bound is None:
            if after is not None:
                self._leave(incident, f"{chosen.id} cannot be bound to it", now)
            return
        known = self._by_incident.setdefault(incident.id, [])
        round_ = 1
        while run_id(incident.id, bound.runbook, bound.runbook_revision, round_) in self.runs:
            round_ += 1
        came_from = after.id if after is not None else ""
        turn = begin(incident, bound, now, round_=round_, escalated_from=came_from, why=why)
        known.append(turn.run.id)
        self._take(turn, now)

    def _leave(self, incident: Incident, why: str, now: datetime) -> None:
        """Nothing more is begun for the incident: say so, and that it waits for a person."""
        self._say(Note("run.none", f"a person has to act: {why}"), incident.id, incident.cluster, now)
        self._report(Report("run.awaiting_approval", reason=why), incident.id, incident.cluster, "", "", now)

    def _climb(self, incident: Incident, runbook: Runbook, now: datetime) -> tuple[Runbook, str]:
        """The rung whose turn it is by what has been tried for the same GPU, node or job."""
        if runbook.escalation is None:
            return runbook, ""
        shadow = tamer(runbook.mode, self._policy.mode) is Mode.SHADOW
        history = [run for run in self.runs.values() if run.cluster == incident.cluster]
        rung = climb(runbook, incident.root, history, self._books, now, shadow=shadow)
        return rung.runbook, rung.why

    def _go_on(self, now: datetime) -> None:
        """Begin the next run of incidents whose last one is over, where that is not the end of it.

        That is a run that escalates, and an incident that was over in the meantime and has come back.
        """
        while self._ended:
            incident_id, _ = self._ended.popitem()
            incident = self.incidents.get(incident_id)
            runs = [self.runs[run_id] for run_id in self._by_incident.get(incident_id, ())]
            if (
                incident is None
                or incident.state.is_over
                or not runs
                or not all(r.state.is_over for r in runs)
            ):
                continue
            last = runs[-1]
            if last.outcome == "escalated":
                self._begin(incident, now, after=last)
            elif (last.incident_over or incident.flaps > last.flaps) and not any(r.overruled for r in runs):
                self._begin(incident, now)

    def _bound(self, incident: Incident, runbook: Runbook, ceiling: Mode, now: datetime) -> Plan | None:
        """The runbook bound to the incident; None when that cannot be done, and then it is said."""
        try:
            return plan(incident, runbook, self.view(incident.cluster), ceiling, self._actions)
        except ValueError as error:
            self._say(Note("run.none", f"a person has to act: {error}"), incident.id, incident.cluster, now)
            return None

    def _supersede(self, incident: Incident, run: Run, now: datetime) -> None:
        """A run that has only asked so far gives way when the evidence has grown to fit another runbook."""
        if incident.state.is_over or not may_be_superseded(run):
            return
        better = select(incident, self._runbooks).runbook
        if better is None or is_above(run.plan.runbook, better, self._books):
            return
        if better.id != run.plan.runbook:
            self._take(superseded(run, better.id, now), now)
            self._begin(incident, now)

    def _guilty(self, incident: Incident) -> dict[str, str]:
        """The node that the incident this one was merged into, at the end of all merges, holds guilty, and that incident's id:
        it is not opened again before that one's own run holds it."""
        other = self.incidents.get(incident.merged_into or "")
        seen = {incident.id}
        while other is not None and other.state is IncidentState.MERGED and other.id not in seen:
            seen.add(other.id)
            other = self.incidents.get(other.merged_into or "")
        if other is None or not other.root.node or other.state.is_over:
            return {}
        return {other.root.node: other.id}

    def _situation(self, run: Run, incident: Incident) -> Situation:
        others = [r for r in self.runs.values() if r.cluster == run.cluster and r.id != run.id]
        standing = self._cluster(run.cluster)
        busy = self._busy.get(run.cluster, {})
        return Situation(
            incident, standing.view, others, self._policy, self._actions,
            busy=busy, incidents=self.incidents, runbooks=frozenset(self._books),
            control=standing.control_of(run), census=standing.census,
        )  # fmt: skip

    def _is_old(self, run: Run, now: datetime) -> bool:
        incident = self.incidents.get(run.incident)
        over = incident is None or incident.state.is_over
        return (
            over
            and not run.has_work
            and run.finished_at is not None
            and run.finished_at < now - KEEP_FINISHED
        )

    def _forget(self, run: Run) -> None:
        del self.runs[run.id]
        self._note_busy(run, None)
        self._cluster(run.cluster).census.drop(run.id)
        self._by_incident[run.incident].remove(run.id)
        self._pending.gone.append(run)

    def _take(self, turn: Turn, now: datetime) -> None:
        run = turn.run
        known = self.runs.get(run.id)
        if known != run:
            self.runs[run.id] = run
            self._cluster(run.cluster).census.put(run)
            self._pending.runs[run.id] = None
            self._note_busy(known, run)
            if run.state.is_over and (known is None or not known.state.is_over):
                self._ended[run.incident] = None
        self._pending.calls += turn.calls
        for note in turn.notes:
            self._say(note, run.incident, run.cluster, now)
        for report in turn.reports:
            self._report(report, run.incident, run.cluster, run.id, run.plan.runbook, now)

    def _note_busy(self, old: Run | None, new: Run | None) -> None:
        """Keep account of which targets have a call in the air, or something to be taken back, and by which runs."""
        before, after = (_occupied(run) if run is not None else frozenset() for run in (old, new))
        run = new or old
        assert run is not None
        busy = self._busy.setdefault(run.cluster, {})
        for key in before - after:
            busy[key] = busy.get(key, frozenset()) - {run.id}
            if not busy[key]:
                del busy[key]
        for key in after - before:
            busy[key] = busy.get(key, frozenset()) | {run.id}

    def _govern(self, standing: Standing, changed: Changed, now: datetime, incident: str = "") -> None:
        """Take in what has changed for a cluster as a whole; its lines belong to no incident, unless one was named."""
        if standing.control == changed.control:
            return
        standing.control = changed.control
        self._pending.controls[standing.cluster] = None
        for note in changed.notes:
            self._say(note, incident, standing.cluster, now)

    def _say(self, note: Note, incident: str, cluster: str, at: datetime) -> None:
        self._pending.timeline.append(
            TimelineEntry(
                incident, cluster, at, note.actor or PROCESS, note.event, note.text, note.attributes
            )
        )

    def _report(
        self, report: Report, incident: str, cluster: str, run: str, runbook: str, at: datetime
    ) -> None:
        said = {
            "incident": incident, "run": run, "runbook": runbook, "outcome": report.outcome, "actor": report.actor,
            "reason": report.reason,
        }  # fmt: skip
        self._pending.signals[cluster].append(
            signal(
                report.kind,
                Entity(cluster),
                severity=Severity.INFO,
                occurred_at=at,
                observed_at=at,
                attributes={name: value for name, value in said.items() if value},
            )
        )


def _age(run: Run) -> tuple[datetime, int, bool, str]:
    """In this order the runs of an incident were begun."""
    return (run.created_at, run.round, bool(run.escalated_from), run.id)


def _occupied(run: Run) -> frozenset[str]:
    """Keys of the targets that a run has a call to in the air, or something to take back on."""
    found: set[str] = set()
    for record in run.steps:
        rows = (record.effect if not record.state.is_over else None, record.undo)
        for row in rows:
            if row is not None and row.state in IN_THE_AIR:
                found.add(row.target.key)
        if record.undo is not None and record.is_being_undone and not record.kept_for:
            found.add(record.undo.target.key)
    return frozenset(found)
