"""The figures of a what-if: how many incidents differ in what, and what that adds or saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from faultline.replay.decisions import DecidedStep, Decision
from faultline.replay.difference import Aspect, Pair, deed_of, of_aspect
from faultline.replay.due_pages import grouped


@dataclass(frozen=True, slots=True)
class Moved:
    """Things that one side has and the other has not: `added` by the edit, `removed` by it, out of `before`."""

    before: int
    added: int
    removed: int

    @property
    def after(self) -> int:
        """How many there are with the edit."""
        return self.before + self.added - self.removed


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of both sides; `unknown` are incidents of either that belong to them and whose part is not known."""

    before: float
    after: float
    unknown: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What differs, counted. The names of the fields are those of the budgets."""

    same: int
    """Incidents on both sides that differ in nothing."""
    incidents: Moved
    culprits: int
    certainties: int
    impacts: int
    runbooks: int
    modes: int
    steps: int
    verdicts: int
    actions: Moved
    """Steps that would be done without asking."""
    approvals: Moved
    """Steps that a person would be asked about."""
    cordons: Moved
    """Nodes that would be closed without asking; they are among the actions."""
    tickets: Moved
    pages: Moved
    """What a person is woken for at once is one page."""
    gpu_hours: Hours
    """Of stopped jobs without progress. The records are the same on both sides: they change where others are taken for hit."""

    @property
    def differs(self) -> bool:
        """Whether any incident does."""
        return self.differing > 0

    @property
    def differing(self) -> int:
        """How many incidents differ in anything."""
        return self.incidents.before + self.incidents.added - self.same


def summary_of(pairs: Sequence[Pair], window: timedelta) -> Summary:
    """Count what differs. `window` is how far apart pages are one (`notifier.sinks.NAME.group_window_s`)."""

    def count(aspect: Aspect) -> int:
        return len(of_aspect(pairs, aspect))

    befores = [pair.before for pair in pairs if pair.before is not None]
    afters = [pair.after for pair in pairs if pair.after is not None]
    before, after = ([one for one in side if one.is_told] for side in (befores, afters))
    pages = [_pages(side, window) for side in (before, after)]
    return Summary(
        same=sum(not pair.differences for pair in pairs),
        incidents=Moved(
            len(before),
            sum(pair.after is not None and pair.after.is_told and not _told(pair.before) for pair in pairs),
            sum(pair.before is not None and pair.before.is_told and not _told(pair.after) for pair in pairs),
        ),
        culprits=count(Aspect.CULPRIT),
        certainties=count(Aspect.CERTAINTY),
        impacts=count(Aspect.IMPACT),
        runbooks=count(Aspect.RUNBOOK),
        modes=count(Aspect.MODE),
        steps=count(Aspect.STEP),
        verdicts=count(Aspect.VERDICT),
        actions=_steps(pairs, lambda step: step.verdict == "would" and step.action != "open_ticket"),
        approvals=_steps(pairs, lambda step: step.verdict == "needs_approval"),
        cordons=_steps(pairs, lambda step: step.verdict == "would" and step.action == "cordon_node"),
        tickets=_steps(pairs, lambda step: step.verdict == "would" and step.action == "open_ticket"),
        pages=Moved(pages[0], max(0, pages[1] - pages[0]), max(0, pages[0] - pages[1])),
        gpu_hours=Hours(
            sum(one.gpu_hours or 0.0 for one in before),
            sum(one.gpu_hours or 0.0 for one in after),
            len({one.incident for one in (*before, *after) if one.gpu_hours is None}),
        ),
    )


def _told(one: Decision | None) -> bool:
    return one is not None and one.is_told


def _steps(pairs: Iterable[Pair], counts: Callable[[DecidedStep], bool]) -> Moved:
    before = added = removed = 0
    for pair in pairs:
        one, other = (_deeds(side, counts) for side in (pair.before, pair.after))
        before += one.total()
        added += (other - one).total()
        removed += (one - other).total()
    return Moved(before, added, removed)


def _deeds(one: Decision | None, counts: Callable[[DecidedStep], bool]) -> Counter[tuple[str, str]]:
    steps = one.steps if one is not None else ()
    return Counter(deed_of(step, one) for step in steps if one is not None and counts(step))


def _pages(decisions: Iterable[Decision], window: timedelta) -> int:
    return grouped(((one.cluster, one.page) for one in decisions if one.page is not None), window)
