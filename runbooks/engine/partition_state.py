"""Everything known of one partition: inventory, incidents and runs, and what has changed since the last commit. Pure.

The responder and the replay both work a board: they feed it, let it `advance`, and `collect` what has to be written and called.
Nothing it says may be acted on before the collected runs are committed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from connectors.base import Outcome, Retry
from runbooks.engine.call_slots import (
    CLUSTER,
    NEW_TICKETS,
    QUEUES,
    TICKET_SYSTEM,
    WINDOW,
    CallLimits,
    CallSlots,
    system_of,
)
from runbooks.engine.cluster_controls import ControlUpdate, commanded, unreadable
from runbooks.engine.cluster_state import ClusterState
from runbooks.engine.escalation import accused, climb, is_above, offenders, takes_nothing
from runbooks.engine.external_changes import ExternalChanges
from runbooks.engine.guardrails import switched_off
from runbooks.engine.guardrails.breaker import has_leave
from runbooks.engine.guardrails.evidence import is_old
from runbooks.engine.node_release import NodeHold, choose, holds_of, node_of, release
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.human_decisions import decided, may_be_superseded, meant, revised, superseded
from runbooks.engine.run.machine import HELD_LOOK_S, advance, begin, due_at
from runbooks.engine.run.missing_incident import advance_blind, stand_in
from runbooks.engine.run.outcomes import concluded, recover
from runbooks.engine.run.plan import MAX_STEPS, plan
from runbooks.engine.run.rollback import holds_a_job
from runbooks.engine.run.shadow_mode import guard_context
from runbooks.engine.run.transition import (
    IN_FLIGHT,
    MAX_REASON,
    Call,
    RunContext,
    RunReport,
    RunTransition,
    TimelineNote,
    TransitionResult,
    shortened,
)
from runbooks.engine.run_index import RunIndex, UnreadableRun, age
from runbooks.engine.run_summaries import IncidentSummary, RunSummary
from runbooks.engine.timer_queue import TimerQueue
from runbooks.language.schema import Runbook
from runbooks.language.select import select
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.kafka.lazy_documents import LazyDocuments
from streams.model.clock import to_the_second
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import CLUSTER_VERBS, Command, TimelineEntry, Verb
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import Mode, Plan, Run, run_id, stricter
from streams.model.signal import MAX_BATCH, Severity, Signal, SignalBatch, signal

PROCESS = "responder"

KEEP_FINISHED = timedelta(days=30)
"""How long a finished run stays in the journal once its incident is over: it is read at every take-up."""

LOOK_FOR_OLD = timedelta(hours=1)
"""How often it is looked for runs that need not be kept any more."""

MAX_PLANNED_BYTES = 320 * 1024
"""The largest run that is begun: as much again, and half of it, comes to it on its way, and the journal has a limit."""

MOVED_LOOK_S = 1.0
"""How soon a run that has moved is looked at again, whether or not anything is due."""

CALM_RUNS = 250
"""With more open runs than this, those that have nothing urgent to do are looked at without news less often, so that all looks
together cost the same."""

AT_A_TIME = 100
"""RunIndex that are taken over without a break."""

FIRST, SOON, LATER = range(3)
"""Ranks of runs. The first two have slots that the last one cannot take."""

LONGEST_HOLD_S = 60.0
"""The longest that a ticket system which asks for a pause is left alone: it is asked again then."""


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """How much one turn takes on at most, the most urgent first; the next turn goes on with the rest.

    A turn runs without a break and its commit is one transaction, so that both have to stay short whatever comes at once.
    """

    incidents: int
    runs: int


UNLIMITED = WorkBudget(10**9, 10**9)
"""For whoever has no broker and no probes to answer in between."""

PER_ITERATION = WorkBudget(50, 100)
"""A few tenths of a second of work, and some megabytes to commit."""


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """What has to be committed together, and the calls that may start after that."""

    runs: tuple[Run, ...] = ()
    gone: tuple[str, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    signals: tuple[SignalBatch, ...] = ()
    calls: tuple[Call, ...] = ()
    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class _Pending:
    runs: dict[str, None] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
    signals: defaultdict[str, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    calls: list[Call] = field(default_factory=list)
    controls: dict[str, None] = field(default_factory=dict)


class PartitionState:
    """The state of one partition. `runs` are as last read or decided, committed or about to be.

    A turn costs what has moved or is due, not what is there: each run with work left has a time on the agenda, and whatever
    may matter to it, news of its incident or its targets or of another run on them, brings that forward.
    """

    def __init__(
        self,
        runbooks: Sequence[Runbook],
        policy: ResponderSettings,
        actions: frozenset[str],
        runs: Mapping[str, Run] | LazyDocuments[Run, RunSummary] | None = None,
        lost: Iterable[UnreadableRun] = (),
        *,
        limits: CallLimits | None = None,
        share: WorkBudget = UNLIMITED,
        taken_up: bool = False,
    ) -> None:
        """`taken_up` says that `inherit` or `inheriting` follows before the first `advance`, and counts the runs."""
        self._share = share
        self._taken_up = taken_up
        self._slots = CallSlots(limits or CallLimits())
        self._waiting = {(queue, urgent): PriorityQueue() for queue in QUEUES for urgent in (True, False)}
        """RunIndex that wait for a slot."""
        self._ready = PriorityQueue()
        """RunIndex that are to be moved now."""
        self._runbooks = runbooks
        self._books = {runbook.id: runbook for runbook in runbooks}
        self._policy = policy
        self._actions = actions
        self.runs = RunIndex(_shelved(runs or {}), lost)
        self._told_lost: set[str] = set()
        self.incidents: LazyDocuments[Incident, IncidentSummary] = LazyDocuments(_finished)
        self._agenda = TimerQueue()
        self._old_looked_at: datetime | None = None
        self._busy: dict[str, dict[str, frozenset[str]]] = {}
        self._clusters: dict[str, ClusterState] = {}
        if not taken_up:
            for name in self.runs:
                if name not in self.runs.asleep:
                    self._count(self.runs[name])
        self._ended: dict[str, None] = dict.fromkeys(self.runs.incidents())
        self._fresh = PriorityQueue()
        """Incidents that nothing has been decided about since they were last heard of."""
        self._heard = 0
        self._inherited: deque[tuple[str, tuple[TimelineNote, ...]]] = deque()
        """RunIndex that were taken over in the middle of a call, and what is to be said of it."""
        self._full: set[str] = set()
        """RunIndex of which it was said that they grow no more."""
        self._stirred: dict[tuple[str, str], None] = {}
        self._said: list[Command] = []
        self._resolved: dict[str, Command] = {}
        """Who has resolved an incident: the correlator takes a moment until it says that it is over."""
        self._observer = ExternalChanges()
        self._pending = _Pending()

    def inherit(self, now: datetime) -> None:
        """Take over what a predecessor left: calls whose end nobody saw are looked up once their lease is out."""
        for _ in self.inheriting(now):
            pass

    def inheriting(self, now: datetime) -> Iterator[None]:
        """`inherit`, some runs at a time: there may be ten thousand, and the group has to hear from us meanwhile."""
        for number, (name, summary) in enumerate(list(self.runs.asleep.items()), start=1):
            self._recall(name, summary, now)
            if number % AT_A_TIME == 0:
                yield
        awake = [name for name in self.runs if name not in self.runs.asleep]
        for number, name in enumerate(awake, start=1):
            self._inherit(self.runs[name], now)
            if number % AT_A_TIME == 0:
                yield

    def _inherit(self, run: Run, now: datetime) -> None:
        """Know of a run's calls that nobody saw the end of. That is written down a few runs at a time: a successor of ours
        would find out the same."""
        if self._taken_up:
            self._count(run)
        if run.id not in self.runs.live:
            return
        for record in run.steps:
            row = record.effect
            if row is not None and row.action == "open_ticket" and now - row.intended_at < WINDOW:
                self._slots.opened(row.intended_at)
        result = recover(run, now)
        if result.run != run:
            self._know(result.run, now)
            self._inherited.append((run.id, result.notes))
        self._agenda.sooner(run.id, now)
        self._cluster(run.cluster).inherit(result.run)

    def _count(self, run: Run) -> None:
        """Let guardrails know of a run."""
        self._note_busy(None, run)
        self._cluster(run.cluster).run_counts.put(run)

    def _recall(self, name: str, summary: RunSummary, now: datetime) -> None:
        """Count a finished run that a guardrail may still ask about: a recent one, or one that holds a node closed."""
        policy = self._policy
        window_s = policy.blast_radius.window_s
        longest_s = max(window_s, policy.breaker.failures_window_s, policy.breaker.mass_window_s)
        recent = summary.updated_at > now - timedelta(seconds=longest_s)
        asked = recent or summary.holds(self.view(summary.cluster).nodes, now, window_s)
        if asked and (run := self.runs.get(name)) is not None:
            self._cluster(summary.cluster).run_counts.put(run)

    def view(self, cluster: str) -> ClusterView:
        """What is known of a cluster's inventory."""
        return self._cluster(cluster).view

    def control(self, cluster: str) -> Control:
        """What people and the breaker have switched off in a cluster."""
        return self._cluster(cluster).control

    def _cluster(self, cluster: str) -> ClusterState:
        if cluster not in self._clusters:
            self._clusters[cluster] = ClusterState(cluster)
        return self._clusters[cluster]

    def take_fact(self, key: str, fact: Fact | None, news_at: datetime | None = None) -> None:
        """A record of the inventory; None for a tombstone. `news_at` is when it was published, for one not taken in before by
        anybody: what others did is told of those only."""
        cluster, kind, name = (fact.key if fact is not None else key).split("/", 2)
        if news_at is not None:
            self._observer.saw(self.view(cluster), key, fact, news_at)
        if fact is not None:
            self.view(fact.cluster).put(fact)
        else:
            self.view(cluster).forget(key)
        if kind in ("node", "job"):
            self._stirred[cluster, f"Node//{name}" if kind == "node" else name] = None

    def take_control(self, control: Control) -> None:
        """What is switched off in a cluster, as it was written down; an older revision than known is left out."""
        standing = self._cluster(control.cluster)
        if control.revision > standing.control.revision:
            standing.control = control

    def lose_control(self, cluster: str, why: str, now: datetime) -> None:
        """What is switched off in a cluster cannot be read: the kill switch may be on in it, so it is on until a person says
        otherwise. That is written down as a control of its own, which takes the place of the one that cannot be read."""
        standing = self._cluster(cluster)
        self._govern(standing, unreadable(standing.control, why, now), now)

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident; older ones than known are left out."""
        known = self.incidents.get(incident.id)
        if known is None or incident.revision > known.revision:
            self.incidents[incident.id] = incident
            is_decisive = incident.certainty is Certainty.DECISIVE
            self._heard += 1
            self._fresh.put(incident.id, (not is_decisive, self._heard))

    def put_away(self, summary: IncidentSummary, raw: bytes) -> bool:
        """Whether this incident need not be read: it is over, and no run has to hear of it. Then it stays as it is."""
        known = self.incidents.summaries.get(summary.id)
        if not summary.state.is_over or (known is None and summary.id in self.incidents):
            return False
        for name in self.runs.ids_of(summary.id):
            run = self.runs.asleep.get(name)
            if run is None or run.incident_revision < summary.revision:
                return False
        if known is None or summary.revision > known.revision:
            self.incidents.store(summary.id, raw, summary)
        return True

    def take_command(self, command: Command) -> None:
        """A person's decision. It is heard in the next `advance`, after new incidents have got their runs: whoever says stop
        while nobody is there to act means the run that is about to begin."""
        self._said.append(replace(command, reason=shortened(command.reason)))

    def turn_down(self, command: Command, why: str) -> None:
        """A person's decision that is not for here: nothing but the answer comes of it."""
        text = f"{command.verb} of {command.actor} does not count: {why}"
        about = {"command": command.id, "via": command.via}
        note = TimelineNote("command.refused", text, command.actor, about)
        self._say(note, command.incident, command.cluster, command.at)

    def _hear(self, command: Command, now: datetime) -> None:
        """Give a decision to every run of the incident that it is about, or to the cluster."""
        if command.verb in CLUSTER_VERBS:
            standing = self._cluster(command.cluster)
            until = standing.inherited_until
            under_way_until = until if until is not None and now < until else None
            changed = commanded(standing.control, command, self._policy, now, under_way_until=under_way_until)
            self._govern(standing, changed, now, command.incident)
            return
        if command.verb is Verb.RELEASE:
            self._release(command, now)
            return
        if command.verb is Verb.RESOLVE:
            if why := self._over_already(command):
                self.turn_down(command, why)
                return
            self._resolved[command.incident] = command
        runs = meant(self.runs.of(command.incident), command)
        for run in runs:
            self._take(decided(run, command, self._policy, now), now)
        if runs:
            return
        said = f"{command.actor}: {command.verb}, and no run is there to hear it"
        about = {"command": command.id, "via": command.via}
        note = TimelineNote(f"person.{command.verb}", said, command.actor, about)
        self._say(note, command.incident, command.cluster, command.at)
        if command.verb is Verb.RESOLVE:
            report = RunReport("run.resolved", actor=command.actor, reason=command.reason)
            self._report(report, command.incident, command.cluster, "", "", command.at)

    def _over_already(self, command: Command) -> str:
        """Why there is nothing left to resolve; empty where there is. A run that is at work yet can always be ended."""
        name, first = command.incident, self._resolved.get(command.incident)
        if first is not None and first.id != command.id:
            return f"{first.actor} resolved it at {to_the_second(first.at)}"
        if not self._is_over(name) or any(run in self.runs.live for run in self.runs.ids_of(name)):
            return ""
        incident = self.incidents.get(name)
        if incident is None or incident.closed_at is None:
            return f"{name} is over already"
        part = f", as part of {incident.merged_into}" if incident.merged_into else ""
        return f"{name} is over since {to_the_second(incident.closed_at)}{part}"

    def _release(self, command: Command, now: datetime) -> None:
        """Give a node back, or say what stands against it."""
        node = node_of(command)
        runs = self.runs.on(command.cluster, f"Node//{node}")
        if any(command.id in run.commands for run in runs):
            return
        chosen = choose(command, runs, self.view(command.cluster).nodes.get(node), self._policy, now)
        if isinstance(chosen, NodeHold):
            self._take(release(chosen, command, holds_of(runs, node), now), now)
            return
        note = TimelineNote(
            "person.release_refused",
            f"{command.actor} cannot give {node[:253]} back: {chosen}",
            command.actor,
            {"command": command.id, "via": command.via},
        )
        self._say(note, command.incident, command.cluster, now)

    def take_outcome(self, call: Call, outcome: Outcome, now: datetime) -> None:
        """What became of a call."""
        self._slots.give_back(call.slot)
        if isinstance(outcome, Retry) and (system := system_of(call.effect.action)) == TICKET_SYSTEM:
            # It asks for a pause or is not there: a thousand tickets must not find that out one by one.
            self._slots.hold(system, now + timedelta(seconds=min(outcome.after_s, LONGEST_HOLD_S)))
        run = self.runs.get(call.run)
        if run is not None:
            self._take(concluded(run, call.step, call.kind, outcome, now), now)

    def switched_off(self, call: Call, now: datetime) -> str:
        """What stops a call that was begun and may not have left yet, since something was switched off; empty if nothing."""
        run = self.runs.get(call.run)
        if run is None or call.kind != "apply":
            return ""
        context = self._situation(run, self.incidents.get(run.incident) or stand_in(run), now)
        ruling = switched_off(guard_context(RunTransition(run, now), run.planned(call.step), context))
        return str(ruling) if ruling is not None else ""

    def advance(self, now: datetime) -> None:
        """Begin runs for new incidents, take in revisions and decisions, and move runs as far as they go now.

        No more than its share of each is done in one go: `is_behind` tells whether there is more.
        """
        self._write_inherited(now)
        for incident_id in self._fresh.take(self._share.incidents):
            self._revise(self.incidents[incident_id], now)
        said, self._said = self._said, []
        for command in said:
            self._catch_up_with(command.incident, now)
            self._hear(command, now)
        awake = (self.incidents[name] for name in self.incidents if name not in self.incidents.summaries)
        for act, note, about in self._observer.told(awake, self.runs.on):
            self._say(note, about, act.cluster, act.at)
        self._go_on(now)
        for standing in list(self._clusters.values()):
            changed = standing.watch(self.runs, self.incidents, self._policy, now)
            self._govern(standing, changed, now)
        self._call_up(now)
        for name in self._ready.take(self._share.runs):
            if (run := self.runs.get(name)) is not None:
                self._catch_up_with(run.incident, now)
                self._move(self.runs[name], now)
        self._forget_old(now)
        self._go_on(now)
        self._tell_lost(now)

    def due_at(self) -> datetime | None:
        """The earliest time at which `advance` may have something to do without news."""
        return self._agenda.earliest

    def is_behind(self, now: datetime) -> bool:
        """Whether the last `advance` has left something undone that can be done now."""
        held_up = any(
            line and self._slots.free(queue, now, urgent=urgent) > 0
            for (queue, urgent), line in self._waiting.items()
        )
        return held_up or bool(self._fresh or self._ready or self._inherited or self._ended)

    def _write_inherited(self, now: datetime) -> None:
        """Write down and say of a few runs that they were taken over."""
        for _ in range(min(self._share.runs, len(self._inherited))):
            name, notes = self._inherited.popleft()
            if (run := self.runs.get(name)) is None:
                continue
            self._pending.runs[name] = None
            for note in notes:
                self._say(note, run.incident, run.cluster, now)

    def _catch_up_with(self, incident_id: str, now: datetime) -> None:
        """Take in an incident's latest revision out of result: nothing is done on the strength of an earlier one."""
        if incident_id in self._fresh:
            self._fresh.drop(incident_id)
            self._revise(self.incidents[incident_id], now)

    def _call_up(self, now: datetime) -> None:
        """Let those runs be moved whose time has come, those on whose targets there is news, and as many of those that wait for
        a slot as there are slots."""
        stirred, self._stirred = self._stirred, {}
        for cluster, target in stirred:
            self._stir(cluster, target, now)
        called = self._agenda.take_due(now)
        for (queue, urgent), line in self._waiting.items():
            if line and (free := self._slots.free(queue, now, urgent=urgent)) > 0:
                called += line.take(int(min(free, len(line))))
        for run in self.runs.read(called):
            self._ready.put(run.id, (self._rank(run), not self._is_beyond_doubt(run), age(run)))

    def _rank(self, run: Run) -> int:
        """How soon its calls have to go. First of all is the first blow against a fault beyond doubt, which is cheap, and what
        makes way for others; then what follows it, above all where a job stands still."""
        if run.plan.mode is Mode.SHADOW:
            return LATER
        if run.outcome and not run.state.is_over:
            return FIRST
        steps = list(zip(run.plan.steps, run.steps, strict=True))
        if any(planned.action == "suspend_job" and record.effect is not None for planned, record in steps):
            return SOON if holds_a_job(RunTransition(run, run.updated_at)) else LATER
        if not self._is_beyond_doubt(run):
            return LATER
        if all(record.state.is_over for planned, record in steps if planned.destructive):
            return LATER
        return FIRST if run.admitted_at is None else SOON

    def _is_beyond_doubt(self, run: Run) -> bool:
        """Whether its fault is decisive and of now: what was old when it was read waits for a person anyway."""
        # What was skimmed only is over.
        incident = None if run.incident in self.incidents.summaries else self.incidents.get(run.incident)
        if incident is None or incident.certainty is not Certainty.DECISIVE:
            return False
        return has_leave(run) or not is_old(incident, self.view(run.cluster), self._policy.freshness_s)

    def _is_urgent(self, run: Run, queue: str) -> bool:
        """Whether what a run waits for in this queue goes first. The ticket of a fault beyond doubt does so also after its node
        is closed: a person has to hear of it."""
        if self._rank(run) < LATER:
            return True
        return queue != CLUSTER and run.plan.mode is not Mode.SHADOW and self._is_beyond_doubt(run)

    def _move(self, run: Run, now: datetime) -> None:
        """Move one run as far as it goes now, and put it in line for what it has to wait for."""
        incident, rank = self.incidents.get(run.incident), self._rank(run)
        if incident is not None:
            result = advance(run, self._situation(run, incident, now), now)
        else:
            result = advance_blind(run, self._situation(run, stand_in(run), now), now)
        urgent_in = {queue: self._is_urgent(run, queue) for queue in QUEUES}
        self._take(result, now, urgent_in)
        for (queue, urgent), line in self._waiting.items():
            if queue in result.waits and urgent is urgent_in[queue]:
                line.put(run.id, (rank, age(run)))
            else:
                line.drop(run.id)
        self._look_again(run, now)

    def _stir(self, cluster: str, target: str, now: datetime) -> None:
        for name in self.runs.ids_on(cluster, target):
            if name in self.runs.live:
                self._agenda.sooner(name, now)

    def _look_again(self, before: Run, now: datetime) -> None:
        """Put down when a run that has just been advanced is to be looked at next."""
        run = self.runs[before.id]
        if run.id not in self.runs.live:
            self._agenda.drop(run.id)
            return
        # What holds a step may lift without news of the run or its targets: a window that passes, another node given back.
        look_s = HELD_LOOK_S if run is before else MOVED_LOOK_S
        if self._rank(run) == LATER:
            look_s *= max(1.0, len(self.runs.live) / CALM_RUNS)
        at = now + timedelta(seconds=look_s)
        due = due_at(run)
        self._agenda.put(run.id, min(at, due) if due is not None and due > now else at)

    def collect(self) -> CommitBatch:
        """Everything since the last time, in the order in which it came to be."""
        pending, self._pending = self._pending, _Pending()
        batches = [
            SignalBatch(cluster, tuple(signals[i : i + MAX_BATCH]))
            for cluster, signals in pending.signals.items()
            for i in range(0, len(signals), MAX_BATCH)
        ]
        return CommitBatch(
            runs=tuple(self.runs[run_id] for run_id in pending.runs if run_id in self.runs),
            gone=tuple(pending.gone),
            timeline=tuple(pending.timeline),
            signals=tuple(batches),
            calls=tuple(pending.calls),
            controls=tuple(self._cluster(name).control for name in pending.controls),
        )

    def _revise(self, incident: Incident, now: datetime) -> None:
        runs = self.runs.of(incident.id)
        if not runs:
            self._begin(incident, now)
            return
        for run in runs:
            if run.id in self.runs.live:
                self._agenda.sooner(run.id, now)
            if incident.revision <= run.incident_revision:
                continue
            runbook = self._books.get(run.plan.runbook)
            same = runbook is not None and runbook.revision == run.plan.runbook_revision
            bound = (
                self._bound(incident, runbook, run.plan.mode, now)
                if same and runbook and not incident.state.is_over
                else None
            )
            guilty = self._guilty(incident)
            result = revised(run, incident, bound, now, guilty)
            if too_large := _too_large(result.run, run):
                if run.id not in self._full:
                    note = TimelineNote("run.not_extended", too_large, None, {"run": run.id})
                    self._say(note, run.incident, run.cluster, now)
                self._full.add(run.id)
                result = revised(run, incident, None, now, guilty)
            self._take(result, now)
        self._supersede(incident, self.runs[runs[-1].id], now)
        self._ended[incident.id] = None

    def _begin(self, incident: Incident, now: datetime, *, after: Run | None = None) -> None:
        """Begin a run for the incident; `after` is one that has failed a rung below and says what is next."""
        if incident.state.is_over or incident.state is IncidentState.SUPPRESSED:
            return
        if lost := self.runs.lost_of(incident.id):
            # What it did to the job and the node is not known, and must not be done again.
            self._leave(incident, f"its finished run {lost[0].id} cannot be read back", now)
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
        round_ = 1
        while run_id(incident.id, bound.runbook, bound.runbook_revision, round_) in self.runs:
            round_ += 1
        came_from = after.id if after is not None else ""
        result = begin(incident, bound, now, round_=round_, escalated_from=came_from, why=why)
        if (size := len(encode(result.run))) > MAX_PLANNED_BYTES:
            said = f"a plan of {chosen.id} has {size} bytes, at most {MAX_PLANNED_BYTES} are begun with"
            self._leave(incident, said, now)
            return
        self._take(result, now)

    def _leave(self, incident: Incident, why: str, now: datetime) -> None:
        """Nothing more is begun for the incident: say so, and that it waits for a person."""
        self._say(TimelineNote("run.none", f"a person has to act: {why}"), incident.id, incident.cluster, now)
        self._report(
            RunReport("run.awaiting_approval", reason=why), incident.id, incident.cluster, "", "", now
        )

    def _climb(self, incident: Incident, runbook: Runbook, now: datetime) -> tuple[Runbook, str]:
        """The rung whose turn it is by what has been tried for the same GPU, node or job."""
        if runbook.escalation is None:
            return runbook, ""
        shadow = stricter(runbook.mode, self._policy.mode) is Mode.SHADOW
        place = accused(incident)
        # What has become part of another incident was no crash of its own.
        history = [
            run
            for run in self.runs.about(incident.cluster, offenders(place))
            if not takes_nothing(run) or not self._is_merged(run.incident)
        ]
        rung = climb(runbook, place, history, self._books, now, shadow=shadow, incident=incident.id)
        return rung.runbook, rung.why

    def _is_merged(self, incident_id: str) -> bool:
        known = self.incidents.summaries.get(incident_id) or self.incidents.get(incident_id)
        return known is not None and known.state is IncidentState.MERGED

    def _go_on(self, now: datetime) -> None:
        """Begin the next run of incidents whose last one is over, where that is not the end of it.

        That is a run that escalates, and an incident that was over in the meantime and has come back.
        """
        begun = 0
        while self._ended and begun < self._share.incidents:
            incident_id = next(iter(self._ended))
            del self._ended[incident_id]
            if self._is_over(incident_id) is not False:
                continue
            incident, runs = self.incidents[incident_id], self.runs.of(incident_id)
            if not runs or not all(r.state.is_over for r in runs) or any(r.overruled for r in runs):
                continue
            last = runs[-1]
            if last.outcome == "escalated":
                self._begin(incident, now, after=last)
            elif last.incident_over or incident.flaps > last.flaps:
                self._begin(incident, now)
            else:
                continue
            begun += 1

    def _bound(self, incident: Incident, runbook: Runbook, ceiling: Mode, now: datetime) -> Plan | None:
        """The runbook bound to the incident; None when that cannot be done, and then it is said."""
        try:
            return plan(incident, runbook, self.view(incident.cluster), ceiling, self._actions)
        except ValueError as error:
            self._say(
                TimelineNote("run.none", f"a person has to act: {error}"), incident.id, incident.cluster, now
            )
            return None

    def _supersede(self, incident: Incident, run: Run, now: datetime) -> None:
        """A run that has only asked so far gives way when the evidence has grown to fit another runbook."""
        if incident.state.is_over or not may_be_superseded(run):
            return
        better = select(incident, self._runbooks).runbook
        if better is None or (
            is_above(run.plan.runbook, better, self._books) and not _has_lost_its_node(run, incident)
        ):
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

    def _situation(self, run: Run, incident: Incident, now: datetime) -> RunContext:
        standing = self._cluster(run.cluster)
        busy = self._busy.get(run.cluster, {})
        siblings = tuple(other for other in self.runs.of(run.incident) if other.id != run.id)
        return RunContext(
            incident, standing.view, self.runs.peers(run), self._policy, self._actions,
            busy=busy, siblings=siblings, incidents=self.incidents, runbooks=frozenset(self._books),
            control=standing.control_of(run), run_counts=standing.run_counts,
            free_slots=self._slots.free_slots(
                now, urgent=self._rank(run) < LATER, urgent_ticket=self._is_urgent(run, NEW_TICKETS)
            ),
        )  # fmt: skip

    def _is_over(self, incident_id: str) -> bool | None:
        """Whether nothing more will be done about an incident; None for one that is not known."""
        if incident_id in self.incidents.summaries:
            return True
        incident = self.incidents.get(incident_id)
        return incident.state.is_over if incident is not None else None

    def _forget_old(self, now: datetime) -> None:
        """Let go of runs that were over long ago, as their incidents are."""
        if self._old_looked_at is not None and now < self._old_looked_at + LOOK_FOR_OLD:
            return
        self._old_looked_at = now
        for name in [name for name in self.runs if name not in self.runs.live]:
            run = self.runs.asleep.get(name) or self.runs[name]
            old = run.finished_at is not None and run.finished_at < now - KEEP_FINISHED
            if old and self._is_over(run.incident) is not False:
                self._cluster(run.cluster).run_counts.drop(name)
                self.runs.forget(name)
                self._pending.gone.append(name)

    def _tell_lost(self, now: datetime) -> None:
        """Say once of each finished run that cannot be read what follows from that."""
        for run in list(self.runs.lost.values()):
            if run.id in self._told_lost:
                continue
            self._told_lost.add(run.id)
            text = (
                f"the finished run {run.id} cannot be read back and is left out: no other run is begun for this incident, "
                f"and what it holds closed is given back by hand: {run.reason[:MAX_REASON]}"
            )
            self._say(TimelineNote("run.lost", text, None, {"run": run.id}), run.incident, run.cluster, now)

    def _take(
        self, result: TransitionResult, now: datetime, urgent_in: Mapping[str, bool] | None = None
    ) -> None:
        run = result.run
        known = self.runs.get(run.id)
        if known != run:
            self._know(run, now)
            self._pending.runs[run.id] = None
            for target in self.runs.targets(run.id):
                self._stir(run.cluster, target, now)
            if run.state.is_over and (known is None or not known.state.is_over):
                self._ended[run.incident] = None
        self._pending.calls += result.calls
        for call in result.calls:
            system = system_of(call.effect.action)
            self._slots.take(call.slot, call.effect.action, urgent=(urgent_in or {}).get(system, False))
            if call.kind == "apply" and call.effect.action == "open_ticket":
                row = run.step(call.step).effect
                if row is not None and row.attempts == 1:
                    self._slots.opened(now)
        for note in result.notes:
            self._say(note, run.incident, run.cluster, now)
        for report in result.reports:
            self._report(report, run.incident, run.cluster, run.id, run.plan.runbook, now)

    def _know(self, run: Run, now: datetime) -> None:
        """Know a run as it is now."""
        known = self.runs.get(run.id)
        self.runs.put(run)
        self._cluster(run.cluster).run_counts.put(run)
        self._agenda.sooner(run.id, now)
        self._note_busy(known, run)

    def _note_busy(self, old: Run | None, new: Run | None) -> None:
        """Keep account of which targets have a call in the in_flight, and by which runs."""
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

    def _govern(
        self, standing: ClusterState, changed: ControlUpdate, now: datetime, incident: str = ""
    ) -> None:
        """Take in what has changed for a cluster as a whole; its lines belong to no incident, unless one was named."""
        if standing.control == changed.control:
            return
        standing.control = changed.control
        self._pending.controls[standing.cluster] = None
        for name in self.runs.live:
            if self.runs[name].cluster == standing.cluster:
                self._agenda.sooner(name, now)
        for note in changed.notes:
            self._say(note, incident, standing.cluster, now)

    def _say(self, note: TimelineNote, incident: str, cluster: str, at: datetime) -> None:
        self._pending.timeline.append(
            TimelineEntry(
                incident, cluster, at, note.actor or PROCESS, note.event, note.text, note.attributes
            )
        )

    def _report(
        self, report: RunReport, incident: str, cluster: str, run: str, runbook: str, at: datetime
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


def _shelved(runs: Mapping[str, Run] | LazyDocuments[Run, RunSummary]) -> LazyDocuments[Run, RunSummary]:
    """A shelf of our own: the journal's holds what was committed last."""
    if isinstance(runs, LazyDocuments):
        return runs.copy()
    shelf: LazyDocuments[Run, RunSummary] = LazyDocuments(lambda raw: decode(Run, raw))
    shelf.update(runs)
    return shelf


def _too_large(run: Run, before: Run) -> str:
    """Why a run may not grow as a revision would have it; empty when it may. It has to fit the journal to its end."""
    steps, size = len(run.plan.steps), 0
    if steps <= len(before.plan.steps):
        return ""
    if steps <= MAX_STEPS and (size := len(encode(run))) <= MAX_PLANNED_BYTES:
        return ""
    has = f"{steps} steps, at most {MAX_STEPS}" if not size else f"{size} bytes, at most {MAX_PLANNED_BYTES}"
    return f"a person has to act on what is new: with it the run would have {has}"


def _finished(raw: bytes) -> Incident:
    """An incident that was put away as over, for whoever asks for it after all.

    Raises:
        KeyError: it cannot be read whole. It stays known as over, and nobody is stopped by the rest of it.
    """
    try:
        return decode(Incident, raw)
    except BadInput as error:
        raise KeyError(str(error)) from error


def _has_lost_its_node(run: Run, incident: Incident) -> bool:
    """Whether a run would act on a node that its incident names no more."""
    nodes = {step.target.name for step in run.plan.steps if step.target and step.target.kind == "Node"}
    return bool(nodes) and accused(incident).node not in nodes


def _occupied(run: Run) -> frozenset[str]:
    """Keys of the targets that a run has a call to in the in_flight."""
    found: set[str] = set()
    for record in run.steps:
        rows = (record.effect if not record.state.is_over else None, record.undo)
        for row in rows:
            if row is not None and row.state in IN_FLIGHT:
                found.add(row.target.key)
    return frozenset(found)
