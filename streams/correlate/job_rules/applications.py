"""Faults of the job's own code: the same XID on many nodes of one job within seconds, or one illegal access on its own.

Hardware does not fail on four nodes in the same second; a bad kernel or a bad batch does (SRE practice; the device plugin and
NVSentinel leave 13, 31, 43 and 45 alone for the same reason). A program that fails in the same way again after it was restarted
is the same fault, on whatever nodes it runs by then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.job_rules.pod_failures import is_exception, is_exit, is_own
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families, is_gauge, level
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.gpu_aliases import learned, renamed
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind

_SIGNATURE = ("subtype", "reason", "exitcode", "signal")
"""Attributes that are the same whenever a program fails in the same way."""
_KERNELS = frozenset({SignalKind.GPU_XID, SignalKind.NODE_MEMORY})


@dataclass(frozen=True, slots=True)
class Burst:
    """Application codes and failures of one job that belong together.

    `nodes` is where one code hit at the same moment, or where it failed first. `code` is 0 when there was none to speak of.
    """

    start: datetime
    end: datetime
    seen_at: datetime
    code: int
    nodes: tuple[str, ...]
    sightings: tuple[Sighting, ...]
    is_shared: bool = False
    """The same code on several nodes at once. That all processes of a job end together says nothing."""

    @property
    def failures(self) -> tuple[Sighting, ...]:
        """What the program or the kernel said besides codes."""
        return tuple(s for s in self.sightings if s.kind != SignalKind.GPU_XID)

    @property
    def gpu(self) -> Entity | None:
        """The one GPU that all the codes were seen on, with its node; None where they name several, or one by no name that lasts.

        A fault of the program is no evidence against a GPU; only that it comes back on the same one, time and again, does.
        """
        codes = [s for s in self.sightings if s.kind == SignalKind.GPU_XID]
        names = learned(codes)
        places = {renamed(s, names).entity.key: renamed(s, names).entity for s in codes}
        seen = [place.gpu for place in places.values() if place.gpu is not None]
        if len(places) != 1 or not seen:
            return None
        (place,) = places.values()
        others = [s.entity.gpu for s in codes if s.entity.gpu is not None]
        uuid = min((g.uuid for g in (*seen, *others) if g.uuid), default=None)
        if place.node is None or not (seen[0].pci or uuid):
            return None
        return Entity(place.cluster, node=place.node, gpu=Gpu(seen[0].pci, uuid))

    @property
    def says_nothing(self) -> bool:
        """Alone, and of a code that every killed process leaves."""
        return not self.is_shared and all(s.code in families().quiet_alone for s in self.sightings)

    @property
    def is_silent(self) -> bool:
        """Whether nobody said that it failed but its pods, by the code that they ended with: once, that says little."""
        return all(map(is_exit, self.sightings))

    @property
    def is_mute(self) -> bool:
        """Whether only the kernel spoke: a code, or a process that it killed; of what the job ran nothing says that it failed."""
        return not self.is_shared and all(s.kind in _KERNELS for s in self.sightings)

    def began(self, near: timedelta) -> datetime:
        """When it began to fail: codes from longer before what failed than `near` are a program's daily business."""
        first = min((s.at for s in self.failures), default=self.start)
        return next(s.at for s in self.sightings if s.at >= first - near)

    @property
    def is_faint(self) -> bool:
        """Whether it is no more than a code on one node and what that leaves: a program's daily business, if it goes on."""
        killed = any(s.kind == SignalKind.NODE_MEMORY for s in self.failures)
        return not (self.is_shared or self.speaks_for_itself or killed)

    @property
    def tries(self) -> int:
        """How often it failed: what a program's processes say of one failure lies close together."""
        return sum(1 for _ in split_at_gaps(self.failures, lambda s: s.at, policy().starts.apart))

    def hit_between(self, since: datetime, until: datetime) -> bool:
        """Whether anything of it was seen in that time: a program that fails again within minutes is one burst."""
        return any(since <= s.at < until for s in self.sightings)

    @property
    def is_plain(self) -> bool:
        """Whether the program itself said how it failed, to whoever reads its log: an exception, a code that it ended with."""
        return (
            not self.is_shared and all(s.kind not in _KERNELS for s in self.failures) and bool(self.failures)
        )

    @property
    def certainty(self) -> Certainty:
        """One code on many nodes is the job's; else it is what the failures say for themselves."""
        if self.is_shared:
            return Certainty.DECISIVE if len(self.nodes) > 2 else Certainty.LIKELY
        return max((families().certainty(s) for s in self.failures), key=level, default=Certainty.WEAK)

    @property
    def speaks_for_itself(self) -> bool:
        """Whether it cannot be what a killed process leaves: out of memory, an address that is not there."""
        return any(families().certainty(s) is not Certainty.WEAK for s in self.failures)

    @property
    def signature(self) -> str:
        """How it failed, in words that are the same the next time: what the program said, else the code."""
        failures = [s for s in self.failures if families().role(s) == "cause" or is_exception(s)]
        if not failures or (self.is_shared and not self.speaks_for_itself):
            return f"XID {self.code}"
        told = max(failures, key=lambda s: (level(families().certainty(s)), -s.at.timestamp(), s.id))
        words = (told.kind, *(told.text(name) for name in _SIGNATURE))
        return " ".join(word for word in words if word)

    def why(self, job: JobRef) -> str:
        """What it is, for people."""
        where = ", ".join(self.nodes[:6]) + (" …" if len(self.nodes) > 6 else "")
        # The words of an exception are shown by themselves.
        said = ("its own exception" if is_exception(s) else families().says(s) for s in self.failures)
        signs = ", ".join(list(dict.fromkeys(said))[:3])
        if self.is_shared:
            besides = f"; and {signs}" if signs else ""
            return (
                f"XID {self.code} on {len(self.nodes)} nodes of {job} within seconds ({where}): "
                f"code fails like that, hardware does not{besides}"
            )
        if signs:
            besides = f", with XID {self.code}" if self.code else ""
            return f"{job}: {signs}{besides} ({where or 'node not known'}), and no hardware under it explains that"
        return f"XID {self.code} on one node of {job} ({where}): most likely its own code; watch whether it follows the GPU"


def bursts(seen: Iterable[Sighting], config: Config, words: Iterable[Sighting] = ()) -> list[Burst]:
    """Cut a job's application codes and own failures into bursts at silences; `words` are exceptions that count as well."""
    own = (s for s in seen if s.firing and (is_own(s) if s.kind != SignalKind.GPU_XID else _is_code(s)))
    lines = sorted((*own, *words), key=order)
    return [_burst(group, config.together) for group in split_at_gaps(lines, lambda s: s.at, config.quiet)]


def together(found: Sequence[Burst], config: Config) -> Burst:
    """Bursts of one fault as one."""
    if len(found) == 1:
        return found[0]
    return _burst(sorted((s for burst in found for s in burst.sightings), key=order), config.together)


def numbered(
    found: Iterable[Burst],
    count: int,
    closed: Mapping[int, datetime],
    config: Config,
    crashed_on: Callable[[Burst], str | None],
    one_gpu: Callable[[Burst], Entity | None],
) -> Iterator[tuple[int, Burst]]:
    """Each burst with the number of its fault, counted from `count` on, in order of time.

    What has the signature of an earlier one is the same fault, unless that is hours ago, or a run or a person had closed it by
    then (`closed`, by number), or both name the same one GPU (`one_gpu`). So is a crash on the host where it crashed before
    (`crashed_on`).
    Numbers do not depend on what explains a burst.
    """
    latest: dict[str, tuple[int, Burst]] = {}
    for burst in found:
        if burst.says_nothing:
            yield count, burst
            continue
        host = crashed_on(burst)
        names = [burst.signature, *([f"host {host}"] if host else [])]
        number, before = max(
            (latest[n] for n in names if n in latest), key=lambda p: p[0], default=(0, burst)
        )
        ended = closed.get(number)
        over = ended is not None and burst.start > ended + config.linger
        # What comes back on one and the same GPU is counted for that GPU, a fault each time.
        gpu = one_gpu(burst)
        follows_gpu = before is not burst and gpu is not None and gpu == one_gpu(before)
        if not number or over or follows_gpu or burst.start - before.end > config.stale:
            number = count = count + 1
        latest |= dict.fromkeys(names, (number, burst))
        yield number, burst


def _is_code(s: Sighting) -> bool:
    return not is_gauge(s) and families().role(s) == "application"


def _burst(group: Sequence[Sighting], together: timedelta) -> Burst:
    by_code: dict[int, list[Sighting]] = defaultdict(list)
    failures = [s for s in group if s.kind != SignalKind.GPU_XID]
    for s in group:
        if s.kind == SignalKind.GPU_XID:
            by_code[s.code or 0].append(s)
    widest = {code: _most_nodes(lines, together) for code, lines in by_code.items()}
    loud = [code for code in widest if code not in families().quiet_alone]
    code = max(widest, key=lambda c: (len(widest[c]), c in loud, -c), default=0)
    if failures and not loud:
        code = 0  # Codes that every killed process leaves do not name what a program says of itself.
    shared = len(widest[code]) > 1 if code else False
    nodes = (
        widest[code] if shared else tuple(sorted({*widest.get(code, ()), *_first_nodes(failures, together)}))
    )
    seen_at = max(s.seen_at for s in group)
    return Burst(group[0].at, group[-1].at, seen_at, code, nodes, tuple(group), shared)


def _first_nodes(failures: Sequence[Sighting], together: timedelta) -> set[str]:
    """Where a program failed first; of failures that no killed process leaves, if there is one."""
    own = [s for s in failures if families().certainty(s) is not Certainty.WEAK] or failures
    return {s.entity.node for s in own if s.entity.node and s.at - own[0].at <= together}


def _most_nodes(lines: Sequence[Sighting], together: timedelta) -> tuple[str, ...]:
    """The nodes that one code hit within the window, at its fullest; earliest window first."""
    best: tuple[str, ...] = ()
    inside: Counter[str] = Counter()
    left = 0
    for line in lines:
        while line.at - lines[left].at > together:
            if node := lines[left].entity.node:
                inside[node] -= 1
                if not inside[node]:
                    del inside[node]
            left += 1
        if line.entity.node:
            inside[line.entity.node] += 1
        if len(inside) > len(best):
            best = tuple(sorted(inside))
    return best
