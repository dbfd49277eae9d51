"""The process groups of a job, learned from what its ranks report: names, members, and how far each member came.

No line lists a group's members. They follow from the ranks that speak of it, from the place each has in it (`pg_rank`),
and from groups of the same kind beside it: parallel groups are laid out at even strides (Megatron-LM, parallel_state.py: a
tensor-parallel group is consecutive ranks, a data-parallel one every Nth). A flight recorder's dump may list them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

from streams.correlate.job_rules.rank_reports import Episode, Rank, RankReport
from streams.correlate.sightings import Sighting
from streams.model.kinds import SignalKind

DEFAULT = "0"
"""The group of all ranks: PyTorch gives it the first number."""
UNNAMED = "?"
"""Before PyTorch 2.4 no line names its group. Where ranks speak of several so, nothing can be compared between them."""
_NO_KIND = frozenset({"", "undefined", "default_pg"})
_POINT_TO_POINT = frozenset({"SEND", "RECV", "COALESCED"})
"""Operations whose number is counted per rank (PyTorch counts batched sends and receives so): never compared between ranks."""
_UNTOLD = frozenset({"", "COALESCED", "UNKNOWN"})
_SAME_SIZE = frozenset({"ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"})
"""Collectives to which every rank brings as many elements as the others (nccl.h)."""
_MAX_NUMEL = 2**63
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
_MAX_LISTED = 65_536
_MAX_STRIDES = 64

BEFORE_ALL = -2
"""How far a member came that said nothing of the group."""


@dataclass(slots=True)
class Waiter:
    """One rank in one process group: how far it had come. Numbers are None where no line gave them."""

    rank: Rank
    node: str | None = None
    pg_rank: int | None = None
    seq: int | None = None
    """The lowest collective it waited in until the watchdog spoke."""
    op: str = ""
    numel: tuple[int, int] | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    by_proxy: bool = False
    """True where it is only in another rank's report."""

    def record(self, s: Sighting) -> None:
        """Record one line of this rank about this group; the order of the lines does not matter."""
        seq = s.number("seq")
        if s.number("pg_rank") is not None:
            self.pg_rank = s.number("pg_rank")
        if seq is not None and s.text("subtype") != "dump":
            self._wait(seq, s)
        self.last_enqueued = _highest(self.last_enqueued, s.number("last_enqueued"))
        self.last_completed = _highest(self.last_completed, s.number("last_completed"))

    def _wait(self, seq: int, s: Sighting) -> None:
        if self.seq is None or seq < self.seq:
            self.seq, self.op, self.numel = seq, "", None
        if seq == self.seq:
            self.op = max(self.op, s.text("op"))
            into, out = s.number("numel_in"), s.number("numel_out")
            if into is not None and out is not None and max(into, out) < _MAX_NUMEL:
                self.numel = max(self.numel or (0, 0), (into, out))


@dataclass(slots=True)
class Group:
    """One process group. `members` are the ranks that surely or by its layout belong to it, those who spoke included."""

    name: str
    kind: str
    waiters: dict[Rank, Waiter] = field(default_factory=dict)
    members: AbstractSet[Rank] = frozenset()
    listed: frozenset[Rank] = frozenset()
    local: bool = False
    """Named only by the number its own process gave it: other groups may bear the same."""

    @property
    def label(self) -> str:
        """As people know it."""
        return f"{self.name} ({self.kind})" if self.kind and self.kind != self.name else self.name

    @property
    def point_to_point(self) -> bool:
        """Whether its numbers say nothing between ranks."""
        return any(w.op in _POINT_TO_POINT for w in self.waiters.values())

    def level(self, rank: Rank) -> int:
        """The last collective the rank joined, as far as it is told; `BEFORE_ALL` when nothing is."""
        waiter = self.waiters.get(rank)
        if waiter is None:
            return BEFORE_ALL
        if waiter.seq is not None:
            return waiter.seq
        return BEFORE_ALL if waiter.last_enqueued is None else waiter.last_enqueued


def learn(episode: Episode, world: AbstractSet[Rank]) -> dict[str, Group]:
    """The groups that a hang's reports speak of, by name. `world` is every rank of the job that is known by number."""
    groups: dict[str, Group] = {}
    unnamed = DEFAULT if all(_of_all_ranks(t) for t in episode.reports) else UNNAMED
    for report in episode.reports:
        if report.sighting.kind == SignalKind.NCCL_TIMEOUT:
            _record(groups, report, unnamed)
    groups = {part.name: part for group in groups.values() for part in _parted(group)}
    layouts = _layouts(groups.values())
    for group in groups.values():
        group.members = _members(group, layouts, world)
    for report in episode.reports:
        if report.sighting.kind == SignalKind.NCCL_ERROR and report.sighting.text("subtype") == "desync":
            _record_desync(groups, report, world)
    return dict(sorted(groups.items()))


def _of_all_ranks(report: RankReport) -> bool:
    """False for a line without a group whose rank inside its group is not its global one."""
    s = report.sighting
    if s.kind != SignalKind.NCCL_TIMEOUT or s.text("pg"):
        return True
    return isinstance(report.rank, int) and s.number("pg_rank") in (None, report.rank)


def _record(groups: dict[str, Group], report: RankReport, unnamed: str) -> None:
    s = report.sighting
    name = s.text("pg") or unnamed
    group = groups.get(name)
    if group is None:
        group = groups[name] = Group(name, "")
    about = s.text("pg_name")
    if about in _NO_KIND:
        about = s.text("pg_id")
    group.kind = max(group.kind, about)
    if name not in (DEFAULT, UNNAMED) and s.number("pg_rank") is not None and not s.text("pg_id"):
        group.local = True
    if s.text("ranks"):
        group.listed |= frozenset(listed(s.text("ranks")))
    waiter = group.waiters.get(report.rank)
    if waiter is None:
        waiter = group.waiters[report.rank] = Waiter(report.rank, report.node)
    waiter.record(s)


def listed(text: str) -> Iterator[int]:
    """Ranks as lists print them: `3, 5` or `0-7,16`."""
    count = 0
    for match in _RANGE.finditer(text):
        first = int(match[1])
        last = int(match[2] or first)
        count += max(last - first + 1, 0)
        if count > _MAX_LISTED:
            return
        yield from range(first, last + 1)


# Groups that share a name.


def _parted(group: Group) -> list[Group]:
    """Before PyTorch 2.5 a line names a group by the number its process gave it, and all groups of a kind have the same.

    They are told apart by the layout that makes the fewest groups of them; where two layouts do, each rank stays alone.
    """
    placed = {r: w.pg_rank for r, w in group.waiters.items() if isinstance(r, int) and w.pg_rank is not None}
    if not group.local or len(placed) < len(group.waiters):
        return [group]
    stride = _common_stride(placed)
    parts: dict[str, Group] = {}
    for rank, waiter in group.waiters.items():
        assert isinstance(rank, int)
        base = rank if stride is None else rank - stride * placed[rank]
        name = f"{group.name} from rank {base}"
        part = parts.setdefault(name, Group(name, group.kind or group.name))
        part.waiters[rank] = waiter
    return list(parts.values())


def _common_stride(placed: Mapping[int, int]) -> int | None:
    by_place: dict[int, list[int]] = defaultdict(list)
    for rank, place in sorted(placed.items()):
        by_place[place].append(rank)
    tried: set[int] = set()
    for (place, ranks), (later, others) in pairwise(sorted(by_place.items())):
        apart = {other - rank for rank in ranks[:8] for other in others[:8] if other > rank}
        tried |= {d // (later - place) for d in apart if d % (later - place) == 0}
    best: list[tuple[int, int]] = []
    for stride in sorted(tried)[:_MAX_STRIDES]:
        bases = {rank - stride * place for rank, place in placed.items()}
        if min(bases) >= 0:
            best.append((len(bases), stride))
    best.sort()
    if not best or (len(best) > 1 and best[0][0] == best[1][0]):
        return None
    return best[0][1]


# Members.


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of the groups of one kind: how many ranks each has, and how far apart those are."""

    size: int
    stride: int | None


def _layouts(groups: Iterable[Group]) -> dict[str, _Layout]:
    kinds: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        if group.kind not in _NO_KIND:
            kinds[group.kind].append(group)
    found = {}
    for kind, alike in kinds.items():
        strides = {stride for group in alike if (stride := _stride(group)) is not None}
        sizes = [w.pg_rank + 1 for g in alike for w in g.waiters.values() if w.pg_rank is not None]
        found[kind] = _Layout(max(sizes, default=0), strides.pop() if len(strides) == 1 else None)
    return found


def _stride(group: Group) -> int | None:
    """The distance between neighbours, if all that spoke stand at even distances."""
    placed = _placed(group)
    if len(placed) < 2:
        return None
    (p0, r0), (p1, r1) = placed[0], placed[1]
    if p1 == p0 or (r1 - r0) % (p1 - p0):
        return None
    stride = (r1 - r0) // (p1 - p0)
    return stride if stride > 0 and all(r == r0 + stride * (p - p0) for p, r in placed) else None


def _placed(group: Group) -> list[tuple[int, int]]:
    return sorted(
        (w.pg_rank, r) for r, w in group.waiters.items() if isinstance(r, int) and w.pg_rank is not None
    )


def _members(group: Group, layouts: Mapping[str, _Layout], world: AbstractSet[Rank]) -> AbstractSet[Rank]:
    spoke = group.waiters.keys()
    if group.name == UNNAMED:
        return frozenset()
    if group.listed:
        return frozenset(group.listed | spoke)
    if group.name == DEFAULT:
        return frozenset(world | spoke)
    placed = _placed(group)
    layout = layouts.get(group.kind, _Layout(0, None))
    stride = _stride(group) or (layout.stride if len(placed) == 1 else None)
    if not placed or stride is None:
        return frozenset(spoke)
    place, rank = placed[0]
    size = max(layout.size, placed[-1][0] + 1)
    laid_out: set[Rank] = {rank + stride * (k - place) for k in range(size)}
    return frozenset((laid_out & world if world else laid_out) | spoke)


# The desync report.


def _record_desync(groups: dict[str, Group], report: RankReport, world: AbstractSet[Rank]) -> None:
    """PyTorch's desync report (TraceUtils.h): what the store knows of every rank, told by one."""
    s = report.sighting
    name = s.text("pg") or _reporters_group(groups, report.rank)
    group = groups.get(name)
    if group is None:
        if name != DEFAULT:
            return
        group = groups[DEFAULT] = Group(DEFAULT, "", members=frozenset(world))
    for number in listed(s.text("ranks")):
        rank = _rank_of_number(group, number)
        if rank is not None and (not world or rank in world):
            _report(group, rank, s)


def _rank_of_number(group: Group, number: int) -> Rank | None:
    """The rank behind a number of the report, which counts within the group; None where it may be a global rank as well."""
    if group.name == DEFAULT:
        return number
    placed, stride = _placed(group), _stride(group)
    inside = dict(placed).get(number)
    if inside is None and stride is not None:
        inside = placed[0][1] + stride * (number - placed[0][0])
    within = inside if inside is not None and inside in group.members else None
    outside = number if number in group.members else None
    return within if outside is None else outside if within in (None, outside) else None


def _reporters_group(groups: Mapping[str, Group], rank: Rank) -> str:
    """The one group in which the reporter waits; the report itself does not name it."""
    waits = [g.name for g in groups.values() if rank in g.waiters and g.waiters[rank].seq is not None]
    return waits[0] if len(waits) == 1 else DEFAULT if not groups else ""


def _report(group: Group, rank: Rank, s: Sighting) -> None:
    known = group.waiters.get(rank)
    if known is not None and not known.by_proxy:
        return  # its own word counts
    waiter = known or Waiter(rank, by_proxy=True)
    seq = s.number("seq")
    if s.text("reason") == "finish" and seq is not None:
        waiter.seq = seq if waiter.seq is None else min(waiter.seq, seq)
    else:
        waiter.last_enqueued = _highest(waiter.last_enqueued, -1 if seq is None else seq)
    group.waiters[rank] = waiter
    group.members = group.members | {rank}


# Mismatches.


def mismatch(groups: Iterable[Group]) -> str | None:
    """Ranks that called different operations, or the same with different sizes, as one collective: the program's fault."""
    for group in groups:
        if group.point_to_point or group.name == UNNAMED:
            continue
        ops: dict[int, set[str]] = defaultdict(set)
        sizes: dict[tuple[int, str], set[tuple[int, int]]] = defaultdict(set)
        for w in group.waiters.values():
            if w.seq is None or w.op in _UNTOLD:
                continue
            ops[w.seq].add(_spelling(w.op))
            if w.numel is not None and w.op in _SAME_SIZE:
                sizes[(w.seq, w.op)].add(w.numel)
        for seq, called in sorted(ops.items()):
            if len(called) > 1:
                names = " and ".join(sorted(called))
                return f"in process group {group.label} the ranks called {names} as collective {seq}"
        for (seq, op), found in sorted(sizes.items()):
            if len(found) > 1:
                counts = " and ".join(str(n) for n in sorted({n for n, _ in found} or {0})[:4])
                what = f"{op} as collective {seq} with different sizes ({counts} elements)"
                return f"in process group {group.label} the ranks called {what}"
    return None


def _spelling(op: str) -> str:
    """Watchdog and flight recorder spell one operation differently (`_ALLGATHER_BASE`, `ALLREDUCE_BARRIER`)."""
    return op.strip("_").removesuffix("_BASE").removesuffix("_BARRIER").removesuffix("_OOP")


def _highest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
