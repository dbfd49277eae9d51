"""Changes that others make to nodes and jobs, derived from the inventory: two states of an object → what was done to it. Pure.

They go to the timeline, so that operators' actions can be compared with what a shadow-mode run would have done. Faultline's own
changes are left out: a cordon by its annotations, everything else by the runs' records. Changes that belong to no incident are
reported for nodes only, at most `MAX_UNASSIGNED` in `UNASSIGNED_WINDOW`: the upgrade of a cluster must not flood the timeline.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from runbooks.engine.guardrails.cordoned_nodes import OWN_TAINT
from runbooks.engine.run.transition import TimelineNote
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import rfc3339
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.incident import Incident
from streams.model.message import some
from streams.model.run import EffectRecord, EffectState, Run, Target

UNASSIGNED_WINDOW = timedelta(minutes=10)
MAX_UNASSIGNED = 20
"""Entries about nodes without an incident, per window and cluster; the number of further ones follows after the window."""

MAX_INCIDENTS = 5
"""Incidents on whose timeline one change is put."""

AFTERMATH = timedelta(hours=24)
"""Changes to its nodes and jobs belong to an incident for this long after its end: repairs come late."""

EARLY, LATE = timedelta(seconds=5), timedelta(minutes=2)
"""How long before and after our own call the inventory may show its effect, by the inventory's clock or by ours."""

_SYSTEM_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that controllers set and remove, or that Faultline marks dead nodes with."""

_WORDS = {
    "node_cordoned": "was cordoned", "node_uncordoned": "was uncordoned", "node_tainted": "was tainted",
    "node_untainted": "lost a taint", "node_maintenance": "was put into maintenance",
    "node_maintenance_ended": "was taken out of maintenance", "node_opted_out": "was opted out of automation",
    "node_rebooted": "was rebooted", "node_replaced": "was replaced by another machine", "node_deleted": "was deleted",
    "node_drained": "was drained", "job_suspended": "was suspended", "job_resumed": "was resumed",
    "job_deleted": "was deleted", "job_restarted": "was deleted and recreated",
}  # fmt: skip
"""Every act, as `observed.ACT` on the timeline."""

_OURS = {
    "cordon_node": {"node_cordoned", "node_tainted"},
    "uncordon_node": {"node_uncordoned", "node_untainted"},
    "drain_node": {"node_drained"},
    "suspend_job": {"job_suspended"},
    "resume_job": {"job_resumed"},
    "reboot_node": {"node_rebooted", "node_drained"},
    "power_cycle_node": {"node_rebooted", "node_drained"},
}
_OURS_UNDONE = {"cordon_node": _OURS["uncordon_node"], "suspend_job": _OURS["resume_job"]}


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """Something done to a node or a job. `at` is when the inventory saw it; the API server does not say who did it."""

    act: str
    target: Target
    cluster: str
    at: datetime
    detail: str = ""
    left: tuple[tuple[str, datetime], ...] = ()
    """Of a drained node: the jobs whose pods left while it was cordoned, by key, and when each did."""

    @property
    def text(self) -> str:
        """The text of the timeline entry."""
        return f"{self.target} {_WORDS[self.act]}, not by Faultline" + (
            f" ({self.detail})" if self.detail else ""
        )

    def note(self) -> TimelineNote:
        """The timeline entry; reports read its attributes."""
        about = {
            "act": self.act, "kind": self.target.kind, "name": self.target.name,
            "namespace": self.target.namespace or "", "at": rfc3339(self.at), "detail": self.detail,
        }  # fmt: skip
        return TimelineNote(f"observed.{self.act}", self.text, None, {k: v for k, v in about.items() if v})


@dataclass(slots=True)
class _Unassigned:
    """What was reported for one cluster outside of incidents."""

    reported: deque[datetime] = field(default_factory=deque)
    left_out: int = 0


class ExternalChanges:
    """Collects changes as facts arrive, and assigns them to incidents once everything else has been read."""

    def __init__(self) -> None:
        self._seen: list[ExternalChange] = []
        self._deleted: dict[str, str | None] = {}
        self._unassigned: dict[str, _Unassigned] = {}
        self._left: dict[tuple[str, str], dict[str, datetime]] = {}
        """Jobs that have left a cordoned node so far, by key with the time, by cluster and node."""

    def observe(self, view: ClusterView, key: str, fact: Fact | None, at: datetime) -> None:
        """A fact about to be put into the view, or None for a tombstone; `at` is when it was published."""
        _, kind, name = key.split("/", 2)
        match kind:
            case "node" if fact is None or isinstance(fact, NodeFact):
                self._seen += _of_node(view.nodes.get(name), fact, at)
                if fact is None or not fact.unschedulable:
                    self._left.pop((view.cluster, name), None)
            case "job" if fact is None or isinstance(fact, JobFact):
                self._seen += self._of_job(name, view.jobs.get(name), fact, at)
            case "pod" if fact is None or isinstance(fact, PodFact):
                self._seen += self._of_pod(view, key, fact, at)

    def take(
        self, incidents: Iterable[Incident], runs_on: Callable[[str, str], Iterable[Run]], now: datetime
    ) -> Iterator[tuple[ExternalChange, TimelineNote, str]]:
        """Every change by somebody else since the last call, with its timeline entry and its incident (empty for none).

        `runs_on` returns the runs of a cluster with a step on a target. Incidents long over may be left out. `now` is by the
        clock that dates the runs' calls.
        """
        seen, self._seen = self._seen, []
        if not seen:
            return
        # Index first: a whole cluster may change at once, with as many incidents open.
        by_target = _by_target(incidents)
        for act in seen:
            runs = list(runs_on(act.cluster, act.target.key))
            if any(_is_of_run(act, run, now) for run in runs) or _is_our_suspend(act, runs_on, now):
                continue
            found = _incidents_of(act, by_target.get((act.cluster, act.target.key), ()), runs)
            if found:
                yield from ((act, act.note(), incident) for incident in found)
            elif act.target.kind == "Node":
                yield from ((act, note, "") for note in self._limited(act))

    def _limited(self, act: ExternalChange) -> Iterator[TimelineNote]:
        unassigned = self._unassigned.setdefault(act.cluster, _Unassigned())
        while unassigned.reported and unassigned.reported[0] <= act.at - UNASSIGNED_WINDOW:
            unassigned.reported.popleft()
        if len(unassigned.reported) >= MAX_UNASSIGNED:
            unassigned.left_out += 1
            return
        if unassigned.left_out:
            yield TimelineNote(
                "observed.more",
                f"{unassigned.left_out} more changes of nodes without an incident were seen but not listed",
                None,
                {"count": unassigned.left_out},
            )
            unassigned.left_out = 0
        unassigned.reported.append(act.at)
        yield act.note()

    def _of_job(
        self, name: str, before: JobFact | None, after: JobFact | None, at: datetime
    ) -> Iterator[ExternalChange]:
        if after is None:
            if before is not None and not before.finished:
                if len(self._deleted) > 1000:
                    self._deleted.pop(next(iter(self._deleted)))
                self._deleted[name] = before.job.uid
                yield ExternalChange("job_deleted", _job(before), before.cluster, at)
            return
        gone = self._deleted.pop(name, None) if before is None else before.job.uid
        if gone is not None and after.job.uid is not None and gone != after.job.uid:
            yield ExternalChange("job_restarted", _job(after), after.cluster, after.observed_at)
        elif before is not None and before.suspended is not after.suspended and not after.finished:
            act = "job_suspended" if after.suspended else "job_resumed"
            yield ExternalChange(act, _job(after), after.cluster, after.observed_at)

    def _of_pod(
        self, view: ClusterView, key: str, after: PodFact | None, at: datetime
    ) -> Iterator[ExternalChange]:
        """A cordoned node counts as drained when the last pod of a job leaves it, unless the job completed or the node is dead:
        then Kubernetes itself evicts the pods."""
        before = view.pods.get(key)
        if before is None or before.node is None or before.job is None or before.ended_at is not None:
            return
        node = view.nodes.get(before.node)
        left = after is None or after.ended_at is not None or after.node != before.node
        if node is None or not node.unschedulable or not left or _kubernetes_evicts(node):
            return
        job = view.jobs.get(before.job.key)
        if (after is not None and after.phase == "Succeeded") or (job is not None and job.finished):
            return
        gone_at = after.observed_at if after else at
        gone = self._left.setdefault((view.cluster, node.name), {})
        gone[before.job.key] = gone_at
        if all(pod.job is None or pod.key == key for pod in view.pods_on(node.name)):
            del self._left[view.cluster, node.name]
            yield ExternalChange(
                "node_drained", Target("Node", node.name), node.cluster, gone_at, left=tuple(gone.items())
            )


def _kubernetes_evicts(node: NodeFact) -> bool:
    """Whether Kubernetes evicts the node's pods because the node does not answer."""
    return any(t.startswith(_SYSTEM_TAINTS) and t.endswith(":NoExecute") for t in node.taints)


def _of_node(before: NodeFact | None, after: NodeFact | None, at: datetime) -> Iterator[ExternalChange]:
    if before is None:
        return
    target, cluster = Target("Node", before.name), before.cluster
    if after is None:
        yield ExternalChange("node_deleted", target, cluster, at)
        return
    at = after.observed_at
    if before.uid != after.uid:
        yield ExternalChange("node_replaced", target, cluster, at)
        return
    for act, detail in _node_acts(before, after):
        yield ExternalChange(act, target, cluster, at, detail)


def _node_acts(before: NodeFact, after: NodeFact) -> Iterator[tuple[str, str]]:
    """What was done to a node between two states of it: each act with its detail."""
    if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
        yield "node_rebooted", ""
    ours = after.owner_incident is not None and any(t.startswith(OWN_TAINT) for t in after.taints)
    if before.unschedulable is not after.unschedulable and not (after.unschedulable and ours):
        yield "node_cordoned" if after.unschedulable else "node_uncordoned", ""
    old, new = _taints(before), _taints(after)
    if new - old:
        yield "node_tainted", some(sorted(new - old), 4)[:200]
    if old - new:
        yield "node_untainted", some(sorted(old - new), 4)[:200]
    if before.maintenance is not after.maintenance:
        yield "node_maintenance" if after.maintenance else "node_maintenance_ended", ""
    if before.managed and not after.managed:
        yield "node_opted_out", ""


def _taints(fact: NodeFact) -> set[str]:
    return {t for t in fact.taints if not t.startswith(OWN_TAINT) and not t.startswith(_SYSTEM_TAINTS)}


def _job(fact: JobFact) -> Target:
    return Target(fact.job.kind, fact.job.name, fact.job.namespace)


def _is_of_run(act: ExternalChange, run: Run, now: datetime) -> bool:
    """Whether a run did it: one of its calls explains what the inventory showed at that time.

    The inventory dates the change by its clock and we our call by ours, which may differ by minutes; so what is read now, shortly
    after our call, is taken for its effect as well. After an outage it is read late, and only its own date can tell.
    """
    for planned in run.plan.steps:
        if planned.target is None or planned.target.key != act.target.key:
            continue
        record = run.step(planned.id)
        for row, acts in ((record.effect, _OURS), (record.undo, _OURS_UNDONE)):
            if row is not None and act.act in acts.get(planned.action, ()) and _covers(row, act.at, now):
                return True
    return False


def _is_our_suspend(act: ExternalChange, runs_on: Callable[[str, str], Iterable[Run]], now: datetime) -> bool:
    """Whether the pods left because a run suspended their job: then nobody else drained the node."""
    for job, at in act.left:
        for run in runs_on(act.cluster, job):
            if _is_of_run(replace(act, act="job_suspended", target=_target_of(job), at=at), run, now):
                return True
    return False


def _target_of(job: str) -> Target:
    kind, namespace, name = job.split("/", 2)
    return Target(kind, name, namespace)


def _covers(row: EffectRecord, *moments: datetime) -> bool:
    if row.state is EffectState.REFUSED:
        return False
    begin, end = row.intended_at - EARLY, row.confirmed_at and row.confirmed_at + LATE
    return any(begin <= at and (end is None or at <= end) for at in moments)


def _incidents_of(act: ExternalChange, incidents: Iterable[Incident], runs: Iterable[Run]) -> list[str]:
    """The incidents that name the node or job, or have a run on it, the latest first."""
    found = {
        incident.id: incident.opened_at
        for incident in incidents
        if incident.closed_at is None or act.at <= incident.closed_at + AFTERMATH
    }
    for run in runs:
        if run.finished_at is None or act.at <= run.finished_at + AFTERMATH:
            found.setdefault(run.incident, run.created_at)
    return sorted(found, key=lambda name: (found[name], name), reverse=True)[:MAX_INCIDENTS]


def _by_target(incidents: Iterable[Incident]) -> Mapping[tuple[str, str], list[Incident]]:
    """The incidents that name each node and job, by cluster and key."""
    found: defaultdict[tuple[str, str], list[Incident]] = defaultdict(list)
    for incident in incidents:
        nodes = {Target("Node", name).key for name in (*incident.nodes, incident.root.node) if name}
        jobs = {job.key for job in (*incident.jobs, incident.root.job) if job is not None}
        for key in nodes | jobs:
            found[incident.cluster, key].append(incident)
    return found
