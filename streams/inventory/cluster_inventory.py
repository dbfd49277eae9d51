"""All that is known of one cluster, fed by a watch; says which facts changed and which are gone.

Facts depend on each other: a pod's ranks come from its job, whether it counts at all too. So nothing is said until
`settle`: by then every kind has been listed once, and a restart does not publish half-known pods. Facts that were
published by an earlier process are taken over by `adopt`; those whose objects are not listed become tombstones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from streams.inventory.job_shape import JobShape, shape_of
from streams.inventory.jobs import Workload, job_fact
from streams.inventory.known_pod import KnownPod, known_pod
from streams.inventory.names import NodeLabels, names
from streams.inventory.nodes import node_fact
from streams.inventory.objects import Identity, gpus_requested, identity, is_node_work, kind_of
from streams.inventory.owners import OwnerTable, chain, labelled_owners, top_owner
from streams.inventory.pod_templates import PodTemplates
from streams.inventory.pods import pod_fact
from streams.inventory.ranks import ranks_of
from streams.inventory.slurmd_pods import SlurmdPods
from streams.inventory.topology_file import NodePosition
from streams.inventory.workloads import Classifier, says
from streams.job_kinds.kind import JobKind
from streams.job_kinds.known import KNOWN
from streams.model.entity import SLURM_JOB, JobRef, is_of_slurm
from streams.model.facts import Fact, FactRecord, JobFact, LinkFact, NodeFact, PodFact
from streams.model.hostnames import folded
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import KubeObject, labels_of, part
from streams.model.watch import FactsListed, KindListed, ObjectChange, WatchEvent

FactChange = tuple[str, FactRecord | None]
"""A record of the `inventory` topic: its key, and the fact or None for a tombstone."""

MOST_MEMBERSHIPS = 20_000
"""So many are kept at most: each is of some pod that was there since a job last changed."""

_PREFIXES: Mapping[str, str] = {"Node": "node/", "Pod": "pod/", "link": "link/"}


@dataclass(frozen=True, slots=True)
class Membership:
    """To which job pods of one template and one owner belong, and what follows from it, by the jobs that are known."""

    job: JobRef | None
    above: frozenset[Identity]
    """Its owners, and what says what the pods are, known or not: they are placed anew when one comes, goes or changes."""
    work: Workload
    counts: bool
    """Whether its pods are told even where they hold no GPUs."""
    shape: JobShape | None
    """What says what the pods of the job are: the job, what it wraps, or what it has made; None while it is unknown."""
    kind: JobKind | None


class Inventory:
    """One cluster. Not for concurrent use; pure but for its own memory.

    `labels` say where nodes stand and `classifier` what work is for, else the tables that ship. With a `selector`, labels as
    `key` or `key=value`, only nodes that bear all of it are nodes of the cluster.
    """

    def __init__(
        self,
        cluster: str,
        labels: NodeLabels | None = None,
        classifier: Classifier | None = None,
        selector: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._selector = tuple(selector)
        self._labels = labels
        self._classifier = classifier or Classifier()
        self._settled = False
        self._templates, self._owner_table = PodTemplates(), OwnerTable()
        self._pods: dict[Identity, KnownPod] = {}
        self._jobs: dict[Identity, JobShape] = {}
        self._former: dict[str, JobShape] = {}
        """By uid: deleted jobs and parts of them of which pods are left; those belong to what they belonged to."""
        self._pods_under: defaultdict[Identity, set[Identity]] = defaultdict(set)
        self._owners_of: dict[Identity, frozenset[Identity]] = {}
        self._slurmds = SlurmdPods()
        self._wanted: dict[str, FactRecord] = {}
        self._published: dict[str, FactRecord | None] = {}
        self._listed: set[str] = set()
        self._touched: dict[str, None] = {}
        self._memberships: dict[tuple[Any, ...], Membership] = {}
        """By all of a pod that they depend on. They hold until the shape of any job changes, so that none outlives a job."""
        self._places: Mapping[str, NodePosition] = {}
        self._told: Mapping[str, Fact] = {}
        """By key: what another system than the API server told last."""

    @property
    def settled(self) -> bool:
        """Whether changes are told as they come."""
        return self._settled

    @property
    def facts(self) -> Mapping[str, FactRecord | None]:
        """What has been told and not taken back, by key; None for what was adopted unread."""
        return self._published

    def adopt(self, published: Mapping[str, FactRecord | None]) -> None:
        """Take over what the topic holds of this cluster, by key; None where it could not be read, which differs from
        everything. Call before the first event.
        """
        self._published.update(published)

    def apply(self, event: WatchEvent) -> list[FactChange]:
        """Learn one event; returns the facts that differ from what was told last (the time of observation aside).

        Raises:
            BadInput: when an object has no kind or no name.
        """
        if isinstance(event, KindListed):
            self._list(event)
        elif isinstance(event, FactsListed):
            self._list_facts(event)
        else:
            self._learn(event)
        return self._changes()

    def links(self, facts: Iterable[LinkFact]) -> list[FactChange]:
        """Learn the cabling; it replaces all links known before."""
        for key in [key for key in (*self._wanted, *self._published) if key.startswith(self._prefix("link"))]:
            self._want(key, None)
        for fact in facts:
            self._want(fact.key, fact)
        return self._changes()

    def places(self, places: Mapping[str, NodePosition]) -> None:
        """Learn where nodes stand, by their names; it counts for more than their labels. Call before the first event."""
        self._places = {**{folded(name): place for name, place in places.items()}, **places}

    def settle(self) -> list[FactChange]:
        """From here on changes are told; returns all that differs from what was adopted."""
        self._settled = True
        self._name_hosts()
        self._touched.update(dict.fromkeys(self._wanted))
        for prefix in self._listed:
            stale = (key for key in self._published if key.startswith(prefix) and not self._is_slurms(key))
            self._touched.update(dict.fromkeys(stale))
        return self._changes()

    def _learn(self, change: ObjectChange) -> None:
        who, gone = identity(change.object), change.type == "DELETED"
        if is_node_work(change.object):
            return
        if who.kind == "Node":
            # One that loses the label goes: nobody may act on it by what is remembered of it.
            gone = gone or not all(says(labels_of(change.object), label) for label in self._selector)
            fact = None if gone else node_fact(self._cluster, change.object, change.at, self._labels)
            if fact is None:
                self._slurmds.forget(who.name)
            self._want(self._key(who), fact and self._standing(self._slurmds.named(fact)))
        elif who.kind == "Pod":
            self._learn_pod(who, None if gone else change.object, change.at)
        elif who.kind not in names().services | names().not_jobs | names().starters:
            self._learn_job(who, None if gone else change.object, change.at)

    def _standing(self, node: NodeFact) -> NodeFact:
        """The node where the topology file says it stands."""
        named = (node.name, folded(node.name), *node.aliases, *node.addresses)
        place = next((place for name in named if (place := self._places.get(name)) is not None), None)
        if place is None:
            return node
        return replace(
            node,
            leaf=place.leaf or node.leaf,
            rack=place.rack or node.rack,
            nvlink_domain=place.nvlink_domain or node.nvlink_domain,
            rails=place.rails,
        )

    def _name_hosts(self) -> None:
        """LLDP tells hosts by their own names, with a domain or without; cables go to nodes as Kubernetes names them."""
        nodes = [r.fact for r in self._wanted.values() if isinstance(r.fact, NodeFact)]
        known = {node.name for node in nodes}
        called: dict[str, set[str]] = defaultdict(set)
        short: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            short[folded(node.name).partition(".")[0]].add(node.name)
            for name in (node.name, *node.aliases, *node.addresses):
                called[folded(name)].add(node.name)
        for key, record in list(self._wanted.items()):
            link = record.fact
            if isinstance(link, LinkFact) and link.node and link.node not in known:
                name = folded(link.node)
                named = called.get(name) or short.get(name.partition(".")[0], set())
                if len(named) == 1:
                    self._want(key, replace(link, node=next(iter(named))))

    def _learn_pod(self, who: Identity, pod: KubeObject | None, at: datetime) -> None:
        owners = self._owner_table.of(pod, who.namespace) if pod is not None else None
        for node in self._slurmds.learn(who, pod):
            self._want(node.key, self._standing(node))
        # It could never be published unless it holds GPUs, or something that may be a training job controls it.
        if pod is None or owners is None or not (owners.may_train or gpus_requested(part(pod, "spec"))):
            self._pods.pop(who, None)
            self._own(who, frozenset())
            self._want(self._key(who), None)
            return
        known = known_pod(who, pod, owners, self._templates)
        if self._pods.get(who) != known:  # a repeated list says of nearly all pods what was known before
            self._pods[who] = known
            self._place(who, at)

    def _learn_job(self, who: Identity, job: KubeObject | None, at: datetime) -> None:
        former = self._jobs.get(who)
        shape = shape_of(job, self._templates, self._owner_table) if job is not None else None
        replaced = former is not None and (shape is None or shape.uid != former.uid)
        if former is not None and former.uid and replaced and who in self._pods_under:
            self._former[former.uid] = former
        if job is None or shape is None:
            self._jobs.pop(who, None)
            self._want(self._key(who), None)
        else:
            self._jobs[who] = shape
            work = self._classifier.of_job(shape, self._owner)
            topmost = shape.owners.above is None
            told = topmost and (work.kind is WorkloadClass.TRAINING or shape.asks_for_gpus)
            self._want(self._key(who), job_fact(self._cluster, job, at, work, shape) if told else None)
        if shape != former:
            self._memberships.clear()
            for pod in sorted(self._pods_under.get(who, ())):
                self._place(pod, at)

    def _place(self, who: Identity, at: datetime) -> None:
        """Work out a pod's job and ranks anew."""
        pod = self._pods[who]
        member = self._membership(pod)
        self._own(who, member.above)
        if not pod.template.gpus and not member.counts:
            self._want(self._key(who), None)
            return
        trains = member.work.kind is WorkloadClass.TRAINING
        ranks = ranks_of(pod, member.shape) if member.job and trains else None
        goes_on = member.kind is not None and member.kind.goes_on_without(_about(pod))
        fact = pod_fact(
            self._cluster,
            pod,
            at,
            job=member.job,
            ranks=ranks,
            work=member.work,
            replaceable=goes_on,
        )
        self._want(self._key(who), fact)

    def _membership(self, pod: KnownPod) -> Membership:
        """What holds for all pods of its owner and its template."""
        named = labelled_owners(pod.labels)
        key = (pod.owners, pod.namespace, pod.template, named, self._classifier.telling(pod))
        found = self._memberships.get(key)
        if found is None:
            if len(self._memberships) >= MOST_MEMBERSHIPS:
                self._memberships.clear()  # pods that are gone for long may have been the last of theirs
            found = self._memberships[key] = self._member(pod)
        return found

    def _member(self, pod: KnownPod) -> Membership:
        owners = chain(pod.owners, self._owner)
        top = top_owner(pod.labels, owners)
        job = self._owner(top) if top else None
        # A job that another one makes need not be above its pods: labels may name what is above both.
        told_by = (*owners, top, job.made if job is not None else None)
        above = frozenset(Identity(ref.kind, ref.namespace, ref.name) for ref in told_by if ref is not None)
        work = self._work_of(pod, owners, top, job)
        return Membership(
            job=top,
            above=above,
            work=work,
            counts=work.kind is WorkloadClass.TRAINING and job is not None,
            shape=self._specified(job),
            kind=KNOWN.get(top.kind) if top else None,
        )

    def _specified(self, job: JobShape | None) -> JobShape | None:
        if job is None:
            return None
        return self._owner(job.made) if job.made is not None else job.innermost

    def _work_of(
        self, pod: KnownPod, owners: tuple[JobRef, ...], top: JobRef | None, job: JobShape | None
    ) -> Workload:
        """What a pod is for. What its job says for certain holds for all of its pods, whatever each of them looks like."""
        if job is not None:
            work = self._classifier.of_job(job, self._owner)
            if not work.guessed and work.kind is not WorkloadClass.UNKNOWN:
                return work
        return self._classifier.of_pod(pod, owners, top, self._owner)

    def _owner(self, ref: JobRef) -> JobShape | None:
        """The job that a reference means: of one name and two uids the one with its uid, also when that is deleted."""
        found = self._jobs.get(Identity(ref.kind, ref.namespace, ref.name))
        if found is None or (ref.uid and found.uid not in ("", ref.uid)):
            return self._former.get(ref.uid or "")
        return found

    def _own(self, pod: Identity, owners: frozenset[Identity]) -> None:
        before = self._owners_of.get(pod, frozenset())
        if before == owners:
            return
        self._owners_of.pop(pod, None)
        for owner in before - owners:
            self._pods_under[owner].discard(pod)
            if not self._pods_under[owner]:
                del self._pods_under[owner]
                for uid in [uid for uid, shape in self._former.items() if shape.who == owner]:
                    del self._former[uid]
                    self._memberships.clear()
        for owner in owners:
            self._pods_under[owner].add(pod)
        if owners:
            self._owners_of[pod] = owners

    def _list(self, event: KindListed) -> None:
        """What a full list did not name is gone."""
        if event.names is None:
            return
        api_version, _, name = event.kind.rpartition("/")
        kind = kind_of(api_version, name)
        prefix = self._prefix(kind)
        self._listed.add(prefix)
        there = {Identity(kind, namespace, name) for namespace, name in event.names}
        for who in [who for who in self._pods if who not in there] if kind == "Pod" else ():
            self._learn_pod(who, None, event.at)
        for who in [who for who in self._jobs if who.kind == kind and who not in there]:
            self._learn_job(who, None, event.at)
        keys = {self._key(who) for who in there}
        for key in [key for key in (*self._wanted, *self._published) if key.startswith(prefix)]:
            if key not in keys and not self._is_slurms(key):
                self._want(key, None)

    def _list_facts(self, event: FactsListed) -> None:
        """What another system told before and does not name now is gone. A node that an API server shows, too, is not."""
        told = {
            fact.key: fact
            for fact in event.facts
            if fact.key not in self._wanted or self._is_slurms(fact.key)
        }
        for key in [key for key in (*self._wanted, *self._published) if self._is_slurms(key)]:
            if key not in told:
                self._want(key, None)
        for key, fact in told.items():
            # Ten thousand nodes are told every few seconds, nearly all of them as they were.
            if self._told.get(key) is not fact or key not in self._wanted:
                self._want(key, self._standing(fact) if isinstance(fact, NodeFact) else fact)
        self._told = told

    def _is_slurms(self, key: str) -> bool:
        """Whether a fact is one that Slurm told and no API server."""
        if key.startswith((f"{self._prefix('Pod')}{SLURM_JOB}/", self._prefix(SLURM_JOB))):
            return True
        record = self._wanted.get(key) or self._published.get(key)
        return record is not None and isinstance(record.fact, NodeFact) and is_of_slurm(record.fact.uid)

    def _want(self, key: str, fact: Fact | None) -> None:
        self._touched[key] = None
        if fact is None:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = FactRecord(fact)

    def _changes(self) -> list[FactChange]:
        if not self._settled:
            return []
        changes: list[FactChange] = []
        for key in self._touched:
            new, old = self._wanted.get(key), self._published.get(key)
            if new is None:
                if key in self._published:
                    del self._published[key]
                    changes.append((key, None))
            elif old is None or not _same(new, old):
                self._published[key] = new
                changes.append((key, new))
        self._touched.clear()
        return changes

    def _prefix(self, kind: str) -> str:
        """What the keys of a kind's facts begin with."""
        return f"{self._cluster}/{_PREFIXES.get(kind) or f'job/{kind}/'}"

    def _key(self, who: Identity) -> str:
        return self._prefix(who.kind) + (f"{who.namespace}/{who.name}" if who.kind != "Node" else who.name)


_BESIDES_TIME: Mapping[type[Fact], Callable[[Fact], Any]] = {
    kind: attrgetter(*(one.name for one in fields(kind) if one.name != "observed_at"))
    for kind in (NodeFact, PodFact, JobFact, LinkFact)
}


def _same(new: FactRecord, old: FactRecord) -> bool:
    """A heartbeat moves only the time of observation: that is no news."""
    told = _BESIDES_TIME[type(new.fact)]
    return type(new.fact) is type(old.fact) and told(new.fact) == told(old.fact) and new.extra == old.extra


def _about(pod: KnownPod) -> KubeObject:
    """The pod as far as kinds of jobs look at one (`JobKind.goes_on_without`)."""
    return {"metadata": {"labels": pod.labels, "ownerReferences": list(pod.owners.references)}}
