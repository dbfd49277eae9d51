"""Where a signal or a fact is kept, and what has to be re-evaluated because of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from streams.correlate.policy.config import Config
from streams.correlate.policy.families import FAILURES, families, is_failure_of_job
from streams.correlate.policy.link_parts import is_boot, is_failing, is_order, partition_of, placed
from streams.correlate.sightings import KEPT_EACH_END, Sighting, added, order, sighting, tray_of
from streams.correlate.state import slurm_victims
from streams.correlate.state.allocations import (
    is_by_slurm,
    is_slurm,
    job_lost,
    job_of,
    on_its_node,
    processes_on,
    speaker,
    with_its_node,
)
from streams.correlate.state.checkpoints import with_save
from streams.correlate.state.device_access import of_container
from streams.correlate.state.evictions import of_node
from streams.correlate.state.fact_rows import FactRows, exit_of
from streams.correlate.state.incarnations import closes
from streams.correlate.state.nic_names import merged, naming
from streams.correlate.state.node_groups import node_group
from streams.correlate.state.place import Place, Touched, of_storage, of_whole, rows_of_partition
from streams.correlate.state.pod_jobs import job_ref, stand_in
from streams.correlate.state.pod_victims import finds_no_gpu
from streams.correlate.state.retention import Retention
from streams.correlate.state.rows import (
    LastingFailure,
    Naming,
    NodeRow,
    ObservedRank,
    PodRow,
    RunsRow,
    Save,
    goes_without_saying,
    with_lasting,
    with_own_work,
    with_progress,
    with_rank,
)
from streams.correlate.state.store import State
from streams.correlate.state.topology import MAX_UNLISTED, Topology
from streams.correlate.state.unstarted_pods import of_gpu_software
from streams.model.entity import SLURM, SLURM_JOB, JobRef, PodRef, is_of_slurm
from streams.model.facts import Fact, LinkFact, NodeFact, PodFact
from streams.model.kinds import SignalKind
from streams.model.signal import LABELLED, SHARES, SPEAKER, Signal

NODE_KINDS = frozenset(
    {
        *(kind for kind in families().kinds if kind.startswith(("gpu.", "node."))),
        SignalKind.NODE_NOT_READY,
        SignalKind.NCCL_TIMEOUT,
        SignalKind.NCCL_ERROR,
        SignalKind.FABRIC_PFC_STORM,
        SignalKind.FABRIC_LINK,
        SignalKind.UNKNOWN,
    }
)

_OF_NODES_ONLY = NODE_KINDS - {
    SignalKind.NCCL_TIMEOUT,
    SignalKind.NCCL_ERROR,
    SignalKind.FABRIC_PFC_STORM,
    SignalKind.FABRIC_LINK,
    SignalKind.GPU_NVLINK,
    SignalKind.NODE_GPUS,
}
"""What is never of a pod, a job or a switch: most of what a bad day brings, so that nothing else is asked of it."""

MAX_SERVICE = 256
"""Characters of the name of a service that are kept."""


class Ingest:
    """Writes signals and facts into rows. A signal that correlation has no use for, or whose place it cannot tell, is dropped."""

    def __init__(self, state: State, topology: Topology) -> None:
        self._state = state
        self._topology = topology
        self._facts = FactRows(state, topology)
        self._retention = Retention(state, topology, self._facts)
        self._stored_lasting = self._lasting_again()

    def _lasting_again(self) -> dict[str, tuple[LastingFailure, ...]]:
        """Let pods' failures for services last up to their latest kept lines. Returns what is stored of them, by pod."""
        stored = {name: row.lasting for name, row in self._state.pods.items() if row.lasting}
        for name, lasting in stored.items():
            first = min(one.since for one in lasting)
            for seen in self._state.seen_at("pod", name):
                # The first of many lines are kept, too: their stretch may have made room for later ones.
                if seen.at >= first and (service := _service_of(seen)) is not None:
                    row = self._state.pods[name]
                    self._state.pods.hold(name, with_lasting(row, service, seen.at))
        return stored

    def everything(self) -> Touched:
        """All that anything was seen of: what a start has to evaluate."""
        touched = Touched(nodes=set(self._state.nodes.reporting), ports=set(self._state.ports.reporting))
        for name in [name for name, job in self._state.jobs.items() if job.was_placed]:
            touched |= self._facts.place_moved(job_ref(name))
        for pod in self._state.pods.reporting:
            jobs = self._topology.pod_jobs.jobs_of(pod)
            touched.jobs |= jobs
            if not jobs:
                touched.pods.add(pod)
        for document in self._state.documents.values():
            touched.add(document.place)
        return touched

    def signal(self, signal: Signal, touched: Touched) -> None:
        """Keep one signal, and note what has to be re-evaluated because of it."""
        if (seen := sighting(signal)) is not None:
            if (spoke := speaker(seen)) is not None and _tells_its_place(seen):
                self._speaks(*spoke, seen.at, touched)
            seen = self._of_switch(self._topology.names.named(seen))
            if not self._may_speak(seen):
                return
            if seen.kind == SignalKind.GPU_DRIVER:
                seen = (
                    of_container(seen) or seen
                )  # what nvidia-smi says in a container is of that, and not of the node's driver
            self._keep(on_its_node(seen) if is_slurm(seen.entity.pod) else seen, touched)

    def _may_speak(self, seen: Sighting) -> bool:
        """Whether whoever said it has a part in where it is said to be: a job speaks of the nodes that it stands on.

        Anybody who may run a container could otherwise accuse every node of a cluster, and stop all automation by that.
        """
        if SPEAKER not in seen.attributes:
            return True
        node, pod = seen.entity.node, seen.text(SPEAKER)
        if node is None or not pod:
            return False
        return bool(self._topology.pod_jobs.jobs_of(pod) & self._topology.placements.jobs_near(node))

    def fact(self, key: str, fact: Fact | None, at: datetime) -> Touched:
        """Keep one fact, or its end. `key` is the record's: `<cluster>/<kind>/<name>`."""
        _, kind, name = key.split("/", 2)
        if self._is_slurms(kind, name, fact):
            return Touched()
        touched = self._facts.keep(kind, name, fact, at)
        if kind == "node":
            self._rename(self._topology.hosts.put(name, self._state.nodes.get(name)), touched)
        if fact is not None and kind in ("link", "node"):
            self._name_switches(fact, touched)
        if isinstance(fact, PodFact) and (ended := exit_of(fact)) is not None:
            self._in_pod(PodRef(fact.namespace, fact.name), ended, touched)
        return touched

    def _is_slurms(self, kind: str, name: str, fact: Fact | None) -> bool:
        """Whether Slurm told the fact. Here its controller's and daemons' lines tell where jobs stand and which nodes are away.

        They do so to the second, and also of what was over before anybody asked; told twice each stay would count as two.
        """
        if kind == "node":
            row = self._state.nodes.get(name)
            unknown = row is None or row.fact is None
            return is_of_slurm(fact.uid) if isinstance(fact, NodeFact) else fact is None and unknown
        return kind in ("pod", "job") and name.startswith(f"{SLURM_JOB}/")

    def _of_switch(self, seen: Sighting) -> Sighting:
        """The sighting with its switch by the name that the configuration has for it."""
        name = seen.entity.switch
        if name is None or (meant := self._topology.switch_names.meant(name)) == name:
            return seen
        return replace(seen, entity=replace(seen.entity, switch=meant))

    def _cable(self, seen: Sighting) -> LinkFact:
        link = _cable(seen)
        peer = link.peer_switch
        return replace(link, peer_switch=self._topology.switch_names.meant(peer)) if peer else link

    def _name_switches(self, fact: Fact, touched: Touched) -> None:
        """Keep again what was reported of switches that have their names only now."""
        names = {fact.switch, fact.peer_switch} if isinstance(fact, LinkFact) else set[str | None]()
        if isinstance(fact, NodeFact):
            names = {fact.leaf, *fact.rails.values()}
        known = {name for name in names if name}
        for device in self._topology.switch_names.misnamed(known):
            for port in sorted(self._topology.reported_ports(device)):
                row = self._state.ports.get(port)
                if row is None or not row.seen:
                    continue
                self._state.ports.put(port, replace(row, seen={}))
                touched.ports.add(port)
                for s in (s for group in row.seen.values() for s in group):
                    self._keep(self._of_switch(s), touched)

    def prune(self, now: datetime, config: Config, open_jobs: set[str], places: set[str]) -> Touched:
        """Forget what is old and part of nothing open (`Retention.prune`). Returns what was touched by it."""
        touched = self._retention.prune(now, config, open_jobs, places)
        for name in self._stored_lasting.keys() - self._state.pods.keys():
            del self._stored_lasting[name]
        # A name that two hosts shared is the other's alone, once nothing is kept of the one.
        self._rename(self._retention.forget_names(), touched)
        return touched

    def kept_since(self, place: Place, cut: datetime, config: Config) -> datetime:
        """From when on what was seen at a place is kept that no incident holds (`Retention.kept_since`)."""
        return self._retention.kept_since(place, cut, config)

    def kept_with(self, place: Place) -> set[Place]:
        """Places whose sightings are kept as long as an incident is known at this one (`Retention.kept_with`)."""
        return self._retention.kept_with(place)

    def _keep(self, seen: Sighting, touched: Touched) -> None:
        entity = seen.entity
        if seen.kind in _OF_NODES_ONLY:
            if entity.node:
                self._of_node(entity.node, seen, touched)
            elif entity.storage:
                self._on_node(of_storage(entity.storage), seen, touched)
            elif entity.switch and is_failing(seen):
                self._on_port(of_whole(entity.switch), seen, touched)
            elif entity.switch and seen.kind == SignalKind.UNKNOWN:
                self._of_switch_unknown(entity.switch, seen)
        elif seen.kind.startswith("run."):
            self._run(seen, touched)
        elif seen.kind == SignalKind.JOB_PROGRESS and entity.pod:
            self._progress(entity.pod, seen, touched)
        elif seen.kind == SignalKind.JOB_CHECKPOINT and entity.pod:
            self._checkpoint(entity.pod, seen, touched)
        elif seen.kind == SignalKind.JOB_BUSY and entity.pod:
            self._busy(entity.pod, seen, touched)
        elif seen.kind == SignalKind.JOB_RANK and entity.pod:
            self._rank(entity.pod, seen, touched)
        # Before its node: what a rank says in its pod's log is its job's, whoever else stands on that node.
        elif entity.pod and (
            seen.kind in (SignalKind.NCCL_TIMEOUT, SignalKind.NCCL_ERROR) or is_failure_of_job(seen)
        ):
            self._in_pod(entity.pod, seen, touched)
            if entity.node and finds_no_gpu(seen):
                touched.nodes.add(entity.node)  # its incident names whose pods die there
            for told in (
                of_node(seen) or slurm_victims.of_node(seen),
                of_gpu_software(seen),
                of_container(seen),
            ):
                if entity.node and told is not None:
                    self._on_node(entity.node, told, touched)
        elif entity.job and not entity.pod and is_failure_of_job(seen):
            if not self._is_crowded_by_objects(entity.job):
                self._in_pod(stand_in(entity.job), seen, touched)
        elif seen.kind == SignalKind.JOB_ALLOCATION and entity.job and seen.text("subtype") == LABELLED:
            if entity.node:
                touched |= self._facts.labelled(entity.job, entity.node, seen)
                self._rename(self._topology.names.placed(entity.node, entity.job.key), touched)
        elif seen.kind == SignalKind.JOB_ALLOCATION and entity.job:
            touched |= self._facts.allocation(entity.job, seen)
            self._rename(self._topology.name_placed(entity.job), touched)
            if seen.text("user"):
                touched.nodes.add(self._topology.names.meant(seen.text("hosts"), seen.at))
        elif seen.kind == SignalKind.FABRIC_NEIGHBOUR and entity.switch and entity.port:
            touched |= self._facts.heard(f"{entity.switch}/{entity.port}", self._cable(seen))
        elif (pkey := partition_of(seen)) is not None:
            self._of_partition(pkey, seen, touched)
        elif entity.switch and (is_order(seen) or is_boot(seen) or is_failing(seen)):
            self._on_port(of_whole(entity.switch), seen, touched)
        elif seen.kind == SignalKind.FABRIC_LINK and not entity.nic and not entity.switch:
            self._link_of(seen, touched)
        elif (
            seen.kind in (SignalKind.FABRIC_PFC_STORM, SignalKind.FABRIC_LINK)
            and entity.switch
            and entity.port
        ):
            self._at_port(f"{entity.switch}/{entity.port}", seen, touched)
        elif seen.kind == SignalKind.GPU_NVLINK and (tray := tray_of(seen)) is not None:
            self._on_node(tray, seen, touched)
        elif seen.kind == SignalKind.NODE_GPUS and entity.node:
            host = seen.said or entity.node
            touched |= self._facts.gpu_host(host, seen.at, _shares(seen))
            self._rename(self._topology.names.became_node(host), touched)
        elif seen.kind == SignalKind.FABRIC_NIC_NAMES and entity.node:
            # What a job prints names no NIC: it could make one of two that way.
            if SPEAKER not in seen.attributes and self._name_nic(entity.node, naming(seen), touched):
                self._rename(self._topology.names.record(seen, ("node", entity.node)), touched)
        elif seen.kind in NODE_KINDS and entity.node:
            self._on_node(entity.node, seen, touched)
            if entity.nic and SPEAKER not in seen.attributes:
                self._name_nic(entity.node, naming(seen), touched)

    def _of_node(self, node: str, seen: Sighting, touched: Touched) -> None:
        self._on_node(node, seen, touched)
        if (lost := job_lost(seen)) is not None:
            # It stood there, too, also where it began before the controller's log.
            self._speaks(lost, node, None, seen.at, touched)
            touched |= self._facts.allocation(lost, seen)

    def _speaks(self, job: JobRef, node: str, rank: int | None, at: datetime, touched: Touched) -> None:
        """Keep where a process of a job of Slurm speaks. Most lines say nothing new of that: every rank of a hang does."""
        if (placed := self._facts.speaks(job, node, rank, at)) is not None:
            touched |= placed
            # An incident there may name the job now.
            touched.nodes.add(self._topology.names.meant(node, at))
            self._rename(self._topology.name_placed(job), touched)

    def _on_node(self, node: str, seen: Sighting, touched: Touched) -> None:
        if not self._topology.unlisted.admits("node", node, self._state.nodes):
            return
        if is_by_slurm(seen) and (row := self._state.nodes.get(node)) is not None and row.fact is not None:
            return  # Kubernetes knows better: there Slurm's daemon may be a pod that restarts.
        if self._state.nodes.see(node, node_group(seen), seen):
            touched.nodes.add(node)
            # Only now that it is kept: a name never heard before may make another one ambiguous, and then what is kept under
            # that one moves, this sighting too.
            self._rename(self._topology.names.record(seen, ("node", node)), touched)

    def _name_nic(self, node: str, namings: tuple[Naming, ...], touched: Touched) -> bool:
        """Keep which names of a NIC belong together; False when that is known. What was seen there is evaluated again."""
        row = self._state.nodes.get(node, NodeRow())
        if not namings or not self._topology.unlisted.admits("node", node, self._state.nodes):
            return False
        if not self._state.nodes.put(node, replace(row, nics=merged(*(row.nics or ()), *namings))):
            return False
        if row.seen:
            touched.nodes.add(node)
        return True

    def _link_of(self, seen: Sighting, touched: Touched) -> None:
        """A link that names no NIC: a host's own as a whole, or a port that a subnet's manager speaks of."""
        there = placed(seen)
        there = self._of_switch(there) if there is not None else None
        if there is not None and there.entity.switch and there.entity.port:
            self._at_port(f"{there.entity.switch}/{there.entity.port}", there, touched)
        elif there is not None and there.entity.node:
            self._on_node(there.entity.node, there, touched)

    def _at_port(self, name: str, seen: Sighting, touched: Touched) -> None:
        """What is said of a port; where a fabric's manager names both ends of its link, the cable is kept as well."""
        if seen.kind == SignalKind.FABRIC_LINK and (seen.text("peer_node") or seen.text("peer_switch")):
            touched |= self._facts.heard(name, self._cable(seen))
        self._on_port(name, seen, touched)

    def _on_port(self, name: str, seen: Sighting, touched: Touched) -> None:
        if not self._topology.unlisted.admits("port", name, self._state.ports):
            return
        key = f"{seen.kind}|{seen.text('queue')}|{seen.text('priority')}|{seen.firing}"
        if seen.kind == SignalKind.FABRIC_LINK:
            key = f"{seen.kind}|{seen.text('subtype')}|{seen.firing}"
        if self._state.ports.see(name, key, seen):
            self._topology.add_reported(name)
            touched.ports.add(name)
            touched.nodes |= self._topology.hosts_at(name)

    def _of_partition(self, pkey: str, seen: Sighting, touched: Touched) -> None:
        """What is said of the members of a partition, one by one: jobs name the ports to which they lose connections."""
        key = f"{seen.kind}|{seen.text('subtype')}|{seen.text('member').lower()}|{seen.firing}"
        name = self._state.ports.row_with_room(rows_of_partition(pkey), key)
        if not self._topology.unlisted.admits("port", name, self._state.ports):
            return
        if self._state.ports.see(name, key, seen):
            touched.ports.add(name)

    def _of_switch_unknown(self, switch: str, seen: Sighting) -> None:
        """Keep an error of a switch in words that no rule knows, for people. Nothing is judged by it, so nothing is touched."""
        name, unlisted = of_whole(switch), self._topology.unlisted
        # Half of the room at most: a shipper that sends every host's log to the fabric's topic must leave some for links.
        crowded = len(unlisted.names["port"]) >= MAX_UNLISTED // 2 and name not in self._state.ports
        if crowded or not unlisted.admits("port", name, self._state.ports):
            return
        if self._state.ports.see(name, node_group(seen), seen):
            self._topology.add_reported(name)

    def _in_pod(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        name = pod.key
        if not self._topology.unlisted.admits("pod", name, self._state.pods):
            return
        text = seen.text
        rank = seen.entity.rank if seen.entity.rank is not None else text("rank")
        if seen.kind in FAILURES:
            key = f"{seen.kind}|{rank}|{text('local_rank')}|{text('subtype')}|{text('exitcode')}"
            if named := text("slow_rank") or text("slow_ranks"):
                key = f"{key}|{named}"  # one rank reports of all others
        else:
            key = f"{seen.kind}|{rank}|{text('pg')}|{text('pg_rank')}|{text('subtype')}"
        is_kept = self._state.pods.see(name, key, seen)
        # Also of a line that is not kept: it is why those around it are one failure.
        if self._lasts(name, key, seen) or is_kept:
            self._topology.pod_jobs.enter_unplaced(name)
            self._topology.pod_jobs.fail(name, seen)
            jobs = self._topology.pod_jobs.jobs_of(name)
            touched.jobs |= jobs
            if not jobs:
                touched.pods.add(name)
            self._rename(self._topology.names.record(seen, ("pod", name)), touched)

    def _lasts(self, pod: str, group: str, seen: Sighting) -> bool:
        """Keep since when a pod fails for a service that others share; False when that is known.

        A pod that tries again for hours says so a thousand times. That its failure goes on is written only when its latest lines,
        which are stored as well, would not show it after a restart.
        """
        service = _service_of(seen)
        if service is None:
            return False
        row = self._state.pods.get(pod, PodRow())
        new = with_lasting(row, service, seen.at)
        lines, lasting = row.seen.get(group, ()), new.lasting or ()
        # Of many lines the middle was dropped: between the latest there is no other. One that comes late makes room, too.
        kept_since = lines[-KEPT_EACH_END:][0].at if lines else seen.at
        if not goes_without_saying(self._stored_lasting.get(pod, ()), lasting, kept_since):
            self._stored_lasting[pod] = lasting
            self._state.pods.write(pod, new)
        elif new.lasting != row.lasting:
            self._state.pods.hold(pod, new)
        return new.lasting != row.lasting

    def _is_crowded_by_objects(self, job: JobRef) -> bool:
        """Whether objects that are no known jobs have had their half of the room for what only signals name.

        Whatever cannot create its pods has such an object, and all of them may be refused at once.
        """
        if job.key in self._state.jobs or stand_in(job).key in self._state.pods:
            return False
        return self._topology.pod_jobs.stand_ins >= MAX_UNLISTED // 2

    def _rank(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        rank, size, host = seen.number("rank"), seen.number("nranks"), seen.text("host")
        if rank is None or size is None:
            return
        # A launcher prints what its workers' processes tell; those stand in the pod that bears the name of their host. Slurm's
        # stand on that host, whichever ships the job's output, and whether or not its node list has come yet.
        if is_slurm(pod) and host:
            pod = PodRef(SLURM, processes_on(job_of(pod.key).name, host))
        elif (worker := PodRef(pod.namespace, host)).key in self._state.pods:
            pod = worker
        if not self._topology.unlisted.admits("pod", pod.key, self._state.pods):
            return
        observed = ObservedRank(seen.at, rank, size, seen.number("index"), seen.text("pci") or None)
        row = with_rank(self._state.pods.get(pod.key, PodRow()), observed)
        if self._state.pods.put(pod.key, row):
            placements = self._topology.placements
            touched.jobs |= placements.update(pod.key, row)[1]
            # Also where the placement stays as it was: which GPU a rank holds is shown of its culprits.
            touched.jobs |= {p.job.key for p in placements.of_pod(pod.key)}

    def _progress(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._topology.unlisted.admits("pod", pod.key, self._state.pods):
            return
        row = self._state.pods.get(pod.key, PodRow())
        if self._state.pods.put(pod.key, with_progress(row, seen.at, seen.number("step"))):
            jobs = {p.job.key for p in self._topology.placements.of_pod(pod.key)}
            if not jobs:
                touched |= self._facts.learn_training(pod.key)
            touched.mentioned |= jobs
            touched.moves |= {(job, seen.at) for job in jobs}

    def _checkpoint(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._topology.unlisted.admits("pod", pod.key, self._state.pods):
            return
        save = Save(seen.at, seen.number("step"), begun=seen.text("subtype") == "begun")
        if self._state.pods.put(pod.key, with_save(self._state.pods.get(pod.key, PodRow()), save)):
            touched.mentioned |= {p.job.key for p in self._topology.placements.of_pod(pod.key)}

    def _busy(self, pod: PodRef, seen: Sighting, touched: Touched) -> None:
        if not self._topology.unlisted.admits("pod", pod.key, self._state.pods):
            return
        row = with_own_work(self._state.pods.get(pod.key, PodRow()), seen.at)
        if self._state.pods.put(pod.key, row):
            touched.jobs |= self._topology.placements.update(pod.key, row)[1]

    def _run(self, seen: Sighting, touched: Touched) -> None:
        incident = seen.text("incident")
        row = self._state.runs.get(incident, RunsRow())
        # What ended it is counted by itself: no number of other events may push it out.
        ends = closes(seen)
        kept = added(tuple(e for e in row.events if closes(e) is ends), seen)
        events = tuple(sorted((*kept, *(e for e in row.events if closes(e) is not ends)), key=order))
        if not incident or not self._state.runs.put(incident, RunsRow(events)):
            return
        touched.causes.add(incident)
        if (document := self._state.documents.get(incident)) is not None:
            touched.add(document.place)

    def _rename(self, keys: set[str], touched: Touched) -> None:
        """Move what is kept under names that mean another node now that these keys of `hosts` do."""
        if not keys:
            return  # as with nearly every signal
        for reported, places in self._topology.names.affected(keys).items():
            if (row := self._state.nodes.get(reported)) is not None:
                touched.nodes.add(reported)
                if row.nics and (node := self._topology.names.meant(reported, row.nics[-1].last)) != reported:
                    self._state.nodes.put(reported, replace(row, nics=None))
                    self._name_nic(node, row.nics, touched)
            for kind, name in sorted(places):
                self._move(kind, name, reported, touched)
        for port in self._topology.ports_by_host_name(keys):
            link, before = self._state.ports[port].link, self._topology.hosts_at(port)
            self._topology.relink(port, link, link)
            if (after := self._topology.hosts_at(port)) != before:
                touched.nodes |= before | after
                touched.ports |= {port, *self._topology.cable(port)}
                touched.switches.add(port.partition("/")[0])

    def _move(self, kind: str, name: str, reported: str, touched: Touched) -> None:
        """Keep again, each under the node that it means now, what a place holds of a node called so."""
        if kind == "job":
            touched |= self._facts.place_again(job_ref(name), reported)
            return
        called = [s for s in self._state.seen_at(kind, name) if reported == (s.said or s.entity.node)]
        renamed = ((s, self._topology.names.named(s)) for s in called)
        moved = {s.id: with_its_node(new, s) for s, new in renamed if new is not s}
        if not moved:
            return
        store = self._state.places[kind]
        seen = store[name].seen.items()
        left = {key: rest for key, group in seen if (rest := tuple(s for s in group if s.id not in moved))}
        store.put(name, replace(store[name], seen=left))
        if kind == "node":
            touched.nodes.add(name)
        else:
            touched.jobs |= self._topology.pod_jobs.jobs_of(name)
            touched.pods.add(name)
            if not left:
                touched.jobs |= self._topology.pod_jobs.leave_unplaced(name)
        # After they are gone from here: a pod's sighting comes back to the same row, under its node's other name.
        for new in moved.values():
            self._keep(new, touched)


def _service_of(seen: Sighting) -> str | None:
    """The service that others share and a pod fails for, as a stretch of it is called; None where it fails for none."""
    rule = families().rule(seen) if seen.firing and seen.kind in FAILURES else None
    if rule is None or rule.shares is None:
        return None
    return f"{rule.shares}/{rule.named_service(seen)}"[:MAX_SERVICE]


def _tells_its_place(seen: Sighting) -> bool:
    of_processes = (SignalKind.NCCL_TIMEOUT, SignalKind.NCCL_ERROR, SignalKind.NODE_MEMORY)
    return seen.kind in of_processes or is_failure_of_job(seen)


def _cable(seen: Sighting) -> LinkFact:
    """The cable that devices report, or the manager of a subnet, in whose lines `node` is the switch."""
    entity, at_manager = seen.entity, seen.kind == SignalKind.FABRIC_LINK
    return LinkFact(
        entity.cluster,
        entity.switch or "",
        entity.port or "",
        seen.at,
        node=(seen.text("peer_node") if at_manager else seen.text("node")) or None,
        nic=(seen.text("peer_nic") if at_manager else seen.text("nic")) or None,
        peer_switch=seen.text("peer_switch") or None,
        peer_port=seen.text("peer_port") or None,
        heard=True,
    )


def _shares(seen: Sighting) -> tuple[str, ...]:
    """What a host's metrics say that it shares with others; what is not written as they write it says nothing."""
    stated = seen.attributes.get(SHARES)
    return tuple(one for one in map(str, stated) if "=" in one) if isinstance(stated, tuple) else ()
