"""Inventory facts in rows: what each record changes there, and in the index of what belongs together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import (
    MAX_JOBS,
    called_so,
    is_by_slurm,
    nodes_of,
    processes_on,
    pruned,
    tenancies_of,
    with_speaker,
    with_statement,
)
from streams.correlate.state.checkpoints import with_annotation
from streams.correlate.state.labelled_stays import (
    StayByLabel,
    pruned_labels,
    stays_by_labels,
    tenancies_by_labels,
    with_label,
    with_labelled,
)
from streams.correlate.state.lost_gpus import lost_gpus, with_gpus
from streams.correlate.state.node_notices import notices_of
from streams.correlate.state.own_training import corrected, may_be_training, trains_by_its_log
from streams.correlate.state.place import Touched
from streams.correlate.state.placement import Placement
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.process_statements import statements_of, with_statement_of, without_statements
from streams.correlate.state.rows import (
    JobRow,
    NodeRow,
    PodRow,
    PortRow,
    Tenancy,
    with_boot,
    with_cordon,
    with_names,
    with_pod_fact,
    with_pod_gone,
    with_suspension,
    with_work,
)
from streams.correlate.state.store import State
from streams.correlate.state.topology import Topology
from streams.correlate.state.unstarted_pods import lacks_runtime
from streams.model.digest import digest
from streams.model.entity import SLURM, Entity, JobRef, PodRef, is_output_of_slurm
from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, PodFact
from streams.model.hostnames import folded, short
from streams.model.kinds import SignalKind
from streams.model.signal import RACK, Severity

HEARD_FOR = timedelta(days=2)
"""A cable of which nothing is heard for so long is none any more; it is reported every hour."""
MAX_PORTS = 100_000
"""Ports at most: anybody can write to a log that one hears another."""

GPUS_KNOWN_FOR = timedelta(days=1)
"""Four times as long as from one report of a host's GPUs to the next."""

API_TIME_STEP = timedelta(seconds=1)


class FactRows:
    """Writes facts and tombstones. Of two facts of one thing the one observed later counts, whichever comes first."""

    def __init__(self, state: State, topology: Topology) -> None:
        self._state = state
        self._topology = topology
        self._heard = {name for name, row in state.ports.items() if row.link is not None and row.link.heard}
        """Ports with a cable that only devices report, so that the others need not be looked through for them."""
        self._labelled: defaultdict[str, set[str]] = defaultdict(set)
        """By a node's short name: the jobs that metrics of its GPUs bear or bore."""
        for name, job in state.jobs.items():
            for one in job.labelled or ():
                self._labelled[short(one.node)].add(name)

    def keep(self, kind: str, name: str, fact: Fact | None, at: datetime) -> Touched:
        """Keep one fact, or with None its end at that time."""
        listed = self._topology.has_listed
        touched = self._keep(kind, name, fact, at)
        if self._topology.has_listed is not listed:
            # Metrics tell which nodes there are as long as no inventory does.
            touched |= self._guessed(self._topology.gpu_hosts)
            touched.nodes |= self._reporting()
        return touched

    def _reporting(self) -> set[str]:
        """Hosts without objects of which something was seen: whether they are nodes depends on which are known."""
        return self._topology.unlisted.names["node"] & self._state.nodes.reporting

    def _keep(self, kind: str, name: str, fact: Fact | None, at: datetime) -> Touched:
        match fact:
            case NodeFact():
                return self._node(fact)
            case PodFact():
                return self._pod(name, fact)
            case JobFact():
                return self._job(name, fact, None)
            case LinkFact():
                return self._link(name, fact)
        if kind == "node" and name in self._state.nodes:
            row = self._state.nodes[name]
            row = replace(row, gone_at=max(at, row.gone_at or at))
            self._state.nodes.put(name, row)
            self._topology.deleted.add(name)
            self._topology.parts.put(name, row)
            return Touched(nodes={name})
        if kind == "link" and name in self._state.ports:
            return self._uncabled(name, at)
        if kind == "pod" and name in self._state.pods:
            return self.pod(name, with_pod_gone(self._state.pods[name], at))
        if kind == "job" and name in self._state.jobs:
            return self._job(name, None, at)
        return Touched()

    def _pod(self, name: str, fact: PodFact) -> Touched:
        job = self._state.jobs.get(fact.job.key) if fact.job is not None else None
        row = with_pod_fact(self._state.pods.get(name, PodRow()), corrected(fact, job))
        touched = self.pod(name, row)
        touched |= self.learn_training(name)
        return touched

    def learn_training(self, pod: str) -> Touched:
        """Take a pod's job for training from now on, where its log shows that it trains; what is known of it is kept anew."""
        row = self._state.pods.get(pod, PodRow())
        touched = Touched()
        for key in sorted({t.fact.job.key for t in row.tenancies if t.fact.job is not None}):
            job = self._state.jobs.get(key)
            if job is None or not trains_by_its_log(row, job):
                continue
            job = replace(job, logs_training=True)
            job = replace(job, fact=corrected(job.fact, job) if job.fact is not None else None)
            self._state.jobs.put(key, job)
            touched |= Touched(jobs={key}, placed={key}, mentioned={key})
            touched |= self._enter_told(key)
            for name, other in list(self._state.pods.items()):
                mine = tuple(
                    replace(t, fact=corrected(t.fact, job))
                    if t.fact.job is not None and t.fact.job.key == key
                    else t
                    for t in other.tenancies
                )
                if mine != other.tenancies:
                    touched |= self.pod(name, replace(other, tenancies=mine))
        return touched

    def pod(self, name: str, row: PodRow) -> Touched:
        """Keep a pod's row, and place the pod again."""
        topology = self._topology
        if row.tenancies:
            topology.unlisted.names["pod"].discard(name)
        before = self._state.pods.get(name)
        if not self._state.pods.put(name, row):
            return Touched()
        # Before it is placed: a job that it was part of until now loses it, and is re-evaluated for that.
        left = topology.pod_jobs.leave_unplaced(name) | topology.pod_jobs.jobs_of(name)
        nodes, jobs = topology.placements.update(name, row)
        speakers: set[str] = set()
        if is_output_of_slurm(name):
            topology.guess_parts(nodes)
            speakers = self._devices_named()
        topology.pod_jobs.enter_unplaced(name)
        for placement in topology.placements.of_pod(name) if jobs else ():
            self._ran(placement)
        for node in nodes:
            self._see_notice(node)
        busy = {n for n in nodes if (seen := self._state.nodes.get(n)) is not None and seen.seen}
        busy |= {n for n in _started_on(row) - _started_on(before) if self._lacks_runtime(n)}
        # Whom an address in a line of its job means depends on it, too.
        moved = (
            {p.job.key for p in topology.placements.of_pod(name)}
            if _addresses(before) != _addresses(row)
            else set()
        )
        reports = row.seen or (before is not None and before.seen)
        return Touched(
            pods={name} if reports else set(),
            populated={name.partition("/")[0]} if before is None or not before.tenancies else set(),
            nodes=busy | speakers | {n for n in nodes if topology.is_cabled(n)},
            jobs=jobs | moved | (left | topology.pod_jobs.jobs_of(name) if row.seen else set()),
            mentioned=set(jobs),
            placed=jobs,
        )

    def _lacks_runtime(self, node: str) -> bool:
        """Whether a pod found no runtime for GPUs there: what that means for the node depends on which others start."""
        row = self._state.nodes.get(node)
        return row is not None and any(lacks_runtime(group[0]) for group in row.seen.values())

    def _see_notice(self, node: str) -> None:
        """Keep again what a node's object announces: as long as no job ran there it was told to nobody, and may be forgotten."""
        row = self._state.nodes.get(node)
        if row is None or row.fact is None or row.fact.notice is None:
            return
        for group, notice in notices_of(row.fact, row.seen):
            self._state.nodes.see(node, group, notice)

    def _node(self, fact: NodeFact) -> Touched:
        self._topology.unlisted.names["node"].discard(fact.name)
        row = self._state.nodes.get(fact.name, NodeRow())
        if row.fact is None and row.seen:  # from now on the API server says whether it is ready
            row = replace(row, seen={key: seen for key, seen in row.seen.items() if not is_by_slurm(seen[0])})
        # Ports that InfiniBand's managers call by the node's own name are its ports from now on.
        ports = self._topology.reported_ports(fact.name) if row.fact is None else set()
        leafs: set[str] = set()
        speakers: set[str] = set()
        if row.fact is None or row.fact.observed_at <= fact.observed_at:
            version = self._topology.parts.version
            leafs = self._topology.move_node(fact.name, row.fact, replace(row, fact=fact))
            if row.seen and self._topology.parts.version != version:
                leafs = leafs | {""}  # links whose switch is not known are reported by what their hosts share
            speakers = self._devices_named()
            row = replace(row, fact=fact)
        # An older fact than the row's still counts for its own time: whose cordon it bore, when it was in maintenance, its names.
        for owner in fact.owners:
            row = with_cordon(row, owner, fact.observed_at)
        row = with_gpus(with_boot(with_names(with_work(row, fact), fact), fact), fact)
        changed = self._state.nodes.put(fact.name, row)
        sighting = readiness(fact)
        # A node that never was Ready has gone nowhere: nothing is lost with it, however many join at once.
        if (
            (sighting.firing and not fact.joining)
            or any(k.startswith(SignalKind.NODE_NOT_READY) for k in row.seen)
            or fact.ready_since
        ):
            changed |= self._state.nodes.see(fact.name, f"node.not_ready|{sighting.firing}", sighting)
        known = self._state.nodes.get(fact.name, row)
        latest = row.fact if row.fact is not None else fact
        told = [*notices_of(fact, known.seen)]
        told += notices_of(latest, known.seen) if latest is not fact else []
        for group, notice in [*told, *lost_gpus(fact.cluster, fact.name, known)]:
            changed |= self._state.nodes.see(fact.name, group, notice)
        return Touched(nodes={fact.name, *speakers}, ports=ports, switches=leafs) if changed else Touched()

    def _devices_named(self) -> set[str]:
        """Unlisted hosts whose name means a part from now on, or no longer: what they reported of themselves is the part's."""
        names = self._topology.parts.renamed
        if not names:
            return set()
        self._topology.parts.renamed = set()
        return {
            name
            for name in self._topology.unlisted.names["node"]
            if not names.isdisjoint({folded(name), short(name), *self._racks_told_by(name)})
        }

    def _racks_told_by(self, device: str) -> set[str]:
        return {folded(rack) for s in self._state.seen_at("node", device) if (rack := s.text(RACK))}

    def _job(self, name: str, fact: JobFact | None, gone_at: datetime | None) -> Touched:
        row = self._state.jobs.get(name, JobRow())
        first = row.fact is None
        if fact is not None and (row.fact is None or row.fact.observed_at <= fact.observed_at):
            row = replace(row, fact=corrected(fact, row))
        if fact is not None:
            row = with_annotation(with_suspension(row, fact), fact)
        if gone_at is not None:
            row = replace(row, gone_at=max(gone_at, row.gone_at or gone_at))
        if not self._state.jobs.put(name, row):
            return Touched()
        touched = Touched(jobs={name}, placed={name}, mentioned={name} if row.saves else set())
        touched |= self._enter_told(name)
        if first and row.fact is not None and may_be_training(row.fact):
            # Its pods and their log may have been read before its object.
            for pod in [pod for pod, other in self._state.pods.items() if other.progress_step is not None]:
                touched |= self.learn_training(pod)
        return touched

    def _enter_told(self, job: str) -> Touched:
        """Enter what was reported of a job's objects under the job: it was read before the job was known, or known to train."""
        touched = Touched()
        for told in self._topology.pod_jobs.told_of(job):
            touched.pods.add(told)
            touched.jobs |= self._topology.pod_jobs.leave_unplaced(told)
            self._topology.pod_jobs.enter_unplaced(told)
            touched.jobs |= self._topology.pod_jobs.jobs_of(told)
        return touched

    def allocation(self, job: JobRef, seen: Sighting) -> Touched:
        """Keep what Slurm says of a job's nodes."""
        row = self._state.jobs.get(job.key)
        # Most ends are those of small jobs that are not followed: they must leave room for the others.
        room = MAX_JOBS if seen.text("subtype") == "running" else MAX_JOBS // 2
        if row is None and len(self._state.jobs) >= room:
            return Touched()
        before = row or JobRow()
        after = with_statement(before, seen)
        return self._allocated(job, before, after) if after is not before else Touched()

    def speaks(self, job: JobRef, node: str, rank: int | None, at: datetime) -> Touched | None:
        """Keep that a process of a job speaks on a node, where Slurm has not said that it runs there; None where that is old."""
        before = self._state.jobs.get(job.key)
        if before is None and len(self._state.jobs) >= MAX_JOBS // 2:
            return None
        before = before or JobRow()
        after = with_speaker(before, node, rank, at)
        return self._allocated(job, before, after) if after is not before else None

    def forget_allocations(self, job: JobRef, cut: datetime, now: datetime) -> Touched:
        """Forget where a job without an object stood before `cut`."""
        row = self._state.jobs[job.key]
        # Labels first: what Slurm said of the job's end tells which of them are over.
        after = pruned(pruned_labels(row, cut, now), cut, now)
        left = {short(one.node) for one in after.labelled or ()}
        for node in {short(one.node) for one in row.labelled or ()} - left:
            self._labelled[node].discard(job.key)
            if not self._labelled[node]:
                del self._labelled[node]
        return self._allocated(job, row, after)

    def labelled(self, job: JobRef, node: str, seen: Sighting) -> Touched:
        """Keep that the metrics of a node's GPUs bear a job, or no longer do."""
        before = self._state.jobs.get(job.key)
        if before is None and len(self._state.jobs) >= MAX_JOBS // 2:
            return Touched()
        before = before or JobRow()
        after = with_label(before, node, seen)
        if after is before or not self._state.jobs.put(job.key, after):
            return Touched()
        self._labelled[short(node)].add(job.key)
        if after.allocations or after.steps or after.speakers:
            touched = self.place(job)
        else:
            # Of a job on a thousand nodes each reports itself alone.
            touched = self._place_by_labels(job, after, short(node))
        if before.was_placed is not after.was_placed:
            touched |= self._shipped_elsewhere(job)
        return touched

    def _place_by_labels(self, job: JobRef, row: JobRow, node: str) -> Touched:
        """Place the processes of a job on one node, by its short name, where nothing but labels shows the job."""
        name = f"{SLURM}/{processes_on(job.name, node)}"
        placed = self._by_labels(job, row, node)
        touched = Touched()
        for pod in sorted({name, *placed}):
            known = self._state.pods.get(pod, PodRow())
            touched |= self.pod(pod, replace(known, tenancies=placed.get(pod, ())))
        return touched

    def _by_labels(self, job: JobRef, row: JobRow, node: str | None = None) -> dict[str, tuple[Tenancy, ...]]:
        meant = self._topology.names.node_of
        stays = (stay for stay in stays_by_labels(row, node) if not self._is_anothers(job, stay))
        return tenancies_by_labels(self._state.cluster, job, stays, meant)

    def _is_anothers(self, job: JobRef, stay: StayByLabel) -> bool:
        """Whether Slurm's controller had given the node to another job when its metrics began to bear this one."""
        there = self._topology.placements.on_node(
            self._topology.names.node_of(stay.node, stay.since), stay.since, stay.since + policy().labels.late
        )
        return any(
            p.job.key != job.key
            and (p.end is None or p.end > stay.since)
            and self._is_told(p.job.key, p.start)
            for p in there
        )

    def _is_told(self, job: str, start: datetime) -> bool:
        """Whether Slurm's controller gave a job its nodes at that time."""
        row = self._state.jobs.get(job)
        return row is not None and any(nodes and at == start for at, nodes in row.allocations or ())

    def _allocated(self, job: JobRef, before: JobRow, after: JobRow) -> Touched:
        if not self._state.jobs.put(job.key, after):
            return Touched()
        touched = self.place(job)
        if self._labelled and after.allocations != before.allocations:
            nodes = {short(node) for row in (before, after) for node in nodes_of(row)} & self._labelled.keys()
            for other in sorted({name for node in nodes for name in self._labelled[node]} - {job.key}):
                touched |= self.place(job_ref(other))
        if before.was_placed is not after.was_placed:
            touched |= self._shipped_elsewhere(job)
        return touched

    def place(self, job: JobRef) -> Touched:
        """Place the processes of a job of Slurm, each on the node that what Slurm calls it meant when the job was given it."""
        touched = Touched()
        row = self._state.jobs.get(job.key, JobRow())
        placed = tenancies_of(self._state.cluster, job, row, self._topology.names.node_of)
        if row.labelled:
            placed = with_labelled(placed, self._by_labels(job, row), partial(self._is_told, job.key))
        known = frozenset(self._topology.placements.names_of(job.key))
        self._follow(placed, known - placed.keys())
        for name in sorted(known | placed.keys()):
            pod = self._state.pods.get(name, PodRow())
            touched |= self.pod(name, replace(pod, tenancies=placed.get(name, ())))
        return touched

    def place_again(self, job: JobRef, called: str) -> Touched:
        """Place a job's processes again where a name that Slurm uses may mean another node."""
        there = self._topology.placements.of_pod(f"{SLURM}/{processes_on(job.name, called)}")
        meant = self._topology.names.node_of
        if there and all(p.node == called == meant(called, p.start) for p in there):
            return Touched()  # as with every node of the inventory that Slurm calls by its own name
        return self.place(job)

    def place_moved(self, job: JobRef) -> Touched:
        """Place a job's processes again if a name means another node than they stand on: rows may be older than the names."""
        meant = self._topology.names.node_of
        for p in self._topology.placements.placements_of(job.key):
            called = called_so(p.uid).partition("/")[2].partition(".")[2]
            if short(meant(called, p.start)) != short(p.node):
                return self.place(job)
        return Touched()

    def _follow(self, placed: Mapping[str, tuple[Tenancy, ...]], left: Iterable[str]) -> None:
        """Take what processes reported of themselves to where they stand now, from where nobody of them stands any more."""
        now = {t.fact.uid: (t.first_seen, pod) for pod, stays in placed.items() for t in stays}
        sources: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)
        for name in left:
            row = self._state.pods.get(name, PodRow())
            sources[name] += [now[t.fact.uid] for t in row.tenancies if t.fact.uid in now]
        for pod, stays in placed.items():
            for stay in stays:
                if (own := called_so(stay.fact.uid)) != pod and own not in placed:
                    sources[own].append((stay.first_seen, pod))
        for name, stays_there in sources.items():
            row = self._state.pods.get(name, PodRow())
            if not stays_there or without_statements(row) is row:
                continue
            self._state.pods.put(name, without_statements(row))
            for one in statements_of(row):
                begun = [pod for start, pod in sorted(stays_there) if start <= one.at]
                pod = begun[-1] if begun else min(stays_there)[1]
                self._state.pods.put(pod, with_statement_of(self._state.pods.get(pod, PodRow()), one))

    def _shipped_elsewhere(self, job: JobRef) -> Touched:
        """Enter what hosts ship of a job's output that it does not stand on, now that the job is known, or no longer."""
        pod_jobs, touched = self._topology.pod_jobs, Touched()
        for name in sorted(self._state.pods.reporting):
            if name.startswith(f"{SLURM}/{job.name}."):
                touched.jobs |= pod_jobs.leave_unplaced(name)
                pod_jobs.enter_unplaced(name)
                touched.jobs |= pod_jobs.jobs_of(name)
        return touched

    def _ran(self, placement: Placement) -> None:
        row = self._state.jobs.get(placement.job.key, JobRow())
        if row.ran_at is None or placement.start < row.ran_at:
            self._state.jobs.put(placement.job.key, replace(row, ran_at=placement.start))

    def _link(self, name: str, link: LinkFact) -> Touched:
        topology = self._topology
        topology.unlisted.names["port"].discard(name)
        row = self._state.ports.get(name, PortRow())
        if row.link is not None and row.link.heard <= link.heard and row.link.observed_at > link.observed_at:
            return Touched()
        # Both what was attached to the port before and what hangs there now is re-evaluated.
        hosts, ends = topology.hosts_at(name), set(topology.cable(name))
        if not self._state.ports.put(name, replace(row, link=link)):
            return Touched()
        topology.relink(name, row.link, link)
        ends |= {name, *topology.cable(name)}
        switches = {end.partition("/")[0] for end in ends}
        if link.peer_switch:
            switches.add(link.peer_switch)
        return Touched(nodes=hosts | topology.hosts_at(name), ports=ends, switches=switches)

    def _uncabled(self, name: str, at: datetime) -> Touched:
        """A cable was pulled: what was attached to the port hangs there no more."""
        row = self._state.ports[name]
        if row.link is None or row.link.heard or row.link.observed_at > at:
            return Touched()
        return self._pulled(name, row.link)

    def heard(self, name: str, link: LinkFact) -> Touched:
        """Keep a cable that devices report: the latest, where the inventory knows none at that port."""
        row = self._state.ports.get(name)
        if row is None and len(self._state.ports) >= MAX_PORTS:
            return Touched()
        known = row.link if row is not None else None
        if known is not None and (not known.heard or _later(known, link)):
            return Touched()
        if row is not None and known is not None and replace(known, observed_at=link.observed_at) == link:
            self._state.ports.put(name, replace(row, link=link))
            return Touched()
        self._heard.add(name)
        return self._link(name, link)

    def gpu_host(self, host: str, at: datetime, shares: tuple[str, ...] = ()) -> Touched:
        """Keep that a host has GPUs, and what it shares with others (`kind=name`), by its metrics; of a listed node only when."""
        topology, name = self._topology, short(host)
        if topology.has_listed:
            name = topology.hosts.find(host, at).node or name
            if (row := self._state.nodes.get(name)) is not None and row.fact is not None:
                self._state.nodes.put(name, replace(row, metrics_at=max(at, row.metrics_at or at)))
            return Touched()
        if not topology.unlisted.admits("node", name, self._state.nodes):
            return Touched()
        row = self._state.nodes.get(name, NodeRow())
        moved = bool(shares) and shares != row.shares
        # Not every metric bears the site's labels: what one of them said stands until another one says otherwise.
        self._state.nodes.put(
            name, replace(row, gpus_at=max(at, row.gpus_at or at), shares=shares or row.shares)
        )
        if name in topology.gpu_hosts:
            return self._guessed([name]) if moved else Touched()
        touched = Touched() if topology.gpu_hosts else Touched(nodes=self._reporting())
        topology.gpu_hosts.add(name)
        touched |= self._guessed([name])
        return touched

    def forget_gpu_hosts(self, now: datetime) -> Touched:
        """Forget hosts whose metrics showed no GPUs for so long that they are gone."""
        topology = self._topology
        gone = [
            name
            for name in sorted(topology.gpu_hosts)
            if (row := self._state.nodes.get(name)) is None
            or row.gpus_at is None
            or now - row.gpus_at > GPUS_KNOWN_FOR
        ]
        for name in gone:
            topology.gpu_hosts.discard(name)
            if (row := self._state.nodes.get(name)) is not None:
                self._state.nodes.put(name, replace(row, gpus_at=None, shares=None))
        touched = self._guessed(gone)
        if gone and not topology.gpu_hosts:
            touched.nodes |= self._reporting()
        return touched

    def _guessed(self, hosts: Iterable[str]) -> Touched:
        """Enter hosts without objects anew under what their names tell. How many there are matters to all that share it."""
        hosts = sorted(hosts)
        self._topology.guess_parts(hosts)
        return Touched(nodes={*hosts, *self._devices_named()})

    def forget_heard(self, now: datetime) -> Touched:
        """Forget cables that no device has reported for long: they were pulled, or their device is gone."""
        touched = Touched()
        for name in sorted(self._heard):
            row = self._state.ports.get(name)
            if row is None or row.link is None or not row.link.heard:
                self._heard.discard(name)
            elif now - row.link.observed_at > HEARD_FOR:
                touched |= self._pulled(name, row.link)
        return touched

    def _pulled(self, name: str, link: LinkFact) -> Touched:
        topology, row = self._topology, self._state.ports[name]
        touched = Touched(
            nodes=topology.hosts_at(name), ports={name, *topology.cable(name)}, switches={link.switch}
        )
        topology.relink(name, link, None)
        self._state.ports.put(name, replace(row, link=None))
        topology.unlisted.names["port"].add(name)
        return touched


def _later(one: LinkFact, other: LinkFact) -> bool:
    """Whether `one` was heard later; of two at one time, whatever the order in which they come, always the same."""
    return (one.observed_at, str(one)) > (other.observed_at, str(other))


def readiness(fact: NodeFact) -> Sighting:
    """A node's readiness by its fact, as a sighting: events get lost, conditions are read again.

    The API server cuts the time of a transition to the second. Taken literally, a node that became ready in the second in
    which it was seen not ready would have been ready before that, and would count as gone for ever.
    """
    at = fact.observed_at
    if fact.ready and fact.ready_since is not None:
        at = min(at, fact.ready_since + API_TIME_STEP)
    name = digest("readiness", fact.name, fact.uid, fact.ready, at.isoformat(), size=12)
    entity = Entity(fact.cluster, node=fact.name)
    return Sighting(
        name,
        SignalKind.NODE_NOT_READY,
        entity,
        at,
        at,
        fact.observed_at,
        Severity.ERROR,
        fact.ready is False,
        {"source": "node"},
    )


_KILLED = frozenset({134, 137, 143})
_NEWS = timedelta(minutes=10)
"""How long after it a bad end is told at most. What a first list or a long outage of the API server brings is old: pods keep the
last exit of a container for as long as they live, and whatever it was, the job went on or its owner knows."""


def exit_of(pod: PodFact) -> Sighting | None:
    """That a process of a training job ended badly, as its pod tells: not every launcher has words for it.

    What was asked to go may end with any code, and what is killed or gives up waiting says nothing of why.
    """
    if (
        pod.exit_code is None
        or pod.exit_code in _KILLED
        or pod.exited_at is None
        or pod.job is None
        or not pod.trains
    ):
        return None
    if pod.removed_at is not None and pod.removed_at <= pod.exited_at + API_TIME_STEP:
        return None
    if pod.observed_at - pod.exited_at > _NEWS:
        return None
    return Sighting(
        digest("exit", pod.namespace, pod.name, pod.uid, pod.exited_at.isoformat(), pod.exit_code, size=12),
        SignalKind.JOB_FAILED,
        Entity(pod.cluster, node=pod.node, pod=PodRef(pod.namespace, pod.name, pod.uid)),
        pod.exited_at,
        pod.exited_at,
        pod.observed_at,
        Severity.ERROR,
        True,
        {"subtype": "process_exit", "exitcode": pod.exit_code, "source": "pod"},
    )


def _started_on(row: PodRow | None) -> set[str]:
    tenancies = row.tenancies if row is not None else ()
    return {t.fact.node for t in tenancies if t.fact.node and t.fact.gpus and t.fact.started_at is not None}


def _addresses(row: PodRow | None) -> set[tuple[str, str | None]]:
    return {(t.fact.uid, t.fact.ip) for t in row.tenancies} if row is not None else set()
