"""Hosts on which job after job fails first, though nothing is wrong with them as far as any log tells.

A program's own fault follows the program; a host's follows the host. The third job, or the third set of nodes, that dies first on
one host within a month accuses it, unless jobs die first on its other hosts just as often. On the same nodes the same job counts
again where it crashes in another way, as a program does whose memory or results are damaged: its own faults repeat themselves.
Somebody who starts a program over and over under other names or numbers, on the nodes that they have, is one job (`_is_kin`).
Rank 0 proves nothing: programs fail there first. Only that other jobs crash there in other ways does, for a bad program crashes
in its own way each time. On a host that is accused already whatever fails first there is of the same fault.

So it is with a GPU, where the job's own words tell which rank failed first and which GPU that holds. There jobs on one host alone
count as well, each once however often it is started again: what fails in the same rank is a program, until it is three of them on
one GPU, on no other GPU of that host as often, and not in the same rank on other hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.rank_assignment import gpus_of
from streams.correlate.job_rules.rank_reports import Episode, rank_report
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import PastFault
from streams.model.digest import digest
from streams.model.entity import Gpu, JobRef
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind

RULE = "fails first again"

_LEAD = timedelta(seconds=2)
"""By how much the first host precedes the next: closer than clocks agree, or kubelets tell (whole seconds), none is first."""


_CRASHES = frozenset({"4", "7", "8", "11", "-4", "-7", "-8", "-11", "132", "135", "136", "139"})
"""Exit codes and signals of a process that crashed: illegal instruction, bus error, arithmetic, an address that is not there."""
_CRASH_WORDS = frozenset(
    {"Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception"}
)
"""The same, where a launcher or a shell has words for it."""
_OF_CHIPS = frozenset({"cuda_error", "not_a_number"})
"""Failures that a chip which computes wrongly leaves as well as bad code does."""
_LEADS = "rank 0 "
"""How the circumstances of a crash begin that rank 0 may have had."""
_STARVED = "memory "
"""How the circumstances of a process begin that the kernel killed because the host had no memory left."""
_PAIR = "pair "
"""How the circumstances begin of a job on two hosts: the one without rank 0 is all that can be named there."""
NEAR_NUMBERS = 100
"""Slurm numbers jobs as they come: what one person starts anew within minutes is no farther apart on a busy cluster."""
_SESSION = timedelta(hours=1)
"""Of Slurm's jobs nobody tells the owner: who uses the same nodes so soon after is most likely the same person."""
_RUN_OF = r"(?:[-_.](?:\d[\da-f]*|[a-z]|(?:retry|run|try|v|rerun)\d*)|\d+)+$"
"""The end of a name that tells the runs of one program apart."""
_NEAR = timedelta(days=1)
"""How long before the first death on a GPU others in the same rank speak for a program."""
_MANY_HOSTS = 3
"""Of two hosts one fails first twice in a row by mere chance."""


def crashed(s: Sighting) -> bool:
    """Whether it is a crash in a kernel or at an address, or a wrong result: what a process does by itself, and not when its
    peers are gone.
    """
    if s.kind != SignalKind.JOB_FAILED:
        return False
    numbers = (s.text("exitcode"), s.text("signal"))
    return (
        s.text("subtype") in _OF_CHIPS or not _CRASHES.isdisjoint(numbers) or s.text("reason") in _CRASH_WORDS
    )


def first_host(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """The host on which a job ended first, where nothing says why and the rank that did is not rank 0, as far as known."""
    if (host := starved(burst, placements)) is not None:
        return host
    host = _first(burst, placements)
    if host is None or _is_alone(host, placements):
        return None
    return None if _is_led(host, burst, placements) and not _crashed_at(host, burst, placements) else host


def starved(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """The one of a job's hosts whose memory ran out as a whole, so that the kernel killed there whatever was largest.

    What reached the limit of its own cgroup grew itself. What grows in one rank only grows in rank 0: its host proves nothing.
    """
    killed = {s.entity.node for s in burst.sightings if s.kind == SignalKind.NODE_MEMORY and _is_global(s)}
    host = killed.pop() if len(killed) == 1 else None
    there = {p.node for p in placements}
    if host is None or host not in there or len(there) < 2 or _leads(host, placements):
        return None
    return host


def _is_global(s: Sighting) -> bool:
    return s.text("subtype") == "oom" and s.text("constraint") == "CONSTRAINT_NONE"


def any_first_host(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """The host on which a job ended first, of whatever rank, and though it be the job's only one."""
    return _first(burst, placements)


def crashed_on(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """The one of many hosts on which a job crashed first, by whatever rank."""
    return _first(burst, placements) if ways(burst, placements) else None


def _first(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """What its programs and launchers say counts, and when its pods failed by the inventory: what is killed leaves no word.

    Of hosts that end at one time it is the only one whose process crashed: the others' abort when it is gone.
    """
    if burst.is_shared or burst.code or (burst.speaks_for_itself and not any(map(crashed, burst.failures))):
        return None
    words = [(s, node) for s in burst.failures if (node := _stands(s, placements)) is not None]
    ends = [(s.at, node) for s, node in words]
    ends += [(p.end, p.node) for p in placements if p.end is not None and p.succeeded is False]
    firsts: dict[str, datetime] = {}
    for at, node in sorted(ends):
        firsts.setdefault(node, at)
    began = min(firsts.values(), default=burst.start)
    first = {node for node, at in firsts.items() if at - began < _LEAD}
    if len(first) > 1:
        first &= {node for s, node in words if crashed(s) and s.at - began < _LEAD}
    return first.pop() if len(first) == 1 else None


class FirstGpu(NamedTuple):
    """The GPU on which a job ended first, and the rank that stood there. A GPU that no address names goes by its index."""

    node: str
    gpu: Gpu
    rank: int

    @property
    def name(self) -> str:
        """As it is kept: `NODE/GPU`."""
        return f"{self.node}/{self.gpu.key}"


def first_gpu(burst: Burst, placements: Sequence[Placement]) -> FirstGpu | None:
    """The GPU of the one rank that failed first, where the job's words tell which that is and what it holds."""
    host = _first(burst, placements)
    words = sorted((s.at, s.id, s) for s in burst.failures if host and _stands(s, placements) == host)
    near = [s for at, _, s in words if at - words[0][0] < _LEAD]
    held = {one for s in near if (one := _holds(s, placements)) is not None}
    if len(held) > 1:
        # The others of its host abort when it is gone.
        held = {one for s in near if crashed(s) and (one := _holds(s, placements)) is not None}
    return held.pop() if len(held) == 1 else None


def _holds(s: Sighting, placements: Sequence[Placement]) -> FirstGpu | None:
    """The GPU of the rank that a line is about: by its address, or by its place among those of a pod with a whole host's."""
    rank, local = _rank(s, placements), s.number("local_rank")
    pod = s.entity.pod.key if s.entity.pod else None
    here = next((p for p in placements if (rank in p.ranks if rank is not None else p.pod == pod)), None)
    if here is None:
        return None
    if rank is not None and (gpu := gpus_of([here], [rank]).get(rank)) is not None:
        return FirstGpu(here.node, gpu, rank)
    index = rank - here.ranks[0] if rank is not None and here.ranks else local
    whole = here.gpus >= policy().own_failures.gpus_a_node
    if index is None or not whole or index >= here.gpus:
        return None
    return FirstGpu(here.node, Gpu(index=index), rank if rank is not None else index)


def gpu_accusers(
    at: FirstGpu,
    job: JobRef,
    history: Mapping[str, Sequence[PastFault]],
    in_rank: Sequence[PastFault],
    when: datetime,
) -> list[PastFault]:
    """Earlier deaths of other jobs that began on this GPU, one of each job, if they are enough programs to accuse it.

    Args:
        at: Where the job failed first.
        job: The job.
        history: By node, those that failed first on a GPU of it.
        in_rank: Those that failed first in the rank of that number, wherever it stood.
        when: When the job failed.
    """
    if at.rank == 0:
        return []
    there = [f for f in _before(history.get(at.node, ()), when) if f.job != job.key]
    mine = {f.job: f for f in there if f.device == at.name}
    if len(mine) + 1 < policy().repeats.first_on_host:
        return []
    since = min(f.fault_at for f in mine.values())
    others = {f.job for f in there if f.device != at.name}
    # A rank that fails on other hosts is a program's, and its jobs may have failed here in it as well.
    alike = [f for f in in_rank if f.fault_at < when and f.device != at.name]
    follows = {f.job for f in alike if f.job in mine or f.job == job.key}
    elsewhere = {f.job for f in alike if f.fault_at >= since - _NEAR}
    left = sorted((f for f in mine.values() if f.job not in follows), key=lambda f: (f.fault_at, f.incident))
    deaths = [_Death(f.job or "", None, f.fault_at) for f in left] + [_Death(job.key, None, when)]
    enough = _programs(deaths) >= policy().repeats.first_on_host and job.key not in follows
    return left if enough and len(others) <= len(left) and len(elsewhere) <= len(left) else []


def suspected_host(finding: HangFinding, placements: Sequence[Placement]) -> str | None:
    """The one host that peers name as gone before them, where that is all that is known."""
    if finding.node is not None or finding.mismatch or len(finding.suspects) != 1:
        return None
    node = finding.suspects[0]
    return None if _is_alone(node, placements) or _leads(node, placements) else node


def _is_alone(node: str, placements: Sequence[Placement]) -> bool:
    return {p.node for p in placements} <= {node}


def _leads(node: str, placements: Sequence[Placement]) -> bool:
    return any(p.node == node and 0 in p.ranks for p in placements)


def _is_led(node: str, burst: Burst, placements: Sequence[Placement]) -> bool:
    """Whether rank 0 stands there, and no word says that it was another rank that failed."""
    words = (s for s in burst.failures if _stands(s, placements) == node)
    ranks = {rank for s in words if (rank := _rank(s, placements)) is not None}
    return _leads(node, placements) and (not ranks or 0 in ranks)


def _crashed_at(node: str, burst: Burst, placements: Sequence[Placement]) -> bool:
    return any(crashed(s) and _stands(s, placements) == node for s in burst.failures)


def _stands(s: Sighting, placements: Sequence[Placement]) -> str | None:
    """The host of a line: that of the rank it names, for one host may write the output of all."""
    rank = _rank(s, placements)
    return next((p.node for p in placements if rank is not None and rank in p.ranks), s.entity.node)


def _rank(s: Sighting, placements: Sequence[Placement]) -> int | None:
    rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
    local, pod = s.number("local_rank"), s.entity.pod.key if s.entity.pod else None
    if rank is None and local is not None:
        held = next((p.ranks for p in placements if p.pod == pod and local < len(p.ranks)), None)
        return held[local] if held is not None else None
    return rank


def circumstances(placements: Sequence[Placement], burst: Burst | None = None) -> str:
    """A short name of where a job ran; of a crash also of how it crashed, as far as its own faults would not change that. Where
    it may have been rank 0, only of how.
    """
    if burst is not None and (host := starved(burst, placements)) is not None:
        # Each time counts: a program that takes too much does so on all of its hosts.
        return f"{_STARVED}{digest(host, burst.start.isoformat(timespec='minutes'), size=8)}"
    host = _first(burst, placements) if burst is not None else None
    if burst is not None and host is not None and _is_led(host, burst, placements):
        return f"{_LEADS}{digest('ways', burst.signature, size=8)}"
    how = ways(burst, placements) if burst is not None else ""
    nodes = sorted({p.node for p in placements})
    found = digest("nodes", *nodes, *([how] if how else []), size=8)
    return f"{_PAIR}{found}" if len(nodes) < _MANY_HOSTS else found


def ways(burst: Burst, placements: Sequence[Placement]) -> str:
    """How it crashed, if it did in a kernel or at an address and ran on several hosts; "" otherwise."""
    many = len({p.node for p in placements}) >= _MANY_HOSTS
    return burst.signature if many and any(map(crashed, burst.failures)) else ""


def earlier_firsts(
    node: str,
    job: JobRef,
    placements: Sequence[Placement],
    history: Mapping[str, Sequence[PastFault]],
    at: datetime,
    own: Mapping[str, Sequence[PastFault]] | None = None,
    burst: Burst | None = None,
) -> list[PastFault]:
    """Earlier deaths that began on this host, one of each job and its circumstances, if they are enough to accuse it.

    `own` are the job's earlier ones that are still known by themselves, by host: in the history all of one signature are one.
    """
    own = own or {}
    known = (*_before(history.get(node, ()), at), *_before(own.get(node, ()), at))
    here = circumstances(placements, burst)
    mine = {(f.job, f.nodes): f for f in known if (f.job, f.nodes) != (job.key, here)}
    deaths = [*map(_death, mine.values()), _Death(job.key, here, at)]
    enough = _is_enough(deaths) and _elsewhere(node, history, own, at) <= len(mine)
    return sorted(mine.values(), key=lambda f: (f.fault_at, f.incident)) if enough else []


def accusers(
    node: str, history: Mapping[str, Sequence[PastFault]], burst: Burst, job: JobRef
) -> list[PastFault]:
    """The earlier deaths of other jobs that accuse this host, if need be with this crash; none if they do not."""
    at = burst.start
    mine = {(f.job, f.nodes): f for f in _before(history.get(node, ()), at) if f.job != job.key}
    deaths = list(map(_death, mine.values()))
    if any(map(crashed, burst.failures)):
        deaths.append(_Death(job.key, None, at))
    enough = _is_enough(deaths) and _elsewhere(node, history, {}, at) < len(mine)
    return sorted(mine.values(), key=lambda f: (f.fault_at, f.incident)) if enough else []


@dataclass(frozen=True, slots=True)
class _Death:
    """A job that ended first on a host: when, and in which circumstances (`how`) as far as known."""

    job: str
    how: str | None
    at: datetime


def _death(fault: PastFault) -> _Death:
    return _Death(fault.job or "", fault.nodes, fault.fault_at)


def _is_enough(deaths: Sequence[_Death]) -> bool:
    """Whether so many deaths, by job and circumstances, accuse a host. Those of rank 0 must be of other jobs, in other ways."""
    led = [d for d in deaths if (d.how or "").startswith(_LEADS)]
    counted = _programs([d for d in deaths if d not in led])
    if len({d.how for d in led}) > 1 or (led and counted):
        counted += _programs(list({d.job: d for d in led}.values()))
    return counted >= policy().repeats.first_on_host


def _programs(deaths: Sequence[_Death]) -> int:
    """How many programs these are at least, of which each counts once where it may have failed by itself."""
    left, found = list(deaths), 0
    while left:
        found += 1
        kin = [left.pop()]
        for one in kin:
            more = [d for d in left if _is_kin(one, d)]
            left = [d for d in left if d not in more]
            kin += more
    return found


def _is_kin(one: _Death, other: _Death) -> bool:
    """Whether two jobs are one program in all likelihood, started anew where it had run: also tasks of one array, wherever."""
    a, b = _name(one.job), _name(other.job)
    if one.job == other.job or a.place != b.place:
        return False
    if a.array is not None and a.array == b.array:
        return True
    if one.how != other.how and not (_is_pair(one) and _is_pair(other)):
        return False
    if a.number is not None and b.number is not None:
        return abs(a.number - b.number) <= NEAR_NUMBERS or abs(one.at - other.at) <= _SESSION
    return a.stem == b.stem


def _is_pair(death: _Death) -> bool:
    return (death.how or "").startswith(_PAIR)


@dataclass(frozen=True, slots=True)
class _Name:
    """A job's name, taken apart. `place` is its kind and namespace."""

    place: str
    stem: str
    number: int | None
    array: str | None


def _name(job: str) -> _Name:
    """A job's key, taken apart: of Slurm's the number, and its array's; of others what runs of one program have in common."""
    place, _, name = job.rpartition("/")
    array, task, _ = name.partition("_")
    if array.isdigit():
        return _Name(place, "", int(array), array if task else None)
    return _Name(place, re.sub(_RUN_OF, "", name), None, None)


def program_of(job: str) -> str | None:
    """What the names of runs of one program have in common; of Slurm's jobs, which are numbers, only tasks of one array have."""
    name = _name(job)
    if name.number is None:
        return f"{name.place}/{name.stem}"
    return f"{name.place}/{name.array}" if name.array is not None else None


def _elsewhere(
    node: str,
    history: Mapping[str, Sequence[PastFault]],
    own: Mapping[str, Sequence[PastFault]],
    at: datetime,
) -> int:
    """How many deaths began on the job's other hosts."""
    elsewhere = (found for firsts in (history, own) for name, found in firsts.items() if name != node)
    return sum(len(list(_before(found, at))) for found in elsewhere)


def _before(found: Iterable[PastFault], at: datetime) -> Iterable[PastFault]:
    since = at - policy().repeats.window
    return (f for f in found if since <= f.fault_at < at)


def accusation(node: str, earlier: Sequence[PastFault], at: FirstGpu | None = None) -> HangFinding:
    """What the history says, as far as a history goes: somebody is asked. `at` is the GPU on which this one began, if known.

    It is the GPU that is named where all began there.
    """
    jobs = list(dict.fromkeys((f.job or "").partition("/")[2].lstrip("/") for f in earlier))
    days = sorted({f.fault_at.date().isoformat() for f in earlier})
    why = (
        f"it failed first on {node}, whose log tells of nothing; so did {', '.join(jobs[:4])} "
        f"({', '.join(days[:4])}), on other nodes, of other programs or in other ways"
    )
    if all((f.nodes or "").startswith(_STARVED) for f in earlier):
        why = (
            f"the memory of {node} ran out as a whole, time and again: the kernel killed ranks of {', '.join(jobs[:4])} "
            f"({', '.join(days[:4])}) there and on no other of their nodes, so something else on it takes the memory"
        )
    if at is not None and all(f.device == at.name for f in earlier):
        why += f"; each time in the rank that stood on its GPU {at.gpu.key}, now rank {at.rank}"
        return HangFinding(node, Certainty.LIKELY, RULE, why, ranks=(at.rank,), suspects=(node,), gpu=at.gpu)
    return HangFinding(node, Certainty.LIKELY, RULE, why, suspects=(node,))


def as_episode(burst: Burst) -> Episode:
    """A job's end as what its ranks told."""
    reports = tuple(rank_report(s, None) for s in burst.failures)
    return Episode(burst.start, burst.start, burst.end, burst.seen_at, reports)
