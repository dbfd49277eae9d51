"""Who holds a collective up: per process group the ranks that are behind, missing or silent, and the node they stand on.

The rules follow PyTorch's flight recorder analysis and domain practice: a rank that never enqueued what the others wait in is
the culprit; a rank that is behind in one group because it waits in another is a victim; a rank that says nothing at all is
suspected after those. Everybody equal and nobody silent names no one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streams.correlate.placement import Stay
from streams.correlate.reports import Episode, Rank, Waiter
from streams.model.incident import Certainty


@dataclass(frozen=True, slots=True)
class Finding:
    """What the reports say. `node` is None when no single node can be named."""

    node: str | None
    certainty: Certainty
    rule: str
    why: str
    ranks: tuple[Rank, ...] = ()
    suspects: tuple[str, ...] = ()
    """Every node a suspected rank stands on."""
    silent: bool = False
    mismatch: bool = False
    """Ranks called different operations in the same place: the program's fault."""


@dataclass(frozen=True, slots=True)
class _Suspicion:
    ranks: frozenset[Rank]
    rule: str
    why: str
    firm: bool = True
    """False for a lag that healthy ranks show too: hosts run ahead of their GPUs by different amounts."""


def find_culprit(episode: Episode, stays: Sequence[Stay]) -> Finding:
    """Judge one hang of a job that stood as `stays` say."""
    reporters = episode.reporters
    nodes_of: dict[Rank, str] = {rank: stay.node for stay in stays for rank in stay.ranks}
    nodes_of |= {rank: node for rank, node in reporters.items() if node is not None}
    silent, quiet_pods = _silent(episode, stays)
    total = sum(stay.expected for stay in stays)
    groups = episode.waiters()
    if (mismatch := _mismatch(groups)) is not None:
        return mismatch
    behind = _behind(groups)
    if behind is not None:
        suspected = set(behind.ranks) | {
            r for r in silent if nodes_of.get(r) in {nodes_of.get(b) for b in behind.ranks}
        }
        return _verdict(behind, frozenset(suspected), nodes_of, stays, reporters, episode, silent=False)
    if not groups:
        return Finding(
            None,
            Certainty.WEAK,
            "errors only",
            f"{len(reporters)} ranks report NCCL errors and none timed out waiting",
        )
    if silent or quiet_pods:
        spoke = f"{len(reporters)} of {total} ranks timed out waiting"
        suspicion = _Suspicion(frozenset(silent), "silent ranks", f"{spoke}; the rest said nothing")
        suspected_nodes = {stay.node for stay in quiet_pods} | {nodes_of[r] for r in silent if r in nodes_of}
        if len(suspected_nodes) > 1 and len(reporters) * 2 < total:
            return Finding(
                None,
                Certainty.WEAK,
                "too few reports",
                f"only {spoke}; that is too few to call the others silent",
                suspects=tuple(sorted(suspected_nodes)),
            )
        return _verdict(
            suspicion,
            frozenset(silent),
            nodes_of,
            stays,
            reporters,
            episode,
            silent=True,
            more=suspected_nodes,
        )
    return Finding(
        None,
        Certainty.WEAK,
        "all equal",
        f"all {len(reporters)} ranks wait in the same place and none is silent",
    )


def all_told(episode: Episode, stays: Sequence[Stay]) -> bool:
    """Whether nothing more is to be waited for: every rank of the job has said how far it came."""
    total = sum(stay.expected for stay in stays)
    if not stays or len(episode.reporters) < total:
        return False
    return all(w.last_enqueued is not None for group in episode.waiters().values() for w in group)


def _silent(episode: Episode, stays: Sequence[Stay]) -> tuple[set[Rank], list[Stay]]:
    """Ranks that said nothing, and pods with fewer speakers than ranks where the ranks have no numbers."""
    reporters = episode.reporters
    spoke = {t.pod for t in episode.told}
    ranks: set[Rank] = set()
    pods = []
    for stay in stays:
        if stay.ranks:
            missing: set[Rank] = {r for r in stay.ranks if r not in reporters}
            ranks |= missing
        elif stay.pod not in spoke:
            pods.append(stay)
    return ranks, pods


def _mismatch(groups: dict[str, list[Waiter]]) -> Finding | None:
    for name, waiters in groups.items():
        ops: dict[int, set[str]] = defaultdict(set)
        for w in waiters:
            if w.seq is not None and w.op and w.op not in ("COALESCED", "UNKNOWN"):
                ops[w.seq].add(w.op)
        for seq, called in sorted(ops.items()):
            if len(called) > 1 and not called <= {"SEND", "RECV"}:
                why = f"in process group {name} the ranks called {' and '.join(sorted(called))} as collective {seq}"
                return Finding(None, Certainty.LIKELY, "mismatched collective", why, mismatch=True)
    return None


def _behind(groups: dict[str, list[Waiter]]) -> _Suspicion | None:
    """Ranks that are behind in some group and do not themselves wait in another one for somebody else."""
    behind = {
        name: found for name, waiters in groups.items() if (found := _behind_in(name, waiters)) is not None
    }
    for name, suspicion in sorted(behind.items(), key=lambda item: (len(item[1].ranks), item[0])):
        waiting = {
            w.rank
            for other, waiters in groups.items()
            if other != name
            for w in waiters
            if w.seq is not None and w.rank not in (behind[other].ranks if other in behind else ())
        }
        free = suspicion.ranks - waiting
        if free:
            return replace(suspicion, ranks=free)
    return None


def _behind_in(name: str, waiters: list[Waiter]) -> _Suspicion | None:
    waits = [w.seq for w in waiters if w.seq is not None]
    if not waits:
        return None
    first = min(waits)
    absent = [w for w in waiters if w.last_enqueued is not None and w.last_enqueued < first]
    if absent and len(absent) < len(waiters):
        return _suspicion(
            absent,
            "never joined",
            f"never enqueued collective {first} of process group {name} that the others wait in",
        )
    known = [(w.last_enqueued, w) for w in waiters if w.last_enqueued is not None]
    if 4 * len(known) >= 3 * len(waiters) and (lowest := _lowest(known)):
        count = min(n for n, _ in known)
        told = f"last enqueued {count} in process group {name}, behind all others, though all joined collective {first}"
        lag = _suspicion(lowest, "lowest last enqueued", told, firm=False)
    else:
        lag = None
    if lowest := _lowest([(w.seq, w) for w in waiters if w.seq is not None]):
        return _suspicion(
            lowest,
            "lowest collective",
            f"wait in collective {first} of process group {name}, behind all others",
        )
    return lag


def _lowest(known: Sequence[tuple[int, Waiter]]) -> list[Waiter]:
    """Those with the lowest number, if they are no more than half."""
    least = min((n for n, _ in known), default=None)
    lowest = [w for n, w in known if n == least]
    return lowest if len(known) > 1 and 2 * len(lowest) <= len(known) else []


def _suspicion(waiters: list[Waiter], rule: str, what: str, *, firm: bool = True) -> _Suspicion:
    return _Suspicion(frozenset(w.rank for w in waiters), rule, what, firm)


def _verdict(
    suspicion: _Suspicion,
    suspected: frozenset[Rank],
    nodes_of: dict[Rank, str],
    stays: Sequence[Stay],
    reporters: dict[Rank, str | None],
    episode: Episode,
    *,
    silent: bool,
    more: set[str] | None = None,
) -> Finding:
    """From ranks to a node. Certain only when the whole node is suspected and every rank elsewhere has spoken."""
    nodes = sorted({nodes_of[r] for r in suspected if r in nodes_of} | (more or set()))
    ranks = tuple(
        sorted(suspected, key=lambda r: (isinstance(r, str), r if isinstance(r, int) else 0, str(r)))
    )
    named = f"ranks {ranges(ranks)}" if ranks else f"the ranks on {', '.join(nodes)}"
    why = suspicion.why if silent else f"{named} {suspicion.why}"
    everywhere = {stay.node for stay in stays}
    if len(nodes) != 1:
        spread = (
            f"they stand on {len(nodes)} nodes: {', '.join(nodes[:8])}"
            if nodes
            else "where they stand is not known"
        )
        return Finding(
            None, Certainty.LIKELY, suspicion.rule, f"{why}; {spread}", ranks, tuple(nodes), silent
        )
    node = nodes[0]
    if everywhere == {node}:
        text = f"{why}; the job has no other node to compare with"
        return Finding(None, Certainty.WEAK, suspicion.rule, text, ranks, (node,), silent)
    where = f"all of them on {node}" if silent else f"they stand on {node}"
    here = [stay for stay in stays if stay.node == node]
    whole = (
        all(set(stay.ranks) <= suspected for stay in here)
        if all(s.ranks for s in here)
        else more == {node} or silent
    )
    others = [stay for stay in stays if stay.node != node]
    spoke = all(_spoke(stay, reporters, episode) for stay in others)
    certain = whole and spoke and bool(stays) and suspicion.firm
    text = f"{why}: {named}, {where}" if silent and ranks else f"{why}; {where}"
    if not spoke:
        text += "; but not every other rank has spoken"
    elif not whole:
        text += "; but other ranks of that node keep up"
    elif not suspicion.firm:
        text += "; that alone may be chance"
    return Finding(
        node,
        Certainty.DECISIVE if certain else Certainty.LIKELY,
        suspicion.rule,
        text,
        ranks,
        (node,),
        silent,
    )


def _spoke(stay: Stay, reporters: dict[Rank, str | None], episode: Episode) -> bool:
    if stay.ranks:
        return all(rank in reporters for rank in stay.ranks)
    return len({t.rank for t in episode.told if t.pod == stay.pod}) >= stay.expected


def ranges(ranks: Sequence[Rank]) -> str:
    """Ranks as people write them: `8-15, 24`; a long list is cut."""
    numbers = sorted(r for r in ranks if isinstance(r, int))
    parts: list[str] = []
    start = 0
    for i, n in enumerate(numbers):
        if i + 1 == len(numbers) or numbers[i + 1] != n + 1:
            parts.append(f"{numbers[start]}" if start == i else f"{numbers[start]}-{n}")
            start = i + 1
    parts += sorted(str(r) for r in ranks if not isinstance(r, int))
    return ", ".join(parts[:12]) + (f" and {len(parts) - 12} more" if len(parts) > 12 else "")
