"""Where a signal or fact is kept, and what has to be judged anew because of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families, is_failure_of_job, storage_system
from streams.correlate.policy.kinds import ERROR, FAILURES, LINK, NOT_READY, PFC, TIMEOUT
from streams.correlate.state.host_names import Hosts
from streams.correlate.state.incarnations import closes
from streams.correlate.state.link_parts import placed
from streams.correlate.state.placement import Placements
from streams.correlate.state.readiness import readiness
from streams.correlate.state.renamed_hosts import Callings
from streams.correlate.state.rows import (
    Groups,
    JobRow,
    NodeRow,
    PodRow,
    PortRow,
    RankTold,
    RunsRow,
    SeenShelf,
    State,
    with_cordon,
    with_names,
    with_pod_fact,
    with_pod_gone,
    with_progress,
    with_rank,
    with_upkeep,
)
from streams.correlate.state.sightings import Sighting, added, order, sighting
from streams.model.entity import JobRef, PodRef
from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, PodFact
from streams.model.signal import Signal

NODE_KINDS = frozenset(
    {
        *(kind for kind in families().kinds if kind.startswith(("gpu.", "node."))),
        *(NOT_READY, TIMEOUT, ERROR, PFC, LINK),
    }
)
_ORDINAL = re.compile(r"(?:-(?:worker|master|launcher|node|replica))?(?:-\d+)+(?:-[a-z0-9]{5})?$")
MAX_STRANGERS = 5000
"""Nodes, pods and ports that signals name and the inventory does not know. Log text can name any number of them."""


@dataclass(slots=True)
class Touched:
    """What has to be judged anew. `causes` are incidents whose symptoms changed."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    ports: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    pressing: set[str] = field(default_factory=set)
    """Of the jobs, those that may take over what an incident was opened for."""
    moves: list[tuple[str, datetime]] = field(default_factory=list)
    """Jobs that told of their progress, and when they made it."""
    placed: set[str] = field(default_factory=set)
    """Jobs whose pods or whose end the inventory told of anew."""

    def __ior__(self, other: Touched) -> Touched:
        self.nodes |= other.nodes
        self.jobs |= other.jobs
        self.ports |= other.ports
        self.switches |= other.switches
        self.shared |= other.shared
        self.causes |= other.causes
        self.pressing |= other.pressing
        self.moves += other.moves
        self.placed |= other.placed
        return self

    def scope(self, scope: str) -> None:
        """Touch a place by its scope."""
        kind, _, name = scope.partition("/")
        places = {"node": self.nodes, "job": self.jobs, "port": self.ports, "switch": self.switches}
        places.get(kind, self.shared).add(name)


class Intake:
    """Writes rows. Keeps the few indexes that rows are found by."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state = state
        self._placements = placements
        self._ports: dict[str, set[str]] = defaultdict(set)
        self._guesses: dict[str, set[str]] = defaultdict(set)
        self._guessed: dict[str, str] = {}
        self._failing: dict[str, set[str]] = defaultdict(set)
        """Pods that failed on a node where they may never have been placed, by the node that told of it."""
        self._beyond: dict[str, set[str]] = defaultdict(set)
        """Ports whose cable ends at this one."""
        self._leaves: dict[str, set[str]] = defaultdict(set)
        """Nodes by the label of their leaf."""
        self._racks: dict[str, set[str]] = defaultdict(set)
        """Nodes by the label of their rack."""
        self._told: dict[str, set[str]] = defaultdict(set)
        """Ports that signals named, by their device."""
        self._switches: dict[str, set[str]] = defaultdict(set)
        """Ports by their switch."""
        self.ignored = 0
        """Signals of kinds, or without the place, that correlation has no use for."""
        self._strangers: dict[str, set[str]] = {
            "node": {n for n, node in state.nodes.items() if node.fact is None},
            "pod": {n for n, pod in state.pods.items() if not pod.tenancies},
            "port": {n for n, port in state.ports.items() if port.link is None},
        }
        """Places that only signals have named, by their kind."""
        self._left = {n for n, node in state.nodes.items() if node.gone_at is not None}
        """Nodes that were deleted and are not forgotten yet."""
        self._plugged: dict[str, str] = {}
        """By switch port: the node at the end of its cable, by the inventory's name."""
        self._cabled: dict[str, set[str]] = defaultdict(set)
        """Ports whose cable ends at a host of another or no known name, by what that name's meaning depends on."""
        self._hosts = Hosts()
        self._callings = Callings(self._hosts)
        for name, node in state.nodes.items():
            self._hosts.put(name, node)
        for shelf in (state.nodes, state.pods):
            for name in shelf.told:
                for s in (s for group in shelf[name].seen.values() for s in group):
                    self._callings.note(s, (shelf.kind, name))
        for name, port in state.ports.items():
            self._plug(name, port.link)
            if port.seen:
                self._told[name.partition("/")[0]].add(name)
        for name, node in state.nodes.items():
            self._hang(name, None, node.fact)
            if node.fact and node.fact.rack:
                self._racks[node.fact.rack].add(name)
        for name, pod in state.pods.items():
            self._guess(name, pod)
            for s in (s for group in pod.seen.values() if group[0].kind in FAILURES for s in group):
                self._fails(name, s)

    def everything(self) -> Touched:
        """All that anything was seen of: what a start has to judge."""
        touched = Touched(nodes={n for n, row in self._state.nodes.items() if row.seen})
        touched.ports = {n for n, row in self._state.ports.items() if row.seen}
        for name, row in self._state.pods.items():
            if row.seen:
                touched.jobs |= self._jobs_of(name)
        for document in self._state.documents.values():
            touched.scope(document.scope)
        return touched

    def ports_of(self, node: str) -> Iterable[str]:
        """Switch ports with this node at their end, sorted."""
        own = {port for port in self._told.get(node, ()) if node in self.hosts_at(port)}
        return sorted(own | self._ports.get(node, set()))

    def hosts_at(self, port: str) -> set[str]:
        """The node at the end of a switch port, if it is one; or whose own port it is, for InfiniBand's managers name both."""
        row = self._state.ports.get(port)
        if row and row.link:
            return {self._plugged.get(port, row.link.node)} if row.link.node else set()
        device = self._state.nodes.get(name := port.partition("/")[0])
        return {name} if device is not None and device.fact is not None else set()

    def cable(self, port: str) -> tuple[str, ...]:
        """The switch ports at both ends of a cable, sorted; only this one where the other end is a host or not known."""
        row = self._state.ports.get(port)
        ends = {port, *self._beyond.get(port, ())}
        if row and row.link and (peer := _peer(row.link)):
            ends.add(peer)
        return tuple(sorted(ends))

    def beyond(self, port: str) -> str | None:
        """The switch at the other end of a port's cable, if it is one."""
        row = self._state.ports.get(port)
        if row and row.link and row.link.peer_switch:
            return row.link.peer_switch
        return next((end.partition("/")[0] for end in self.cable(port) if end != port), None)

    def neighbours(self, switch: str) -> int:
        """How many hosts and switches hang on a switch, as far as cabling and labels tell."""
        found = {f"node/{name}" for name in self._leaves.get(switch, ())}
        for port in self._switches.get(switch, ()):
            link = self._state.ports[port].link
            if link and (link.node or link.peer_switch):
                host = self._plugged.get(port, link.node)
                found.add(f"node/{host}" if host else f"switch/{link.peer_switch}")
        return len(found)

    def nodes_in_rack(self, rack: str) -> int:
        """How many nodes a rack has, as far as labels tell."""
        return len(self._racks.get(rack, ()))

    def nodes_at_leaf(self, leaf: str) -> int:
        """How many nodes hang on a leaf, as far as labels tell."""
        return len(self._leaves.get(leaf, ()))

    def nodes_known(self) -> int:
        """How many nodes there are, as far as the inventory tells."""
        return len(self._state.nodes) - len(self._strangers["node"]) - len(self._left)

    def switches_of(self, node: str) -> set[str]:
        """The switches a node hangs on, by its cables and by the label of its leaf."""
        row = self._state.nodes.get(node)
        found = _leaves_of(row.fact) if row and row.fact else set()
        return found | {port.partition("/")[0] for port in self._ports.get(node, ())}

    def unplaced(self, job: str) -> list[str]:
        """Pods whose placement nobody told, taken for parts of the guessed job."""
        return sorted(self._guesses.get(job, ()))

    def guessed(self, key: str) -> JobRef:
        """The job reference behind a guessed key."""
        kind, namespace, name = key.split("/", 2)
        return JobRef(kind, namespace, name)

    def signal(self, signal: Signal, touched: Touched) -> None:
        """Keep one signal, and note what has to be judged anew because of it."""
        seen = sighting(signal)
        if seen is None:
            self.ignored += 1
        else:
            self._keep(self._callings.named(seen), touched)

    def _keep(self, seen: Sighting, touched: Touched) -> None:
        entity = seen.entity
        if seen.kind.startswith("run."):
            self._run(seen, touched)
        elif seen.kind == "job.progress" and entity.pod:
            self._progress(entity.pod, seen, touched)
        elif seen.kind == "job.rank" and entity.pod:
            self._rank(entity.pod, seen, touched)
        elif entity.pod and (seen.kind in (TIMEOUT, ERROR) or is_failure_of_job(seen)):
            self._in_pod(entity.pod, seen, touched)
        elif seen.kind == LINK and not entity.nic and not entity.switch:
            self._link_of(seen, touched)
        elif seen.kind in (PFC, LINK) and entity.switch and entity.port:
            self._on_port(f"{entity.switch}/{entity.port}", seen, touched)
        elif seen.kind in NODE_KINDS and entity.node:
            self._on_node(entity.node, seen, touched)
        else:
            self.ignored += 1

    def fact(self, key: str, fact: Fact | None, at: datetime) -> Touched:
        """Keep one fact, or its end. `key` is the record's: `<cluster>/<kind>/<name>`."""
        _, kind, name = key.split("/", 2)
        touched = self._fact(kind, name, fact, at)
        if kind == "node":
            self._rename(self._hosts.put(name, self._state.nodes.get(name)), touched)
        return touched

    def candidates(self, node: str, at: datetime) -> tuple[str, ...]:
        """Nodes that a name may mean which is none of theirs alone."""
        return self._callings.find(node, at).candidates

    def meant(self, node: str, at: datetime) -> str:
        """The node that a name meant at a time; the name itself when the inventory knows none, or several."""
        return self._callings.find(node, at).node or node

    def _rename(self, keys: set[str], touched: Touched) -> None:
        """What is kept under names that mean another node now moves there."""
        for said, places in self._callings.affected(keys).items():
            if said in self._state.nodes:
                touched.nodes.add(said)
            for kind, name in sorted(places):
                self._move(self._shelf(kind), said, name, touched)
        for name in sorted({port for key in keys for port in self._cabled.get(key, ())}):
            self._plug_anew(name, touched)

    def _plug_anew(self, name: str, touched: Touched) -> None:
        """The host at a cable's end may be known by its name now, or be another one."""
        link, before = self._state.ports[name].link, self._plugged.get(name)
        self._unplug(name, link)
        self._plug(name, link)
        if (after := self._plugged.get(name)) != before:
            touched.nodes |= {node for node in (before, after) if node is not None}
            touched.ports |= {name, *self.cable(name)}
            touched.switches.add(name.partition("/")[0])

    def _shelf(self, kind: str) -> SeenShelf[Any]:
        return self._state.nodes if kind == "node" else self._state.pods

    def _forget_names(self) -> set[str]:
        """Names by which nothing that is kept was called any more. Returns the keys that mean something else for it."""
        keys: set[str] = set()
        called: dict[tuple[str, str], set[str | None]] = {}
        for said, place in self._callings.everywhere():
            if place not in called:
                row = self._shelf(place[0]).get(place[1])
                kept = (s for group in row.seen.values() for s in group) if row is not None else ()
                called[place] = {s.said or s.entity.node for s in kept}
            if said not in called[place]:
                keys |= self._callings.forget(said, place)
        return keys

    def _move(self, shelf: SeenShelf[Any], said: str, name: str, touched: Touched) -> None:
        row = shelf.get(name)
        kept = [s for group in row.seen.values() for s in group] if row is not None else []
        called = [s for s in kept if said == (s.said or s.entity.node)]
        moved = {s.id: new for s in called if (new := self._callings.named(s)) is not s}
        if row is not None and moved:
            left = {
                key: rest
                for key, group in row.seen.items()
                if (rest := tuple(s for s in group if s.id not in moved))
            }
            shelf.put(name, replace(row, seen=left))
            (touched.nodes if shelf.kind == "node" else touched.jobs).update(
                [name] if shelf.kind == "node" else self._jobs_of(name)
            )
        for new in moved.values():
            self._keep(new, touched)

    def _fact(self, kind: str, name: str, fact: Fact | None, at: datetime) -> Touched:
        match fact:
            case NodeFact():
                return self._node(fact)
            case PodFact():
                return self._pod(name, with_pod_fact(self._state.pods.get(name, PodRow()), fact))
            case JobFact():
                return self._job(name, fact, None)
            case LinkFact():
                return self._link(name, fact)
        if kind == "node" and name in self._state.nodes:
            row = self._state.nodes[name]
            self._state.nodes.put(name, replace(row, gone_at=max(at, row.gone_at or at)))
            self._left.add(name)
            return Touched(nodes={name})
        if kind == "link" and name in self._state.ports:
            return self._uncabled(name, at)
        if kind == "pod" and name in self._state.pods:
            return self._pod(name, with_pod_gone(self._state.pods[name], at))
        if kind == "job" and name in self._state.jobs:
            return self._job(name, None, at)
        return Touched()

    def prune(self, now: datetime, config: Config, open_jobs: set[str], places: set[str]) -> Touched:
        """Forget what is older than the retention and part of nothing open. Returns what was touched by it.

        A node and the ports that its cables end at are forgotten together: half of what both said of a link tells another story.
        `places` are scopes whose sightings an open incident of another scope is built from.
        """
        cut = now - config.retention
        touched = Touched()
        busy = {d.scope for d in self._state.documents.values()} | places
        for name in sorted(self._state.nodes.told):
            row = self._state.nodes[name]
            if not self._is_held(name, busy, open_jobs):
                kept = _kept(row.seen, self._links_at([name], ()), cut, config)
                if kept != row.seen:
                    self._state.nodes.put(name, replace(row, seen=kept))
                    touched.nodes.add(name)
        for name in sorted(self._state.ports.told):
            port = self._state.ports[name]
            ends, hosts = self.cable(name), self.hosts_at(name)
            held = any(f"port/{end}" in busy for end in ends)
            if not held and not any(self._is_held(n, busy, open_jobs) for n in hosts):
                kept = _kept(port.seen, self._links_at(hosts, ends), cut, config)
                if kept != port.seen:
                    self._state.ports.put(name, replace(port, seen=kept))
                    touched.ports.add(name)
        for name, pod in list(self._state.pods.items()):
            stays_on = bool(pod.tenancies) and not pod.seen and not self._placements.has_ended(name)
            if not stays_on and not self._jobs_of(name) & open_jobs:
                touched |= self._prune_pod(name, pod, cut)
        self._drop_places(cut, busy)
        self._rename(self._forget_names(), touched)
        for name, job in list(self._state.jobs.items()):
            if job.is_gone and job.gone_at and job.gone_at < cut and name not in open_jobs:
                self._state.jobs.drop(name)
        for name, base in list(self._state.bases.items()):
            if base.until < now - config.bases_kept:
                self._state.bases.drop(name)
        for node, pods in list(self._failing.items()):
            pods &= self._state.pods.keys()
            if not pods:
                del self._failing[node]
        return touched

    def _links_at(self, nodes: Iterable[str], ports: Iterable[str]) -> Iterator[Sequence[Sighting]]:
        """What was seen on these nodes, at these ports, and at the ends of the nodes' cables."""
        around = {end for node in nodes for port in self.ports_of(node) for end in self.cable(port)}
        rows = [self._state.nodes.get(node) for node in nodes]
        for row in (*rows, *(self._state.ports.get(port) for port in sorted(around.union(ports)))):
            yield from row.seen.values() if row is not None else ()

    def _is_held(self, node: str, busy: set[str], open_jobs: set[str]) -> bool:
        """Whether something is built from what was seen on a node, or at the ports of its cables."""
        if f"node/{node}" in busy or self._placements.jobs_near(node) & open_jobs:
            return True
        return any(f"port/{end}" in busy for port in self.ports_of(node) for end in self.cable(port))

    def _drop_places(self, cut: datetime, busy: set[str]) -> None:
        """Forget nodes that were deleted, and places that nobody but a forgotten signal ever named."""
        for name in sorted(self._left):
            row = self._state.nodes.get(name)
            if row is None or row.left_at is None:
                self._left.discard(name)
            elif (
                row.left_at < cut
                and not row.seen
                and f"node/{name}" not in busy
                and not self._placements.jobs_near(name)
            ):
                self._left.discard(name)
                self._hang(name, row.fact, None)
                if row.fact and row.fact.rack:
                    self._racks[row.fact.rack].discard(name)
                self._state.nodes.drop(name)
                self._hosts.put(name, None)
        for name in sorted(self._strangers["node"]):
            if (node := self._state.nodes.get(name)) is None or not node.seen:
                self._strangers["node"].discard(name)
                self._state.nodes.drop(name)
        for name in sorted(self._strangers["port"]):
            if (port := self._state.ports.get(name)) is None or not port.seen:
                self._strangers["port"].discard(name)
                self._state.ports.drop(name)
        self._strangers["pod"].intersection_update(self._state.pods)

    def _admits(self, kind: str, name: str, known: Container[str]) -> bool:
        """Whether a signal of that place is kept. Beyond a number, what neither inventory nor signals knew before is not."""
        if name in known:
            return True
        if len(self._strangers[kind]) >= MAX_STRANGERS:
            self.ignored += 1
            return False
        self._strangers[kind].add(name)
        return True

    def _prune_pod(self, name: str, row: PodRow, cut: datetime) -> Touched:
        over = {s.uid for s in self._placements.of_pod(name) if s.end is not None and s.end < cut}
        tenancies = tuple(t for t in row.tenancies if t.fact.uid not in over)
        seen = {k: left for k, group in row.seen.items() if (left := _since(group, cut))}
        heard = [*(t.at for t in row.ranks), *([row.progress_at] if row.progress_at else [])]
        silent = not heard or max(heard) < cut
        if tenancies == row.tenancies and seen == row.seen and (tenancies or seen or not silent):
            return Touched()
        if not tenancies and not seen and silent:
            touched = Touched(jobs=self._jobs_of(name))
            self._state.pods.drop(name)
            self._forget_guess(name)
            self._placements.update(name, None)
            return touched
        return self._pod(name, replace(row, tenancies=tenancies, seen=seen))

    def _node(self, fact: NodeFact) -> Touched:
        self._strangers["node"].discard(fact.name)
        row = self._state.nodes.get(fact.name, NodeRow())
        leaves: set[str] = set()
        new = row.fact is None
        if row.fact is None or row.fact.observed_at <= fact.observed_at:
            leaves = self._hang(fact.name, row.fact, fact)
            if row.fact and row.fact.rack:
                self._racks[row.fact.rack].discard(fact.name)
            if fact.rack:
                self._racks[fact.rack].add(fact.name)
            row = replace(row, fact=fact)
        for owner in fact.owners:
            row = with_cordon(row, owner, fact.observed_at)
        row = with_names(with_upkeep(row, fact), fact)
        changed = self._state.nodes.put(fact.name, row)
        told = readiness(fact)
        # A node that never was Ready has gone nowhere: nothing is lost with it, however many join at once.
        if (
            (told.firing and not fact.joining)
            or any(k.startswith(NOT_READY) for k in row.seen)
            or fact.ready_since
        ):
            changed |= self._state.nodes.see(fact.name, f"node.not_ready|{told.firing}", told)
        ports = set(self._told.get(fact.name, ())) if new else set()
        return Touched(nodes={fact.name}, ports=ports, switches=leaves) if changed else Touched()

    def _hang(self, node: str, before: NodeFact | None, after: NodeFact | None) -> set[str]:
        """Note the leaves a node hangs on. Returns those that gained or lost it."""
        old, new = (_leaves_of(fact) if fact else set() for fact in (before, after))
        for leaf in old - new:
            self._leaves[leaf].discard(node)
        for leaf in new:
            self._leaves[leaf].add(node)
        return old ^ new

    def _pod(self, name: str, row: PodRow) -> Touched:
        if row.tenancies:
            self._strangers["pod"].discard(name)
        if not self._state.pods.put(name, row):
            return Touched()
        guessed = self._forget_guess(name) | self._jobs_of(name)
        nodes, jobs = self._placements.update(name, row)
        self._guess(name, row)
        busy = {n for n in nodes if (seen := self._state.nodes.get(n)) is not None and seen.seen}
        return Touched(
            nodes=busy | {n for n in nodes if self._ports.get(n)},
            jobs=jobs | (guessed if row.seen else set()),
            causes={f"job:{job}" for job in jobs},
            placed=jobs,
        )

    def _job(self, name: str, fact: JobFact | None, gone_at: datetime | None) -> Touched:
        row = self._state.jobs.get(name, JobRow())
        if fact is not None and (row.fact is None or row.fact.observed_at <= fact.observed_at):
            row = replace(row, fact=fact)
        if gone_at is not None:
            row = replace(row, gone_at=max(gone_at, row.gone_at or gone_at))
        return Touched(jobs={name}, placed={name}) if self._state.jobs.put(name, row) else Touched()

    def _link(self, name: str, link: LinkFact) -> Touched:
        self._strangers["port"].discard(name)
        row = self._state.ports.get(name, PortRow())
        if row.link is not None and row.link.observed_at > link.observed_at:
            return Touched()
        before = self.hosts_at(name)
        ends = set(self.cable(name))
        if not self._state.ports.put(name, replace(row, link=link)):
            return Touched()
        self._unplug(name, row.link)
        self._plug(name, link)
        ends |= {name, *self.cable(name)}
        switches = {end.partition("/")[0] for end in ends}
        if link.peer_switch:
            switches.add(link.peer_switch)
        return Touched(nodes=before | self.hosts_at(name), ports=ends, switches=switches)

    def _uncabled(self, name: str, at: datetime) -> Touched:
        """A cable was pulled: what hung on the port hangs there no more."""
        row = self._state.ports[name]
        if row.link is None or row.link.observed_at > at:
            return Touched()
        before, ends, switch = self.hosts_at(name), set(self.cable(name)), row.link.switch
        self._unplug(name, row.link)
        self._switches[switch].discard(name)
        self._state.ports.put(name, replace(row, link=None))
        self._strangers["port"].add(name)
        return Touched(nodes=before, ports={name, *ends}, switches={switch})

    def _plug(self, name: str, link: LinkFact | None) -> None:
        if link is None:
            return
        self._switches[link.switch].add(name)
        if link.node:
            node = self._plugged[name] = self._hosts.find(link.node, link.observed_at).node or link.node
            self._ports[node].add(name)
            if link.node not in self._hosts:
                for key in self._hosts.keys(link.node):
                    self._cabled[key].add(name)
        if peer := _peer(link):
            self._beyond[peer].add(name)

    def _unplug(self, name: str, link: LinkFact | None) -> None:
        if link is None:
            return
        if link.node:
            self._ports[self._plugged.pop(name, link.node)].discard(name)
            for key in self._hosts.keys(link.node) & self._cabled.keys():
                self._cabled[key].discard(name)
        if peer := _peer(link):
            self._beyond[peer].discard(name)

    def _on_node(self, node: str, seen: Sighting, touched: Touched) -> None:
        if not self._admits("node", node, self._state.nodes):
            return
        rank = (
            f"|{seen.entity.rank if seen.entity.rank is not None else seen.text('rank')}|{seen.text('pg')}"
            if seen.kind.startswith("nccl")
            else ""
        )
        detail = seen.text("xid") or seen.text("direction") or f"{seen.text('subtype')}|{seen.text('sxid')}"
        if seen.kind == "node.storage":
            detail = f"{detail}|{storage_system(seen) or ''}"
        key = f"{seen.kind}|{seen.entity.key}|{detail}|{seen.text('queue')}|{seen.firing}{rank}"
        if seen.kind == NOT_READY:
            key = f"{NOT_READY}|{seen.firing}"
        if self._state.nodes.see(node, key, seen):
            touched.nodes.add(node)
            self._rename(self._callings.note(seen, ("node", node)), touched)

    def _link_of(self, seen: Sighting, touched: Touched) -> None:
        """A link that names no NIC: a host's own as a whole, or a port that a subnet's manager speaks of."""
        there = placed(seen)
        if there is not None and there.entity.switch and there.entity.port:
            self._on_port(f"{there.entity.switch}/{there.entity.port}", there, touched)
        elif there is not None and there.entity.node:
            self._on_node(there.entity.node, there, touched)
        else:
            self.ignored += 1

    def _on_port(self, name: str, seen: Sighting, touched: Touched) -> None:
        if not self._admits("port", name, self._state.ports):
            return
        key = f"{seen.kind}|{seen.text('queue')}|{seen.text('priority')}|{seen.firing}"
        if seen.kind == LINK:
            key = f"{seen.kind}|{seen.text('subtype')}|{seen.firing}"
        if self._state.ports.see(name, key, seen):
            self._told[name.partition("/")[0]].add(name)
            touched.ports.add(name)
            touched.nodes |= self.hosts_at(name)

    def _in_pod(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._admits("pod", pod.key, self._state.pods):
            return
        rank = seen.entity.rank if seen.entity.rank is not None else seen.text("rank")
        key = f"{seen.kind}|{rank}|{seen.text('pg')}|{seen.text('pg_rank')}|{seen.text('subtype')}"
        if seen.kind in FAILURES:
            key = (
                f"{seen.kind}|{rank}|{seen.text('local_rank')}|{seen.text('subtype')}|{seen.text('exitcode')}"
            )
        if self._state.pods.see(pod.key, key, seen):
            self._guess(pod.key, self._state.pods[pod.key])
            self._fails(pod.key, seen)
            touched.jobs |= self._jobs_of(pod.key)
            self._rename(self._callings.note(seen, ("pod", pod.key)), touched)

    def _rank(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._admits("pod", pod.key, self._state.pods):
            return
        rank, size = seen.number("rank"), seen.number("nranks")
        if rank is None or size is None:
            return
        told = RankTold(seen.at, rank, size, seen.number("index"), seen.text("pci") or None)
        row = with_rank(self._state.pods.get(pod.key, PodRow()), told)
        if self._state.pods.put(pod.key, row):
            touched.jobs |= self._placements.update(pod.key, row)[1]
            # Also where the placement stays as it was: which GPU a rank holds is told of its culprits.
            touched.jobs |= {stay.job.key for stay in self._placements.of_pod(pod.key)}

    def _progress(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._admits("pod", pod.key, self._state.pods):
            return
        row = self._state.pods.get(pod.key, PodRow())
        if self._state.pods.put(pod.key, with_progress(row, seen.at, seen.number("step"))):
            jobs = {stay.job.key for stay in self._placements.of_pod(pod.key)}
            touched.causes |= {f"job:{job}" for job in jobs}
            touched.moves += ((job, seen.at) for job in sorted(jobs))

    def _run(self, seen: Sighting, touched: Touched) -> None:
        incident = seen.text("incident")
        row = self._state.runs.get(incident, RunsRow())
        # What ended it is counted by itself: no number of other events may push it out.
        ends = closes(seen)
        told = added(tuple(e for e in row.events if closes(e) is ends), seen)
        events = tuple(sorted((*told, *(e for e in row.events if closes(e) is not ends)), key=order))
        if not incident or not self._state.runs.put(incident, RunsRow(events)):
            return
        touched.causes.add(incident)
        if (document := self._state.documents.get(incident)) is not None:
            touched.scope(document.scope)

    def _jobs_of(self, pod: str) -> set[str]:
        return {stay.job.key for stay in self._placements.of_pod(pod)} or {self._job_without_node(pod)}

    def jobs_failing_on(self, node: str) -> set[str]:
        """Keys of jobs whose pods were told to fail on the node."""
        return {
            job
            for pod in self._failing.get(node, ())
            if pod in self._state.pods
            for job in self._jobs_of(pod)
        }

    def _fails(self, pod: str, seen: Sighting) -> None:
        if seen.kind in FAILURES and seen.entity.node:
            self._failing[seen.entity.node].add(pod)

    def _job_without_node(self, pod: str) -> str:
        """Whose a pod is that stands nowhere: as the inventory says, else as its name does."""
        row = self._state.pods.get(pod)
        told = [t.fact.job for t in row.tenancies if t.fact.job] if row else []
        return told[-1].key if told else _guess(pod)

    def _guess(self, pod: str, row: PodRow) -> None:
        if row.seen and not self._placements.of_pod(pod):
            key = self._guessed[pod] = self._job_without_node(pod)
            self._guesses[key].add(pod)

    def _forget_guess(self, pod: str) -> set[str]:
        """Take a pod out of the job it was thought to be part of, and say which."""
        key = self._guessed.pop(pod, None)
        if key is None:
            return set()
        self._guesses[key].discard(pod)
        if not self._guesses[key]:
            del self._guesses[key]
        return {key}


def _leaves_of(node: NodeFact) -> set[str]:
    """The leaves a node hangs on: by its label, and by the rails of a cabling file."""
    return {leaf for leaf in (node.leaf, *node.rails.values()) if leaf}


def _peer(link: LinkFact) -> str | None:
    """The switch port at the other end of a cable, if it is one."""
    return f"{link.peer_switch}/{link.peer_port}" if link.peer_switch and link.peer_port else None


def _guess(pod: str) -> str:
    """Pods of one job differ in their ordinals; until the inventory says better, the rest of the name is the job."""
    namespace, _, name = pod.partition("/")
    return f"Pod/{namespace}/{_ORDINAL.sub('', name) or name}"


def _forget_before(seen: Iterable[Sequence[Sighting]], cut: datetime, config: Config) -> datetime:
    """From when on what was seen of links is kept that may be one fault: `cut`, or earlier where such a fault lies across it.

    It is forgotten as a whole, with what excuses it. Half of it would tell another story: without the bounce before it, a counter
    that rose speaks of optics that fail.
    """
    gap = config.link_quiet + config.link_settle
    since: datetime | None = None
    for at in sorted((s.at for group in seen if group[0].kind == LINK for s in group), reverse=True):
        if at < cut and (since is None or since - at > gap):
            break
        since = at
    return cut if since is None else min(cut, since - config.before)


def _kept(seen: Groups, links: Iterable[Sequence[Sighting]], cut: datetime, config: Config) -> Groups:
    """What is left of what was seen at one place, when the faults of its links are forgotten as wholes."""
    since = _forget_before(links, cut, config)
    return {key: left for key, group in seen.items() if (left := _since(group, since))}


def _since(group: tuple[Sighting, ...], cut: datetime) -> tuple[Sighting, ...]:
    return tuple(s for s in group if s.at >= cut)
