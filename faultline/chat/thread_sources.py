"""The documents that threads are made from: incidents, their runs and jobs, and the nodes that stay cordoned for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from faultline.chat.job_owners import JobOwners
from faultline.chat.owner_messages import owner_messages
from faultline.chat.root_buttons import Handling, next_change, root_buttons
from faultline.chat.routes import NOWHERE
from faultline.chat.summaries import Summary
from faultline.chat.summary_messages import (
    asks_a_person,
    member_message,
    moved_message,
    summary_mark,
    summary_message,
)
from faultline.chat.thread_plan import (
    Slot,
    Urgency,
    has_acted,
    is_worth_a_thread,
    root_mark,
    still_updated,
    wanted,
)
from runbooks.engine.containment import pending_repairs
from runbooks.engine.escalation import is_for_owner
from streams.model.entity import JobRef
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Audience, Incident
from streams.model.message import Buttons
from streams.model.run import Run
from streams.model.thread import MEMBER, ROOT, Thread


class ThreadSources:
    """The latest incidents, runs and nodes of one partition. `changed` holds the incidents to be planned again."""

    def __init__(self, *, buttons: bool = False, owners: JobOwners | None = None) -> None:
        """`buttons`: whether anybody takes in presses. `owners`: whom to tell about jobs; without them nobody is told."""
        self._buttons = buttons
        self._owners = owners
        self.incidents: dict[str, Incident] = {}
        self.changed: dict[str, None] = {}
        """Ids in the order of their first change: a dict, because a set has no order."""
        self._runs: dict[str, dict[str, Run]] = {}
        self._nodes: dict[str, dict[str, NodeFact]] = {}
        self._owned: defaultdict[str, dict[str, NodeFact]] = defaultdict(dict)
        """Nodes by the incident that their annotations name, and node name."""
        self._cordoning: dict[tuple[str, str], set[str]] = {}
        """Incidents whose runs cordon a node, by cluster and node name."""
        self._jobs: dict[str, dict[str, JobFact]] = {}
        self._about: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """Incidents that affect a job, by cluster and the job's key."""

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident. Older ones are ignored: a correlator may publish them again after a takeover."""
        known = self.incidents.get(incident.id)
        if known is not None and incident.revision < known.revision:
            return
        self.incidents[incident.id] = incident
        self.changed[incident.id] = None
        for job in incident.jobs:
            self._about[incident.cluster, job.key].add(incident.id)

    def take_run(self, run: Run) -> None:
        """The latest revision of a run."""
        self._runs.setdefault(run.incident, {})[run.id] = run
        for planned in run.plan.steps:
            if planned.action == "cordon_node" and planned.target is not None:
                self._cordoning.setdefault((run.cluster, planned.target.name), set()).add(run.incident)
        self.changed[run.incident] = None

    def take_node(self, cluster: str, name: str, fact: NodeFact | None) -> None:
        """A node of the inventory, or None when it was deleted. Incidents that it is cordoned for show whether it still is."""
        nodes = self._nodes.setdefault(cluster, {})
        before = nodes.pop(name, None)
        if before is not None:
            for owner in before.owners:
                self._owned[owner].pop(name, None)
                self.changed[owner] = None
        if fact is not None:
            nodes[name] = fact
            for owner in fact.owners:
                self._owned[owner][name] = fact
                self.changed[owner] = None
        for incident in self._cordoning.get((cluster, name), ()):
            self.changed[incident] = None

    def take_job(self, cluster: str, name: str, fact: JobFact | None) -> None:
        """A job of the inventory by its key, or None when it was deleted."""
        jobs = self._jobs.setdefault(cluster, {})
        before = jobs.pop(name, None)
        if fact is not None:
            jobs[name] = fact
        if before is None or fact is None or replace(before, observed_at=fact.observed_at) != fact:
            self.changed.update(dict.fromkeys(sorted(self._about.get((cluster, name), ()))))

    def jobs_in(self, cluster: str) -> Mapping[str, JobFact]:
        """The jobs of a cluster, by key."""
        return self._jobs.get(cluster, {})

    def audience_of(self, incident: Incident) -> Audience:
        """Who has to know of an incident, by itself and by what its runs do."""
        return Audience.OWNER if is_for_owner(incident, self._runs_of(incident)) else Audience.ON_CALL

    def handling_of(self, incident: Incident, thread: Thread) -> Handling:
        """What people have said about an incident, and whether any of its jobs is alive."""
        return Handling(
            thread.acked_by,
            thread.silenced_until,
            any(is_alive(self._jobs.get(incident.cluster, {}).get(job.key)) for job in incident.jobs),
        )

    def changes_at(self, incident: Incident, thread: Thread, now: datetime) -> datetime | None:
        """When the thread of an incident changes although nothing is reported."""
        if incident.state.is_over or not thread.posts:
            return None
        return next_change(self._runs_of(incident), self.handling_of(incident, thread), now)

    def _runs_of(self, incident: Incident) -> list[Run]:
        return list(self._runs.get(incident.id, {}).values())

    def slots_of(
        self,
        incident: Incident,
        thread: Thread,
        now: datetime,
        parent: Thread | None = None,
        siblings: Collection[str] = (),
    ) -> tuple[Slot, ...]:
        """The messages that an incident should have in the chat, if any. `parent` is the thread of its summary, `siblings` are
        the incidents that it shares that with."""
        runs = self._runs_of(incident)
        begun = thread.post(ROOT) is not None or any(post.slot.startswith(MEMBER) for post in thread.posts)
        if not begun and (
            thread.channel == NOWHERE or not is_worth_a_thread(incident, now, acted=has_acted(runs))
        ):
            return ()
        # What was sent and not answered may be there too: its question must lose its buttons, and its run goes on by steps.
        posted = frozenset(post.slot for post in thread.posts if post.may_stand)
        owned = self._owned[incident.id].values() if incident.id in self._owned else ()
        repairs = pending_repairs(incident.id, runs, self._nodes.get(incident.cluster, {}), owned)
        handling = self.handling_of(incident, thread)
        buttons = root_buttons(incident, runs, handling, now) if self._buttons else ()
        told_alone = thread.post(ROOT) is not None or asks_a_person(runs)
        slots: tuple[Slot, ...] = ()
        if parent is None or told_alone:
            slots = wanted(incident, runs, thread.log, posted, repairs, handling, buttons)
        if parent is not None:
            name = f"{MEMBER}{parent.incident}/{parent.generation}"
            if not told_alone:
                message = member_message(incident, runs, repairs, handling, buttons)
                slots = (Slot(name, message, root_mark(incident, runs, repairs, buttons), Urgency.ROOT),)
            elif name in posted:
                moved = Slot(name, moved_message(incident), f"moved {incident.state}", Urgency.STEP)
                slots = (*slots, moved)
        slots = (*slots, *self._for_owners(incident, runs, posted, siblings, now))
        return slots if is_worth_a_thread(incident, now) else still_updated(thread, slots)

    def _for_owners(
        self,
        incident: Incident,
        runs: list[Run],
        posted: frozenset[str],
        siblings: Collection[str],
        now: datetime,
    ) -> Iterator[Slot]:
        if self._owners is None:
            return
        jobs = self._jobs.get(incident.cluster, {})
        mine = tuple(job for job in incident.jobs if self._speaks_for(incident, job, siblings))
        ordered = sorted(runs, key=lambda run: (run.created_at, run.id))
        for one in owner_messages(
            incident, mine, ordered, jobs, self._owners, posted, now, buttons=self._buttons
        ):
            # Its state is its slot; what else it says may wait for the next change, but a button goes at once.
            mark = "offered" if any(isinstance(block, Buttons) for block in one.message.blocks) else "told"
            yield Slot(one.slot, one.message, mark, Urgency.OWNER, patience_s=30.0)

    def _speaks_for(self, incident: Incident, job: JobRef, siblings: Collection[str]) -> bool:
        """Whether it is this one of a summary's incidents that tells a job's owner: the first open one that affects the job."""
        about = (self.incidents[name] for name in self._about[incident.cluster, job.key] if name in siblings)
        first = min(about, key=lambda one: (one.state.is_over, one.opened_at, one.id), default=incident)
        return first.id == incident.id

    def summary_slots(
        self, summary: Summary, thread: Thread, now: datetime, own: Mapping[str, bool]
    ) -> tuple[Slot, ...]:
        """The message that a summary's thread begins with. `own`: members that have a thread of their own."""
        incidents = [self.incidents[name] for name in summary.members if name in self.incidents]
        recent = [one for one in incidents if is_worth_a_thread(one, now)]
        untold = thread.post(ROOT) is None
        if not incidents or (untold and all(one.state.is_over for one in incidents)):
            return ()
        message = summary_message(summary, incidents, own)
        slot = Slot(ROOT, message, summary_mark(incidents), Urgency.ROOT, patience_s=5.0)
        return (slot,) if recent else still_updated(thread, (slot,))


def is_alive(fact: JobFact | None) -> bool:
    """Whether a job is known to be there and to go on, as far as its object tells."""
    return fact is not None and not (fact.suspended or fact.finished or fact.failed)
