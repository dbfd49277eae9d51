"""What the notices of one partition are made from: the latest incidents, runs, nodes and controls, and what people did.

Every sink has a list of its own of the incidents to look at again, so a slow sink holds up no other one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from faultline.notify.situations import Attention, Standing, standing_of
from runbooks.engine.containment import PendingRepair, pending_repairs
from runbooks.engine.guardrails.cordoned_nodes import is_held
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.drill import is_drill
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.thread import ROOT, Thread

PEOPLE = "-"
"""The sink of documents that remember what people did about an incident."""
TAKEN = frozenset({"person.ack", "person.hand_over"})
"""Events by which a person takes an incident."""
SILENCED = "person.silence"
FOR_EVER = timedelta(days=3650)

Changed = dict[str, None]
"""Ids in the order of their first change: a dict, because a set has no order."""


class NoticeSources:
    """The documents of one partition. `changed` gives a sink its own list of what to look at again."""

    def __init__(self, *, approval_expiry_s: float) -> None:
        self.incidents: dict[str, Incident] = {}
        self._expiry = timedelta(seconds=approval_expiry_s)
        self._runs: dict[str, dict[str, Run]] = {}
        self._nodes: dict[str, dict[str, NodeFact]] = {}
        self._owned: defaultdict[str, dict[str, NodeFact]] = defaultdict(dict)
        self._controls: dict[str, Control] = {}
        self._attention: dict[str, Attention] = {}
        self._roots: dict[str, tuple[str, str]] = {}
        """Channel and id of the first message of a thread."""
        self._parents: dict[str, str] = {}
        """The summary whose thread an incident is told in."""
        self._readers: list[tuple[Changed, Callable[[], None]]] = []

    def changed(self, wake: Callable[[], None]) -> Changed:
        """A list of changed incidents for one reader, who takes ids out of it; `wake` is called when it grows."""
        changed: Changed = dict.fromkeys(self.incidents)
        self._readers.append((changed, wake))
        return changed

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident. Older ones are ignored: a correlator may publish them again after a takeover.

        A drill's incident is told nobody: whoever plays it watches it.
        """
        if is_drill(incident):
            return
        known = self.incidents.get(incident.id)
        if known is None or incident.revision >= known.revision:
            self.incidents[incident.id] = incident
            self._tell([incident.id])

    def take_run(self, run: Run) -> None:
        """The latest revision of a run."""
        self._runs.setdefault(run.incident, {})[run.id] = run
        self._tell([run.incident])

    def take_node(self, cluster: str, name: str, fact: NodeFact | None) -> None:
        """A node of the inventory, or None when it was deleted."""
        nodes = self._nodes.setdefault(cluster, {})
        before = nodes.pop(name, None)
        owners = [*(before.owners if before else ()), *(fact.owners if fact else ())]
        for owner in before.owners if before else ():
            self._owned[owner].pop(name, None)
        if fact is not None:
            nodes[name] = fact
            for owner in fact.owners:
                self._owned[owner][name] = fact
        self._tell(owners)

    def take_control(self, control: Control) -> None:
        """The controls of a cluster: every open incident there may be held or go on."""
        known = self._controls.get(control.cluster)
        if known is None or control.revision >= known.revision:
            self._controls[control.cluster] = control
            open_ones = (
                i for i in self.incidents.values() if i.cluster == control.cluster and not i.state.is_over
            )
            self._tell([incident.id for incident in open_ones])

    def take_thread(self, thread: Thread) -> None:
        """An incident's thread in the chat. Nothing is told anew for it: it only makes a link."""
        root = thread.post(ROOT)
        if root is not None and root.stands and root.ts:
            self._roots[thread.incident] = (thread.channel, root.ts)
        if thread.parent:
            self._parents[thread.incident] = thread.parent

    def thread_link(self, slack_url: str | None, incident: str) -> str:
        """Where the incident's thread is; empty where there is none."""
        root = self._roots.get(incident) or self._roots.get(self._parents.get(incident, ""))
        if slack_url is None or root is None:
            return ""
        channel, message = root
        return f"{slack_url.rstrip('/')}/archives/{channel}/p{message.replace('.', '')}"

    def control(self, cluster: str) -> Control:
        """The last known controls of a cluster."""
        return self._controls.get(cluster, Control(cluster))

    def take_act(self, entry: TimelineEntry) -> None:
        """What a person did about an incident."""
        old = self._attention.get(entry.incident, Attention())
        if entry.event in TAKEN:
            new = Attention(entry.actor, old.silent_until)
        elif entry.event == SILENCED:
            new = Attention(old.taken_by, _silent_until(entry))
        else:
            return
        self._attention[entry.incident] = new
        self._tell([entry.incident])

    def attention(self, incident: str) -> Attention:
        """What people did about an incident."""
        return self._attention.get(incident, Attention())

    def standing(self, incident: Incident) -> Standing:
        """What an incident waits for."""
        control = self._controls.get(incident.cluster)
        runs, repairs = self.runs(incident.id), self.repairs(incident)
        return standing_of(
            incident, runs, repairs, control, self.attention(incident.id), approval_expiry=self._expiry
        )

    def runs(self, incident: str) -> Sequence[Run]:
        """The runs of an incident, oldest first."""
        return sorted(self._runs.get(incident, {}).values(), key=lambda run: (run.created_at, run.id))

    def repairs(self, incident: Incident) -> tuple[PendingRepair, ...]:
        """The nodes that stay closed for an incident."""
        owned = self._owned[incident.id].values() if incident.id in self._owned else ()
        return pending_repairs(
            incident.id, self.runs(incident.id), self._nodes.get(incident.cluster, {}), owned
        )

    def closed_nodes(self, incident: str) -> tuple[str, ...]:
        """The nodes that are closed for an incident, as the inventory shows them, by name."""
        owned = self._owned.get(incident, {})
        return tuple(sorted(name for name, fact in owned.items() if is_held(fact)))

    def _tell(self, incidents: Iterable[str]) -> None:
        for changed, wake in self._readers:
            changed.update(dict.fromkeys(incidents))
            wake()


def is_an_act(entry: TimelineEntry) -> bool:
    """Whether a timeline entry is kept: what else people do shows in the runs."""
    return bool(entry.incident) and (entry.event in TAKEN or entry.event == SILENCED)


def _silent_until(entry: TimelineEntry) -> datetime:
    try:
        until = datetime.fromisoformat(str(entry.attributes.get("until", "")))
    except ValueError:
        return entry.at + FOR_EVER
    return until if until.tzinfo else until.replace(tzinfo=UTC)
