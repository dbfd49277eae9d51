"""What other spares, checkpoints and drains would have saved, by the incidents that happened. Pure.

Nothing is assumed that is not stated: each answer carries its formula, what it takes for granted, and of how many incidents the
records tell what it needs. What they do not tell is left as it was.

ETTR is productive time over the time since jobs could run, queueing included: 1 - (GPU-hours without progress + of work that was
repeated) / GPU-hours that training jobs held (Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
HPCA 2025).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from faultline.replay.what_if.outages import Held, Outage


@dataclass(frozen=True, slots=True)
class Structure:
    """What is asked; None for what stays as it was."""

    spares: int | None = None
    checkpoint_every_s: float | None = None
    drain_grace_s: float | None = None

    @property
    def is_asked(self) -> bool:
        """Whether anything is."""
        return any(one is not None for one in (self.spares, self.checkpoint_every_s, self.drain_grace_s))


@dataclass(frozen=True, slots=True)
class Estimate:
    """GPU-hours: as they were, as they would be, and between which bounds that lies."""

    before: float
    after: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Basis:
    """How one change was worked out. `known` of `of` incidents tell what it needs, with that share of their GPU-hours."""

    what: str
    formula: str
    known: int
    of: int
    share: float | None
    missing: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What would have been lost. ETTR is None where no training job held a GPU."""

    incidents: int
    without_progress: Estimate
    repeated: Estimate
    ettr: Estimate | None
    held: float
    unknown_gpus: int
    """Incidents whose jobs' GPUs are not known: they are in no figure."""
    unknown_repeated: int
    """Incidents of which not every job reported a checkpoint: what these repeated is in no figure."""
    ended_by: tuple[tuple[str, int], ...]
    """What ended the time without progress, with how many incidents it did."""
    bases: tuple[Basis, ...]


def answer(outages: Sequence[Outage], held: Held, asked: Structure) -> Answer:
    """What the incidents would have cost with another structure."""
    known = [one for one in outages if one.gpus is not None]
    saved_s = _saved_s(known, asked)
    lost = sum(one.lost or 0.0 for one in known)
    less = sum((one.gpus or 0) * saved_s[one.incident] / 3600 for one in known)
    without = Estimate(lost, lost - less, lost - less, lost - less)
    repeated = _repeated(known, asked.checkpoint_every_s)
    return Answer(
        incidents=len(outages),
        without_progress=without,
        repeated=repeated,
        ettr=_ettr(without, repeated, held.total),
        held=held.total,
        unknown_gpus=len(outages) - len(known),
        unknown_repeated=sum(one.lost_work is None for one in known),
        ended_by=tuple(sorted(Counter(one.basis for one in known).items())),
        bases=tuple(_bases(known, asked)),
    )


def _repeated(known: Sequence[Outage], every_s: float | None) -> Estimate:
    """A fault comes at any time between two checkpoints: half an interval is lost on average, none at least, all at most."""
    before = sum(one.repeated or 0.0 for one in known)
    if every_s is None:
        return Estimate(before, before, before, before)
    interval = sum(work.gpus for one in known for work in one.lost_work or ()) * every_s / 3600
    return Estimate(before, interval / 2, 0.0, interval)


def _ettr(without: Estimate, repeated: Estimate, held: float) -> Estimate | None:
    if held <= 0:
        return None

    def share(one: float, other: float) -> float:
        return 1 - (one + other) / held

    return Estimate(
        share(without.before, repeated.before),
        share(without.after, repeated.after),
        share(without.most, repeated.most),
        share(without.least, repeated.least),
    )


def _saved_s(known: Sequence[Outage], asked: Structure) -> dict[str, float]:
    """Seconds less without progress, by incident; never more than there were."""
    saved = dict.fromkeys((one.incident for one in known), 0.0)
    for one in known:
        if asked.drain_grace_s is not None and one.drained_s is not None:
            saved[one.incident] += max(0.0, one.drained_s - asked.drain_grace_s)
    if asked.spares is not None:
        shortest = _shortest_wait(known)
        for one in _with_a_spare(known, asked.spares):
            saved[one.incident] += max(0.0, (one.queued_s or 0.0) - (shortest or 0.0))
    return {one.incident: min(saved[one.incident], one.without_progress_s) for one in known}


def _shortest_wait(known: Iterable[Outage]) -> float | None:
    return min((one.queued_s for one in known if one.queued_s is not None), default=None)


def _with_a_spare(known: Sequence[Outage], spares: int) -> Iterator[Outage]:
    """The incidents for which a spare would have been free, in the order of their faults.

    Each node that is closed takes one until it is back.
    """
    taken: list[datetime] = []
    for one in known:
        if one.queued_s is None or not one.closed:
            continue
        taken = [until for until in taken if until > one.closed[0][0]]
        if len(taken) + len(one.closed) <= spares:
            taken += [until for _, until in one.closed]
            yield one


def _bases(known: Sequence[Outage], asked: Structure) -> Iterator[Basis]:
    if asked.checkpoint_every_s is not None:
        yield _basis(
            f"a checkpoint every {asked.checkpoint_every_s:g} s",
            "a job repeats GPUs × interval / 2, none at least and a whole interval at most, in place of what it had worked since "
            "its last checkpoint; what it costs to write more checkpoints is not counted: nothing reports it",
            known, [one for one in known if one.lost_work is not None],
            "not every job of the others reported a checkpoint",
        )  # fmt: skip
    if asked.spares is not None:
        shortest = _shortest_wait(known)
        wait = f"{shortest:,.0f} s, " if shortest is not None else ""
        yield _basis(
            f"{asked.spares} spares",
            f"a job for which one is free waits {wait}the shortest wait seen here, between its resume and its pods running; each "
            "node that is closed takes a spare until it is back",
            known, [one for one in known if one.queued_s is not None and one.closed],
            "no run closed a node of the others and saw their jobs run again",
        )  # fmt: skip
    if asked.drain_grace_s is not None:
        yield _basis(
            f"drains of {asked.drain_grace_s:g} s at most",
            "a job stands still for as long as the drain took longer than that; a drain that ended sooner stays as it was",
            known, [one for one in known if one.drained_s is not None],
            "no run drained a node of the others to its end",
        )  # fmt: skip


def _basis(
    what: str, formula: str, known: Sequence[Outage], telling: Sequence[Outage], missing: str
) -> Basis:
    lost = sum(one.lost or 0.0 for one in known)
    share = sum(one.lost or 0.0 for one in telling) / lost if lost else None
    return Basis(what, formula, len(telling), len(known), share, missing if len(telling) < len(known) else "")
