"""How the decisions of one side differ from those of another, incident by incident, and why.

An incident's id is a hash of its root, so a changed culprit changes the id. Incidents are matched by id first, and what is left
by the records that both were decided by, or by time and place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from faultline.replay.decisions import DecidedStep, Decision

NEAR = timedelta(minutes=10)
"""Faults of the same nodes or jobs this close may be one: a collective's default timeout, after which a victim is noticed."""
TOLD_HOURS = 0.1
"""GPU-hours that differ by less are not told of."""


class Aspect(StrEnum):
    """What differs, in the order in which people ask."""

    INCIDENT = "incident"
    CULPRIT = "culprit"
    CERTAINTY = "certainty"
    IMPACT = "impact"
    RUNBOOK = "runbook"
    MODE = "mode"
    VERDICT = "verdict"
    ACTION = "action"
    STEP = "step"
    TICKET = "ticket"
    PAGE = "page"
    GPU_HOURS = "gpu_hours"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs about an incident. `before` and `after` are empty where that side has nothing of the kind."""

    aspect: Aspect
    what: str
    before: str
    after: str
    why_before: str = ""
    why_after: str = ""
    causes: tuple[str, ...] = ()
    """What was edited that can have led to it; empty where nobody said what was."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One incident on both sides; None on the side that has none."""

    before: Decision | None
    after: Decision | None
    differences: tuple[Difference, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the incident on each side."""
        return tuple(one.incident for one in (self.before, self.after) if one is not None)

    @property
    def either(self) -> Decision:
        """The incident as the second side has it, else as the first has."""
        found = self.after or self.before
        assert found is not None
        return found


def differences(before: Iterable[Decision], after: Iterable[Decision]) -> tuple[Pair, ...]:
    """Every incident of either side by the time of its fault, with what differs.

    Incidents of which nobody is told (suppressed ones, and parts of others) are there only with their counterpart that is told.
    """
    pairs = [
        Pair(one, other, tuple(_of(one, other)))
        for one, other in _matched(list(before), list(after))
        if (one is not None and one.is_told) or (other is not None and other.is_told)
    ]
    return tuple(sorted(pairs, key=lambda pair: (pair.either.fault_at, pair.either.incident)))


def with_causes(pair: Pair, causes: Callable[[Pair, Difference], tuple[str, ...]]) -> Pair:
    """The pair with what led to each of its differences."""
    return replace(
        pair, differences=tuple(replace(one, causes=causes(pair, one)) for one in pair.differences)
    )


_Match = tuple[Decision | None, Decision | None]


def _matched(before: list[Decision], after: list[Decision]) -> Iterator[_Match]:
    """Those told on both sides come first: an incident that was suppressed before is not the one whose culprit it became."""
    stages: tuple[tuple[Callable[[Decision, Decision], bool], bool], ...] = (
        (_is_same, True),
        (_shares_evidence, True),
        (_is_near, True),
        (_is_same, False),
        (_shares_evidence, False),
    )
    for fits, told in stages:
        for one in [*before]:
            rest = [o for o in after if fits(one, o) and (not told or (one.is_told and o.is_told))]
            if rest:
                best = max(rest, key=lambda o, one=one: _likeness(one, o))  # type: ignore[misc]
                before.remove(one)
                after.remove(best)
                yield one, best
    yield from ((one, None) for one in before)
    yield from ((None, other) for other in after)


def _is_same(one: Decision, other: Decision) -> bool:
    return one.incident == other.incident


def _shares_evidence(one: Decision, other: Decision) -> bool:
    return one.cluster == other.cluster and not one.evidence.isdisjoint(other.evidence)


def _is_near(one: Decision, other: Decision) -> bool:
    if one.cluster != other.cluster or abs(one.fault_at - other.fault_at) > NEAR:
        return False
    return not set(one.jobs).isdisjoint(other.jobs) or not set(one.nodes).isdisjoint(other.nodes)


def _likeness(one: Decision, other: Decision) -> tuple[int, int, float, str]:
    """The greater, the more two incidents have in common; the last part only makes a choice of equals."""
    shared = len(set(one.nodes) & set(other.nodes)) + len(set(one.jobs) & set(other.jobs))
    apart = abs((one.fault_at - other.fault_at).total_seconds())
    return len(one.evidence & other.evidence), shared, -apart, other.incident


def _of(before: Decision | None, after: Decision | None) -> Iterator[Difference]:
    if before is None or after is None or before.is_told is not after.is_told:
        yield from _one_sided(before, after)
        if before is None or after is None:
            return
    yield from _judgement(before, after)
    yield from _choice(before, after)
    yield from _plan(before, after)
    yield from _consequences(before, after)


def _one_sided(before: Decision | None, after: Decision | None) -> Iterator[Difference]:
    texts = ["" if one is None else _as_told(one) for one in (before, after)]
    reasons = ["" if one is None else one.reason for one in (before, after)]
    yield Difference(Aspect.INCIDENT, "incident", texts[0], texts[1], reasons[0], reasons[1])
    if before is None or after is None:
        # What hangs on it comes and goes with it, and counts: tickets, cordons and pages are what people ask about.
        for side, steps in enumerate((before.steps if before else (), after.steps if after else ())):
            for step in steps:
                yield _step_there(step, side)
        if (found := before or after) is not None and found.page is not None:
            told = (found.page.situation, found.page.why)
            yield Difference(
                Aspect.PAGE, "page", *(_sided(told[0], is_after=after is found)),
                *(_sided(told[1], is_after=after is found)),
            )  # fmt: skip


def _sided(text: str, *, is_after: bool) -> tuple[str, str]:
    return ("", text) if is_after else (text, "")


def _as_told(one: Decision) -> str:
    if one.merged_into:
        return f"part of {one.merged_into}"
    return one.title if one.is_told else f"{one.state}: {one.title}"


def _judgement(before: Decision, after: Decision) -> Iterator[Difference]:
    if (before.root_key, before.family) != (after.root_key, after.family):
        yield Difference(
            Aspect.CULPRIT, "culprit", f"{before.family} of {before.root}", f"{after.family} of {after.root}",
            _by_rule(before), _by_rule(after),
        )  # fmt: skip
    if (before.certainty, before.severity) != (after.certainty, after.severity):
        yield Difference(
            Aspect.CERTAINTY, "certainty", f"{before.certainty}, {before.severity}",
            f"{after.certainty}, {after.severity}", _by_rule(before), _by_rule(after),
        )  # fmt: skip
    for what, one, other in (
        ("jobs", before.jobs, after.jobs),
        ("nodes", before.nodes, after.nodes),
    ):
        if set(one) != set(other):
            yield Difference(Aspect.IMPACT, what, ", ".join(one) or "none", ", ".join(other) or "none")


def _by_rule(one: Decision) -> str:
    if not one.rule:
        return one.reason
    return f"{one.reason} (rule `{one.rule}`" + (f": {one.rule_means})" if one.rule_means else ")")


def _choice(before: Decision, after: Decision) -> Iterator[Difference]:
    if before.runbooks != after.runbooks:
        yield Difference(
            Aspect.RUNBOOK, "runbook", " → ".join(before.runbooks) or "none", " → ".join(after.runbooks) or "none",
            before.runbook_why, after.runbook_why,
        )  # fmt: skip
    if before.runbooks and after.runbooks and before.mode != after.mode:
        yield Difference(Aspect.MODE, "mode", before.mode, after.mode)


def _plan(before: Decision, after: Decision) -> Iterator[Difference]:
    left = _bydeed_of(before)
    for step in after.steps:
        was = left.get(deed_of(step, after))
        if not was:
            yield _step_there(step, 1)
            continue
        one = was.pop(0)
        if one.verdict != step.verdict:
            yield Difference(Aspect.VERDICT, _named(step), one.verdict, step.verdict, one.reason, step.reason)
        for key in sorted({*dict(one.details), *dict(step.details)}):
            old, new = dict(one.details).get(key, ""), dict(step.details).get(key, "")
            if old != new:
                yield Difference(Aspect.STEP, f"{_named(step)}: {key}", old, new)
    for step in (step for steps in left.values() for step in steps):
        yield _step_there(step, 0)


def _bydeed_of(one: Decision) -> defaultdict[tuple[str, str], list[DecidedStep]]:
    found: defaultdict[tuple[str, str], list[DecidedStep]] = defaultdict(list)
    for step in one.steps:
        found[deed_of(step, one)].append(step)
    return found


def deed_of(step: DecidedStep, of: Decision) -> tuple[str, str]:
    """What is done to what: the same whatever runbook does it, and whatever the incident is called."""
    return step.action, step.target.replace(of.incident, "")


def _step_there(step: DecidedStep, side: int) -> Difference:
    aspect = Aspect.TICKET if step.action == "open_ticket" else Aspect.ACTION
    texts, reasons = _sided(step.verdict, is_after=side == 1), _sided(step.reason, is_after=side == 1)
    return Difference(aspect, _named(step), *texts, *reasons)


def _named(step: DecidedStep) -> str:
    return f"{step.action} {step.target}"


def _consequences(before: Decision, after: Decision) -> Iterator[Difference]:
    one, other = before.page, after.page
    if (one.situation if one else "") != (other.situation if other else ""):
        yield Difference(
            Aspect.PAGE, "page", one.situation if one else "none", other.situation if other else "none",
            one.why if one else "", other.why if other else "",
        )  # fmt: skip
    for what, old, new in (
        ("GPU-hours lost", before.gpu_hours, after.gpu_hours),
        ("GPU-hours of work repeated", before.replayed, after.replayed),
    ):
        if (old is None) is not (new is None) or abs((new or 0.0) - (old or 0.0)) >= TOLD_HOURS:
            yield Difference(Aspect.GPU_HOURS, what, _hours(old), _hours(new))


def _hours(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.1f}"


def of_aspect(pairs: Sequence[Pair], aspect: Aspect) -> list[Pair]:
    """The incidents that differ in one aspect."""
    return [pair for pair in pairs if any(one.aspect is aspect for one in pair.differences)]
