"""All signals relevant to one job: from its pods' logs, and from its nodes while its pods ran there.

A job is re-evaluated for every batch that touches it, and little of its evidence has changed by then. So what was read from a
row is cached while the row is the same object (`PodReadings` for pods); rows are never changed in place once they are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streams.correlate.job_rules.connection_votes import Addresses, waited_to_join
from streams.correlate.job_rules.job_evidence import JobEvidence, KnownBy
from streams.correlate.job_rules.pod_failures import PodTimes, is_of_pace, is_own
from streams.correlate.job_rules.pod_readings import PodReadings
from streams.correlate.job_rules.rank_reports import RankReport, rank_report
from streams.correlate.policy.families import FAILURES, GPU_KINDS, families
from streams.correlate.sightings import Sighting
from streams.correlate.state.placement import Placement, ended_at, placement_at
from streams.correlate.state.rows import LastingFailure, NodeRow, PodRow, Tenancy
from streams.correlate.state.store import State
from streams.correlate.state.topology import Topology
from streams.model.entity import SLURM_JOB, PodRef
from streams.model.facts import PodFact
from streams.model.hostnames import folded
from streams.model.kinds import SignalKind


@dataclass(slots=True)
class _Node:
    """A node's sightings, sorted by their use for jobs."""

    row: NodeRow
    codes: tuple[Sighting, ...]
    """XIDs that are no causes by themselves."""
    collectives: tuple[Sighting, ...]
    """Watchdog lines and network errors in the node's own log."""
    pauses: tuple[Sighting, ...]
    failures: tuple[Sighting, ...]
    """Processes that the kernel killed for memory."""
    is_quiet: bool
    """Whether it has only XIDs that are no causes, as killed processes leave them on every node of a job."""


_FELT_WITHIN = timedelta(seconds=30)
"""A job notices within this that one of its processes was killed: its launcher at once, its peers by a connection that is reset;
ranks that wait in a collective date that back."""
_SAME_MOMENT = timedelta(seconds=10)
_OF_JOBS = ("application", "symptom")
"""Roles of codes that are no causes by themselves."""
_NOWHERE = _Node(NodeRow(), (), (), (), (), True)


class JobEvidenceCache:
    """Reads and caches the evidence about jobs."""

    def __init__(self, state: State, topology: Topology, slack: timedelta) -> None:
        self._state = state
        self._placements = topology.placements
        self._pod_jobs = topology.pod_jobs
        self._switches_of = topology.switches_of
        self._slack = slack
        self._nodes: dict[str, _Node] = {}
        pods = (state.pods, topology.placements, topology.pod_jobs)
        self._reports: PodReadings[RankReport] = PodReadings(*pods, _reports)
        self._failures: PodReadings[Sighting] = PodReadings(*pods, _failures)
        self._lasting: PodReadings[LastingFailure] = PodReadings(*pods, lambda row, _, __: row.lasting or ())
        self._judged: dict[str, JobEvidence] = {}

    def is_known(self, job: str, evidence: JobEvidence) -> bool:
        """Whether the job was evaluated by the very same evidence before."""
        known = self._judged.get(job)
        return known is not None and known == evidence

    def note(self, job: str, evidence: JobEvidence | None) -> None:
        """Remember the evidence a job was evaluated by."""
        if evidence is None:
            self._judged.pop(job, None)
        else:
            self._judged[job] = evidence

    def reports(self, job: str, nodes: set[str]) -> tuple[RankReport, ...]:
        """Reports of the job's ranks: from their pods' logs, or from a node's log while only this job ran there."""
        beside = [
            rank_report(s, None)
            for node in sorted(nodes & self._state.nodes.reporting)
            for s in self._node(node).collectives
            if self._is_alone(job, node, s.fault_at, s.at)
        ]
        found = self._reports.of_job(job)
        return (*found, *beside) if beside else found

    def failed(self, job: str, nodes: set[str]) -> tuple[Sighting, ...]:
        """Failures of the job: from its pods and their events, and processes of its that kernels killed for memory."""
        found = self.told(job)
        killed = [
            (node, s)
            for node in sorted(nodes & self._state.nodes.reporting)
            for s in self._node(node).failures
        ]
        if not killed:
            return found
        if job.startswith(f"{SLURM_JOB}/"):
            return (*found, *(s for node, s in killed if _was_killed_in_slurm(job, node, s, found)))
        waits = [r.sighting.fault_at for r in self.reports(job, nodes)]
        told = [s.at for s in found if not is_of_pace(s)] + waits
        fails = [s.at for s in found if is_own(s)] + waits
        return (*found, *(s for node, s in killed if self._was_killed(job, node, s, told, fails)))

    def told(self, job: str) -> tuple[Sighting, ...]:
        """Failures of the job by its pods and their events; the very same tuple while none of that has changed."""
        return self._failures.of_job(job)

    def lasting(self, job: str) -> tuple[LastingFailure, ...]:
        """When the job's pods failed for services that others share."""
        return self._lasting.of_job(job)

    def failures_of_pod(self, pod: str) -> list[Sighting]:
        """Failures that are reported of a pod of no training job, or of an object that could make none."""
        row = self._state.pods.get(pod)
        return _failures(row, (), "") if row is not None and row.seen else []

    def _was_killed(
        self, job: str, node: str, seen: Sighting, told: Sequence[datetime], fails: Sequence[datetime]
    ) -> bool:
        """Whether a process that the kernel killed was the job's.

        `told` is when the job itself reported anything, and `fails` when it failed or began to wait.

        The kernel names the pod by its uid where it was killed for the pod's own limit. Where it does not, most of what is
        killed on a busy node is somebody's build or shell, whose pods are in no inventory: the job must have stood there alone,
        and something of it must have ended at that moment: it says so itself, or its pod there failed. A job that was failing
        before has another reason.
        """
        if uid := seen.text("pod_uid"):
            there = self._placements.on_node(node, seen.at, seen.at)
            return any(p.job.key == job and p.uid == uid for p in there)
        there = self._placements.on_node(node, seen.at, seen.at)
        if not self._is_alone(job, node, seen.at, seen.at) or not any(p.gpus for p in there):
            return False  # beside a launcher that holds no GPU stands whatever else needs none
        if any(self._slack < seen.at - at <= 2 * _FELT_WITHIN for at in fails):
            return False
        ends = [p.end for p in there if p.end is not None and p.succeeded is False]
        return any(-self._slack <= at - seen.at <= _FELT_WITHIN for at in (*told, *ends))

    def pod_times(self, job: str) -> dict[str, PodTimes]:
        """By uid: when the job's pods that reported anything came to be, were scheduled, started and ended."""
        rows = (row for pod in self._pods_of(job) if (row := self._state.pods.get(pod)) is not None)
        return {t.fact.uid: _times(row, t) for row in rows for t in row.tenancies}

    def joining(
        self, job: str, placements: Sequence[Placement], reports: Sequence[RankReport]
    ) -> dict[str, tuple[str, PodTimes]]:
        """By uid: the job's pods that hold ranks and may not have started yet, where some rank waited at its start for others."""
        if not any(waited_to_join(report.sighting) for report in reports):
            return {}
        names = [*sorted({p.pod for p in placements}), *self._pod_jobs.unplaced(job)]
        rows = {name: row for name in names if (row := self._state.pods.get(name)) is not None}
        mine = [
            (name, row, t)
            for name, row in rows.items()
            for t in row.tenancies
            if t.fact.job is not None and t.fact.job.key == job
        ]
        by_gpus = any(t.fact.gpus for _, _, t in mine)
        return {
            t.fact.uid: (name, _times(row, t))
            for name, row, t in mine
            if (t.fact.gpus or not by_gpus) and not _ran_before(t.fact)
        }

    def started(self, placements: Sequence[Placement], failed: Sequence[Sighting]) -> dict[str, datetime]:
        """By uid: when the job's pods had started; looked up where pods of it cannot be started on one node."""
        if not any((rule := families().rule(s)) is not None and rule.local for s in failed):
            return {}
        rows = {p.pod: self._state.pods.get(p.pod) for p in placements}
        times = (t.fact for row in rows.values() if row is not None for t in row.tenancies)
        return {fact.uid: fact.started_at for fact in times if fact.started_at is not None}

    def _pods_of(self, job: str) -> list[str]:
        placed = self._state.pods.reporting & self._placements.names_of(job)
        return [*sorted(placed), *self._pod_jobs.unplaced(job)]

    def _is_alone(self, job: str, node: str, since: datetime, until: datetime) -> bool:
        """Whether nothing else held GPUs there: what the node says may else be somebody else's."""
        there = {p.job.key for p in self._placements.on_node(node, since, until)}
        return there == {job} and not self._placements.stood_beside(node, since, until)

    def codes(self, placements: Sequence[Placement]) -> list[Sighting]:
        """XIDs on the job's nodes while it ran there, that are not causes by themselves.

        Where others held GPUs of the node as well, a code of a program may be theirs: it counts only when it came on several of
        the job's nodes at once.
        """
        found = self._codes_on(placements)
        # Most nodes only ever hold one job: the moments of their codes need not be looked at.
        shared = {n for n in {s.entity.node for s in found} if n and self._placements.is_shared(n)}
        contested = [s for s in found if s.entity.node in shared and self._is_contested(s, placements)]
        if not contested:
            return found
        foreign = {s.id for s in contested if not _is_shared(s, found)}
        return [s for s in found if s.id not in foreign]

    def _is_contested(self, seen: Sighting, placements: Sequence[Placement]) -> bool:
        node = seen.entity.node
        if node is None or families().role(seen) != "application":
            return False
        return not self._is_alone(placements[0].job.key, node, seen.at, seen.at)

    def _codes_on(self, placements: Sequence[Placement]) -> list[Sighting]:
        reporting = self._state.nodes.reporting
        by_node: dict[str, list[Placement]] = {}
        for placement in placements:
            if placement.node in reporting:
                by_node.setdefault(placement.node, []).append(placement)
        return [
            s
            for node in sorted(by_node)
            for s in self._node(node).codes
            if any(t.overlaps(s.at - self._slack, s.at) for t in by_node[node])
        ]

    def end_of_stretch(self, job: str, since: datetime, gap: timedelta) -> datetime:
        """How long evidence about the job goes on after `since` without a longer gap; `since` if there is none."""
        placements = self._placements.placements_of(job)
        nodes = {p.node for p in placements}
        seen = [*self.codes(placements), *self.failed(job, nodes)]
        times = {s.at for s in seen} | {report.sighting.at for report in self.reports(job, nodes)}
        for at in sorted(at for at in times if at > since):
            if at - since > gap:
                break
            since = at
        return since

    def is_quiet(self, node: str) -> bool:
        """Whether a node reports nothing that could be a cause."""
        return self._node(node).is_quiet

    def pauses(self, nodes: set[str]) -> list[Sighting]:
        """Pause frames that the nodes' NICs reported."""
        return [s for node in nodes & self._state.nodes.reporting for s in self._node(node).pauses]

    def addresses(self, placements: Sequence[Placement]) -> Addresses:
        """Names and addresses of these placements' nodes and pods as peers use them, and the nodes' leafs."""
        nodes: dict[str, str] = {}
        leafs: dict[str, str] = {}
        short: dict[str, set[str]] = {}
        for placement, known in zip(placements, self.names(placements), strict=True):
            short.setdefault(folded(placement.node).partition(".")[0], set()).add(placement.node)
            nodes[folded(placement.pod.rpartition("/")[2])] = placement.node
            nodes |= dict.fromkeys(known.addresses, placement.node)
            nodes |= dict.fromkeys(map(folded, known.names), placement.node)
            if known.leaf:
                leafs[placement.node] = known.leaf
        nodes |= {name: next(iter(meant)) for name, meant in short.items() if len(meant) == 1}
        nodes |= {folded(p.node): p.node for p in placements}
        return Addresses(nodes, leafs)

    def names(self, placements: Sequence[Placement]) -> tuple[KnownBy, ...]:
        """What the inventory knows each of these placements by."""
        return tuple(map(self._known_by, placements))

    def _known_by(self, placement: Placement) -> KnownBy:
        pod, row = self._state.pods.get(placement.pod), self._state.nodes.get(placement.node)
        tenancies, fact = pod.tenancies if pod else (), row.fact if row is not None else None
        leaf = fact.leaf if fact is not None else None
        if not leaf:
            attached = self._switches_of(placement.node)
            leaf = next(iter(attached)) if len(attached) == 1 else None
        return KnownBy(
            tuple(t.fact.ip for t in tenancies if t.fact.uid == placement.uid and t.fact.ip),
            (*fact.addresses, *fact.aliases) if fact is not None else (),
            leaf,
        )

    def forget(self) -> None:
        """Drop what is cached of nodes and pods of which nothing is kept."""
        for name in self._nodes.keys() - self._state.nodes.reporting:
            del self._nodes[name]
        self._reports.forget()
        self._failures.forget()
        self._lasting.forget()

    def _node(self, name: str) -> _Node:
        row = self._state.nodes.get(name)
        if row is None:
            return _NOWHERE
        kept = self._nodes.get(name)
        if kept is None or kept.row is not row:
            kept = self._nodes[name] = _sorted_out(row)
        return kept


def _reports(row: PodRow, placements: Sequence[Placement], job: str) -> list[RankReport]:
    """What ranks reported of their collectives while the pod was the job's."""
    return [
        rank_report(s, placement)
        for group in row.seen.values()
        if group[0].kind not in FAILURES
        for s in group
        if (placement := placement_at(placements, s.at)) is None or placement.job.key == job
    ]


def _failures(row: PodRow, placements: Sequence[Placement], job: str) -> list[Sighting]:
    """The failures that were reported while the pod was the job's, each with its node and pod as far as they are known.

    A kubelet may report an image or a volume of a pod that runs, which it mounts anew: nothing waits for that.
    """
    found: list[Sighting] = []
    started = {t.fact.uid: at for t in row.tenancies if (at := t.fact.started_at) is not None}
    for s in (s for group in row.seen.values() if group[0].kind in FAILURES for s in group):
        placement = placement_at(placements, s.at)
        if placement is None or placement.job.key == job:
            node, pod = s.entity.node or (placement.node if placement else None), _with_uid(s, row)
            at = started.get(pod.uid) if pod is not None and pod.uid else None
            if at is None or s.at <= at or not _is_of_start(s):
                found.append(replace(s, entity=replace(s.entity, node=node, pod=pod)))
    return found


def _times(row: PodRow, tenancy: Tenancy) -> PodTimes:
    fact = tenancy.fact
    return PodTimes(
        fact.created_at or tenancy.first_seen, fact.scheduled_at, fact.started_at, ended_at(row, fact)
    )


_COULD_NOT_START = 128
"""The exit code that containerd gives a container that it could not start (StartError); nothing ran in it."""


def _ran_before(pod: PodFact) -> bool:
    """Whether a pod had started, though nobody knows when, or its latest start was not its first (containers start in place)."""
    exited_at = pod.exited_at if pod.exit_code != _COULD_NOT_START else None
    again = exited_at is not None and (pod.ended_at is None or exited_at < pod.ended_at)
    return again or (pod.phase == "Running" and pod.started_at is None)


def _is_of_start(seen: Sighting) -> bool:
    """Whether it is what keeps a pod from starting on its node."""
    rule = families().rule(seen)
    return rule is not None and rule.local


def _was_killed_in_slurm(job: str, node: str, seen: Sighting, failed: Sequence[Sighting]) -> bool:
    """Whether a process that the kernel killed was this job's: its cgroup tells, else what the job's launcher says of that node.

    Only gangs are followed: who else has a step there is not known.
    """
    if number := seen.text("slurm_job"):
        return job == f"{SLURM_JOB}//{number}"
    return any(
        s.entity.node == node and abs(s.at - seen.at) <= _FELT_WITHIN and _tells_of_a_kill(s) for s in failed
    )


def _tells_of_a_kill(seen: Sighting) -> bool:
    return (
        seen.text("exitcode") in ("-9", "137") or seen.text("signal") == "9" or seen.text("subtype") == "oom"
    )


def _with_uid(seen: Sighting, row: PodRow) -> PodRef | None:
    """The pod that a failure is about, with the uid of the one that bore the name then, where the line does not tell it."""
    pod = seen.entity.pod
    if pod is None or pod.uid or not row.tenancies:
        return pod
    born = [t for t in row.tenancies if (t.fact.created_at or t.first_seen) <= seen.at]
    return replace(pod, uid=(born[-1] if born else row.tenancies[0]).fact.uid)


def _is_shared(seen: Sighting, others: Sequence[Sighting]) -> bool:
    """Whether another node reported the same code at the same moment."""
    return any(
        s.code == seen.code and s.entity.node != seen.entity.node and abs(s.at - seen.at) <= _SAME_MOMENT
        for s in others
    )


def _sorted_out(row: NodeRow) -> _Node:
    table = families()
    codes: list[Sighting] = []
    collectives: list[Sighting] = []
    pauses: list[Sighting] = []
    failures: list[Sighting] = []
    is_quiet = True
    for group in row.seen.values():
        kind = group[0].kind
        is_quiet = is_quiet and kind == SignalKind.GPU_XID
        if kind in GPU_KINDS:
            roles = [s.role or table.role(s) for s in group]
            is_quiet = is_quiet and "cause" not in roles
            codes += [s for s, role in zip(group, roles, strict=True) if s.firing and role in _OF_JOBS]
        elif kind in (SignalKind.NCCL_TIMEOUT, SignalKind.NCCL_ERROR):
            collectives += group
        elif kind == SignalKind.FABRIC_PFC_STORM:
            pauses += group
        elif kind == SignalKind.NODE_MEMORY:
            failures += (s for s in group if s.firing and is_own(s))
    return _Node(row, tuple(codes), tuple(collectives), tuple(pauses), tuple(failures), is_quiet)
