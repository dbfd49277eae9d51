"""The documents that threads are made from: incidents, their runs, and the nodes that stay cordoned for them."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from faultline.chat.thread_plan import Slot, has_acted, is_worth_a_thread, still_updated, wanted
from runbooks.engine.containment import pending_repairs
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.thread import ROOT, Thread


class ThreadSources:
    """The latest incidents, runs and nodes of one partition. `changed` holds the incidents to be planned again."""

    def __init__(self) -> None:
        self.incidents: dict[str, Incident] = {}
        self.changed: dict[str, None] = {}
        """Ids in the order of their first change: a dict, because a set has no order."""
        self._runs: dict[str, dict[str, Run]] = {}
        self._nodes: dict[str, dict[str, NodeFact]] = {}
        self._owned: defaultdict[str, dict[str, NodeFact]] = defaultdict(dict)
        """Nodes by the incident that their annotations name, and node name."""
        self._cordoning: dict[tuple[str, str], set[str]] = {}
        """Incidents whose runs cordon a node, by cluster and node name."""

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident. Older ones are ignored: a correlator may publish them again after a takeover."""
        known = self.incidents.get(incident.id)
        if known is not None and incident.revision < known.revision:
            return
        self.incidents[incident.id] = incident
        self.changed[incident.id] = None

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

    def slots_of(self, incident: Incident, thread: Thread, now: datetime) -> tuple[Slot, ...]:
        """The messages that the thread of an incident should hold; empty when it needs no thread."""
        runs = list(self._runs.get(incident.id, {}).values())
        if thread.post(ROOT) is None and not is_worth_a_thread(incident, now, acted=has_acted(runs)):
            return ()
        # What was sent and not answered may be there too: its question must lose its buttons, and its run goes on by steps.
        posted = frozenset(post.slot for post in thread.posts if post.may_stand)
        owned = self._owned[incident.id].values() if incident.id in self._owned else ()
        repairs = pending_repairs(incident.id, runs, self._nodes.get(incident.cluster, {}), owned)
        slots = wanted(incident, runs, thread.log, posted, repairs)
        return slots if is_worth_a_thread(incident, now) else still_updated(thread, slots)
