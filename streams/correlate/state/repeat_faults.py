"""Repeat offenders: the same GPU, node, link or crash again, over days, also after the earlier incidents are forgotten.

A GPU is known by its UUID, so that it is recognised behind another address and in another node, and by its address, where another
GPU may stand by now: two UUIDs are two GPUs.
What is kept is a function of the incidents as they stand: one that becomes part of another is taken out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from streams.correlate.policy.policy import policy
from streams.correlate.state.rows import HistoryRow, PastFault
from streams.correlate.state.store import State
from streams.model.entity import Entity
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Attribute


def names_of(incident: Incident) -> tuple[str, ...]:
    """The names under which an incident is counted: those of its faulty entity; or the way in which a job's own code failed, and
    the host, GPU and rank on which the job failed first.
    """
    job, signature = incident.root.job, incident.facts.get("signature")
    crash = (f"{_CRASH}{job.key}/{signature}",) if job is not None and signature else ()
    first = first_names(incident.facts) if job is not None else ()
    return (*_names_of_entity(incident.root), *crash, *first)


def _names_of_entity(root: Entity) -> tuple[str, ...]:
    """The names under which a faulty entity is counted, the most precise first; none for a job."""
    names = []
    if root.gpu is not None and root.node is not None:
        names += [f"gpu/{root.gpu.uuid}"] if root.gpu.uuid else []
        names.append(f"gpu/{root.node}/{root.gpu.key}")
    if root.nic is not None and root.node is not None:
        names.append(f"link/{root.node}/{root.nic}")
    if root.switch is not None and root.port is not None:
        names.append(f"link/{root.switch}/{root.port}")
    if root.node is not None:
        names.append(f"node/{root.node}")
    return tuple(names)


FIRST_HOST, FIRST_NODES = "first_host", "first_nodes"
"""Facts of a job's own incident: the host on which the job failed first, and a name for the set of its nodes."""

FIRST_GPU, FIRST_RANK = "first_gpu", "first_rank"
"""The GPU on which it failed first, as `NODE/GPU`, and the rank that stood there, where the job's own words tell."""

_CRASH = "crash/"


def first_name(node: str) -> str:
    """The name of a host's history of jobs that failed first on it."""
    return f"first/{node}"


def first_gpu_name(node: str) -> str:
    """The name of the history of jobs that failed first on a GPU of this host, also of those on it alone."""
    return f"first-gpu/{node}"


def first_rank_name(rank: int) -> str:
    """The name of the history of jobs that failed first in the rank of this number, on whatever GPU."""
    return f"first-rank/{rank}"


def first_names(facts: Mapping[str, Attribute]) -> tuple[str, ...]:
    """The names of the histories in which a job's failure counts that began on one host or GPU."""
    host, device, rank = facts.get(FIRST_HOST), facts.get(FIRST_GPU), facts.get(FIRST_RANK)
    found = [first_name(str(host))] if host else []
    if device and isinstance(rank, int):
        found += [first_gpu_name(str(device).partition("/")[0]), first_rank_name(rank)]
    return tuple(found)


def host_of_first(name: str) -> str | None:
    """The host whose jobs are judged again when this history changes; None for any other history."""
    kind, _, host = name.partition("/")
    return host if kind in ("first", "first-gpu") else None


class RepeatFaults:
    """Counts incidents by offender, in bounded rows."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._untold: dict[str, set[str]] = {}
        """By job: names of the hosts on which a failure of it is counted that was no incident."""
        for name, row in state.histories.items():
            for fault in row.faults:
                if fault.job is not None and _is_untold(fault, fault.job):
                    self._untold.setdefault(fault.job, set()).add(name)

    def record(self, old: Incident | None, new: Incident, *, withdrawn: bool = False) -> set[str]:
        """Record a revision. Returns the offenders whose history it changed."""
        counts = (
            new.family not in policy().repeats.without
            and new.state not in (IncidentState.MERGED, IncidentState.SUPPRESSED)
            and not withdrawn
        )
        names = set(names_of(new)) if counts else set()
        changed = set()
        for name in names | set(names_of(old or new)):
            row = self._state.histories.get(name, HistoryRow())
            faults = {fault.incident: fault for fault in row.faults}
            if name in names:
                uuid = new.root.gpu.uuid if new.root.gpu else None
                faults[new.id] = PastFault(new.id, new.family, new.fault_at, uuid, *_job_of(new, name))
            else:
                faults.pop(new.id, None)
            latest = sorted(faults.values(), key=_order)[-policy().repeats.kept :]
            if self._keep(name, tuple(latest)):
                changed.add(name)
        return changed

    def record_untold(
        self, job: str, failures: Mapping[str, Sequence[PastFault]], since: datetime
    ) -> set[str]:
        """Count a job's failures that are no incidents for where it failed first (`failures`, by name of a history).

        What was counted so before and is none of them any more is taken out, but for what is older than `since`: its evidence is
        forgotten. Returns the histories that it changed.
        """
        changed, left = set(), set()
        for name in sorted({*failures, *self._untold.get(job, ())}):
            row = self._state.histories.get(name, HistoryRow())
            faults = {f.incident: f for f in row.faults if not (_is_untold(f, job) and f.fault_at >= since)}
            faults |= {f.incident: f for f in failures.get(name, ())}
            latest = sorted(faults.values(), key=_order)[-policy().repeats.kept :]
            if self._keep(name, tuple(latest)):
                changed.add(name)
            if any(_is_untold(fault, job) for fault in latest):
                left.add(name)
        self._index_untold(job, left)
        return changed

    def _index_untold(self, job: str, names: set[str]) -> None:
        if names:
            self._untold[job] = names
        else:
            self._untold.pop(job, None)

    def facts(self, incident: Incident) -> Mapping[str, Attribute]:
        """Facts about earlier incidents of the same faulty entity: how many, and the days (UTC) of the latest.

        Of a job's own code: how many earlier ones failed in the same way.
        """
        names = _names_of_entity(incident.root)
        crashes = self._earlier([name for name in names_of(incident) if name.startswith(_CRASH)], incident)
        if not names:
            return {"same_before": len(crashes)} if crashes else {}
        part = [name for name in names if not name.startswith("node/")]
        node = self._earlier([name for name in names if name.startswith("node/")], incident)
        earlier = self._earlier(part, incident) if part else node
        facts: dict[str, Attribute] = {}
        if earlier:
            days = sorted({fault.fault_at.date().isoformat() for fault in earlier})
            facts["repeats"] = len(earlier)
            facts["repeats_days"] = tuple(days[-policy().repeats.days_shown :])
        if node and part:
            facts["node_repeats"] = len(node)
        return facts

    def prune(self, now: datetime) -> None:
        """Forget incidents that are too old for any open one to repeat them: twice the window, as some stay open long."""
        cut = now - 2 * policy().repeats.window
        for name, row in list(self._state.histories.items()):
            self._keep(name, tuple(fault for fault in row.faults if fault.fault_at >= cut))

    def _earlier(self, names: Iterable[str], incident: Incident) -> list[PastFault]:
        since = incident.fault_at - policy().repeats.window
        uuid = incident.root.gpu.uuid if incident.root.gpu else None
        found = {
            fault.incident: fault
            for name in names
            for fault in self._state.histories.get(name, HistoryRow()).faults
            if fault.fault_at >= since
            and _order(fault) < (incident.fault_at, incident.id)
            and (name.startswith("node/") or uuid is None or fault.gpu in (None, uuid))
        }
        return sorted(found.values(), key=_order)

    def _keep(self, name: str, faults: tuple[PastFault, ...]) -> bool:
        if faults:
            return self._state.histories.put(name, HistoryRow(faults))
        known = name in self._state.histories
        self._state.histories.drop(name)
        return known


def untold_fault(
    incident: str, family: str, at: datetime, job: str, nodes: str, device: str | None = None
) -> PastFault:
    """A failure that is counted though it is no incident. Its number, and so its id, may be given again once it is forgotten."""
    name = f"{incident}/{nodes}" if device is None else f"{incident}/{nodes}/{device}"
    return PastFault(name, family, at, None, job, nodes, device)


def _is_untold(fault: PastFault, job: str) -> bool:
    return fault.job == job and "/" in fault.incident


def _job_of(incident: Incident, name: str) -> tuple[str | None, str | None, str | None]:
    """The job, the set of its nodes and the GPU, where hosts, GPUs and ranks of first failures are counted."""
    job, device = incident.root.job, incident.facts.get(FIRST_GPU)
    if job is None or name not in first_names(incident.facts):
        return None, None, None
    return job.key, str(incident.facts.get(FIRST_NODES) or ""), str(device) if device else None


def _order(fault: PastFault) -> tuple[datetime, str]:
    return (fault.fault_at, fault.incident)
