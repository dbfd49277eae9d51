"""What was decided held against what was done: which incident belongs to which fault, and what is right about it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from faultline.replay.replay import Replayed
from runbooks.engine.escalation import is_for_owner
from sandbox.simulation.campaign import Simulated
from sandbox.simulation.truth import Fault, TrueRoot
from streams.model.entity import SLURM_JOB, Entity, JobRef
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run

EARLY = timedelta(minutes=2)
"""An incident may date its fault this much before it: clocks differ, and steps are seconds long."""
WITHDRAWN = "Withdrawn:"
_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class Miss:
    """One thing that is wrong, and how to see it again."""

    scenario: str
    what: str
    expected: str
    got: str

    def __str__(self) -> str:
        return (
            f"{self.what}\n    expected {self.expected}\n    got      {self.got}\n"
            f"    faultline simulate {self.scenario} --out CAPTURE && faultline replay CAPTURE"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run's figures."""

    site: str
    faults: int
    top1: int
    family: int
    count_right: bool
    healthy_cordons: tuple[str, ...]
    healthy_asked: tuple[str, ...]
    told: int
    """Incidents ever published in a state other than suppressed, and not for the owner of a job alone."""
    found: int
    """Faults that have an incident of their own, in the right place or not."""
    revisions: int
    runs: int
    questions: int
    """Those of the incidents ever told: revisions published, runs, and approvals that a person is asked for."""
    jobs: int
    jobs_right: int
    """Jobs that faults stopped, and those of them that the fault's incident names."""
    late_s: tuple[float, ...]
    """From each found fault until its incident was told first."""
    days: float
    """How long the run lasts."""
    look_alikes: int
    records: int
    misses: tuple[Miss, ...]
    false_families: Counter[str]


def verdict(simulated: Simulated, decided: Replayed, scenario: str) -> Verdict:
    """Judge one run."""
    faults = simulated.truth.faults
    runs_of: defaultdict[str, list[Run]] = defaultdict(list)
    for run in decided.runs:
        runs_of[run.incident].append(run)
    # What nobody but a job's owner has to know calls nobody.
    told = {
        id
        for id, publication in decided.publications.items()
        if publication.told_at is not None and not is_for_owner(decided.incidents[id], runs_of[id])
    }
    standing = sorted((i for i in decided.incidents.values() if stands(i)), key=lambda i: (i.fault_at, i.id))
    # What is left to whoever works on it is known, and shown with what they do; nobody is called for it.
    known = [i for i in standing if i.id in told or i.for_owner or i.state is IncidentState.SUPPRESSED]
    paired = pair(faults, known)
    misses: list[Miss] = []
    top1 = family = 0
    for fault in faults:
        incident = paired.get(fault.id)
        placed = incident is not None and names(incident.root, fault)
        sorted_ = incident is not None and incident.family in (fault.family, *fault.accepted)
        top1 += placed
        family += sorted_
        if not (placed and sorted_):
            what = "nothing found" if incident is None else "wrong place" if not placed else "wrong family"
            misses.append(Miss(scenario, f"{fault.kind}: {what}", _wanted(fault), _shown(incident)))
    jobs = jobs_right = 0
    for fault in faults:
        missing = [job for job in fault.stopped if not names_job(paired.get(fault.id), job)]
        jobs += len(fault.stopped)
        jobs_right += len(fault.stopped) - len(missing)
        for job in missing:
            misses.append(
                Miss(scenario, f"{fault.kind}: a job it stopped", f"{job}", _shown(paired.get(fault.id)))
            )
    used = {incident.id for incident in paired.values()}
    extra = [incident for incident in known if incident.id not in used and incident.id in told]
    for incident in extra:
        misses.append(
            Miss(scenario, f"{incident.family}: belongs to no fault", "no incident", _shown(incident))
        )
    cordons = healthy_cordons(faults, decided, "would")
    asked = healthy_cordons(faults, decided, "needs_approval")
    for node in cordons:
        misses.append(Miss(scenario, "HEALTHY NODE MARKED FOR CORDON", "left alone", node))
    for node in asked:
        misses.append(Miss(scenario, "a person would be asked to close a healthy node", "left alone", node))
    return Verdict(
        site=simulated.site,
        faults=len(faults),
        top1=top1,
        family=family,
        count_right=len(extra) + len(used) == len(faults),
        healthy_cordons=tuple(cordons),
        healthy_asked=tuple(asked),
        told=len(told),
        found=sum(incident.id in told for incident in paired.values()),
        revisions=sum(decided.publications[id].revisions for id in told),
        runs=sum(run.incident in told for run in decided.runs),
        questions=sum(a.incident in told and a.verdict == "needs_approval" for a in decided.actions),
        jobs=jobs,
        jobs_right=jobs_right,
        late_s=tuple(sorted(_late(faults, paired, decided))),
        days=(simulated.capture.meta.end - simulated.capture.meta.begin) / timedelta(days=1),
        look_alikes=len(simulated.truth.look_alikes),
        records=decided.records,
        misses=tuple(misses),
        false_families=Counter(incident.family for incident in extra),
    )


def stands(incident: Incident) -> bool:
    """Whether an incident was neither merged into another nor withdrawn."""
    if incident.state is IncidentState.MERGED:
        return False
    return not (incident.state is IncidentState.RESOLVED and incident.reason.startswith(WITHDRAWN))


def pair(faults: list[Fault], incidents: list[Incident]) -> dict[str, Incident]:
    """Each fault with the incident that is about it: first those in the right place, then those near it; each once."""
    paired: dict[str, Incident] = {}
    used: set[str] = set()
    for right_place in (True, False):
        options = [
            (
                incident.family not in (fault.family, *fault.accepted),
                abs(incident.fault_at - fault.at),
                fault.id,
                incident,
            )
            for fault in faults
            for incident in incidents
            if _in_time(fault, incident)
            and (names(incident.root, fault) if right_place else touches(incident, fault))
        ]
        for _, _, fault_id, incident in sorted(options, key=lambda option: (*option[:3], option[3].id)):
            if fault_id not in paired and incident.id not in used:
                paired[fault_id] = incident
                used.add(incident.id)
    return paired


def names(root: Entity, fault: Fault) -> bool:
    """Whether an incident's root is the fault's place, or one that the evidence cannot tell from it."""
    return any(fits(root, place) for place in (fault.root, *fault.roots))


def fits(root: Entity, place: TrueRoot) -> bool:
    """Whether an entity is a place of the truth, as far as both say it."""
    if place.node is not None:
        if not same_host(root.node, place.node):
            return False
        if place.gpu and root.gpu:
            # By the best name that both know.
            for name in ("pci", "uuid", "index"):
                if name in place.gpu and getattr(root.gpu, name) is not None:
                    return str(getattr(root.gpu, name)) == str(place.gpu[name])
        return not (place.nic and root.nic) or _ordinal(root.nic) == _ordinal(place.nic)
    if place.rack is not None:
        return getattr(root, "rack", None) == place.rack
    if place.storage is not None:
        said = str(getattr(root, "storage", None) or "")
        return bool(said) and (said.startswith(place.storage) or place.storage.startswith(said))
    if place.switch is not None:
        return root.switch == place.switch and (not place.port or not root.port or root.port == place.port)
    if place.shared is not None:
        return place.shared in (root.rack, root.switch, root.storage, root.part and root.part.name)
    if place.cluster is not None:
        return root.kind == "cluster"
    assert place.job is not None, "a place of the truth names something"
    return root.job is not None and root.node is None and same_job(root.job, place.job)


def touches(incident: Incident, fault: Fault) -> bool:
    """Whether an incident is about something that suffers from a fault."""
    root = incident.root
    if any(same_host(root.node, node) for node in fault.nodes) or (
        root.switch is not None and root.switch == fault.root.switch
    ):
        return True
    return any(names_job(incident, job) for job in fault.jobs)


def healthy_cordons(faults: list[Fault], decided: Replayed, verdict: str) -> list[str]:
    """Nodes that would be closed (`would`), or that somebody would be asked to close (`needs_approval`), although nothing was
    wrong with them by then.
    """
    found = []
    for action in decided.actions:
        if action.action != "cordon_node" or action.verdict != verdict:
            continue
        node = action.target.name
        if not any(
            same_host(node, name) and fault.at - EARLY <= action.at
            for fault in faults
            for name in fault.may_cordon
        ):
            found.append(f"{node} at {action.at:%H:%M:%S} by {action.runbook} ({action.verdict})")
    return found


def names_job(incident: Incident | None, job: Mapping[str, str]) -> bool:
    """Whether an incident names a job: among those it affects or that it else keeps from starting, or as its root.

    Of what is no training job a document names the first few, and a pod by itself where nobody tells whose it is: that is
    its job's by its name (`build-7-x2v5k`, `chat-7d9f8b6c5d-x2v5k`).
    """
    if incident is None:
        return False
    others = incident.other_workloads.first if incident.other_workloads else ()
    named = [*incident.jobs, *([incident.root.job] if incident.root.job else []), *others]
    return any(same_job(each, job) or _is_pod_of(each, job) for each in named)


def _is_pod_of(named: JobRef, true: Mapping[str, str]) -> bool:
    """Whether a pod that stands for itself bears the name that a controller gives the pods of a job of the truth."""
    owner, _, ending = named.name.rpartition("-")
    of_replica_set, _, _ = owner.rpartition("-")
    return (
        named.kind == "Pod"
        and bool(ending)
        and named.namespace == true.get("namespace")
        and true["name"] in (owner, of_replica_set)
    )


_SLURM = SLURM_JOB.removesuffix("Job")


def same_job(job: JobRef, true: Mapping[str, str]) -> bool:
    """Whether a job is one of the truth. Slurm's go by their number or their name; nobody knows a kind or a namespace of them."""
    if "title" in true or true["kind"].removesuffix("Job") == _SLURM:
        return job.name in (true["name"], true.get("title"))
    # Volcano calls its kind `Job` as well; Faultline tells the two apart.
    kind = true["kind"].removeprefix("Volcano")
    return (job.kind.removeprefix("Volcano"), job.namespace, job.name) == (
        kind,
        true["namespace"],
        true["name"],
    )


def same_host(name: str | None, true: str) -> bool:
    """Whether a name is that of a host: pipelines have hosts under short names and under full ones."""
    return name is not None and name.partition(".")[0].lower() == true.partition(".")[0].lower()


def _late(faults: list[Fault], paired: dict[str, Incident], decided: Replayed) -> Iterator[float]:
    """Seconds from each fault until its incident was told; clocks that differ make no negative ones."""
    for fault in faults:
        incident = paired.get(fault.id)
        told_at = decided.publications[incident.id].told_at if incident else None
        if told_at is not None:
            yield max(0.0, (told_at - fault.at).total_seconds())


def _in_time(fault: Fault, incident: Incident) -> bool:
    return fault.at - EARLY <= incident.fault_at <= fault.until


def _ordinal(name: str | None) -> str | None:
    """A NIC goes by several names (mlx5_3, rdma3) that end in the same number."""
    match = _NUMBER.search(name or "")
    return match[1] if match else name


def _wanted(fault: Fault) -> str:
    return f"{fault.family} at {fault.root.plain()} {fault.at:%H:%M:%S} ({fault.id} {fault.note})"


def _shown(incident: Incident | None) -> str:
    if incident is None:
        return "nothing"
    return f"{incident.family} at {incident.root} {incident.fault_at:%H:%M:%S} {incident.state.value}: {incident.reason[:300]}"
