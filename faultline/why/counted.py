"""As what signals were counted: to which incident or explanation, in which role, or why to none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from faultline.why.tree import Branch, branch, printable
from streams.correlate.policy.families import families
from streams.correlate.publish.fate import Fate
from streams.correlate.sightings import sighting
from streams.correlate.weighed import Weighed, Weighing
from streams.model.clock import moment
from streams.model.kinds import SignalKind
from streams.model.message import without_priority
from streams.model.signal import BY_SUBJECT, Signal

_ROLES = {
    "context": "it accompanies faults and makes none by itself (families.yaml)",
    "symptom": "killed processes leave it whatever they were killed for (families.yaml)",
    "application": "programs leave it; it counts only where a process of a job ends with it (families.yaml)",
    "cause": "it may make an incident; see what was weighed",
}


@dataclass(frozen=True, slots=True)
class _Use:
    role: str
    weighed: Weighed


def signal_branches(signals: Sequence[Signal], weighing: Weighing) -> tuple[Branch, ...]:
    """One branch for each kind of signal, in the order of their first; with what it was counted as."""
    uses = _uses(weighing.explanations)
    left = {
        s.id: one for found in (weighing.left_alone or {}).values() for one in found for s in one.sightings
    }
    groups: dict[tuple[str, str], list[Signal]] = {}
    for signal in sorted(signals, key=lambda s: (s.occurred_at, s.id)):
        groups.setdefault(_kind(signal), []).append(signal)
    found = []
    for (kind, what), mine in groups.items():
        first, last, count = mine[0], mine[-1], sum(s.count for s in mine)
        until = f" to {moment(last.occurred_at)}" if len(mine) > 1 else ""
        said = {text: None for s in mine for text in _counted_as(s, uses)}
        for one in {id(left[s.id]): left[s.id] for s in mine if s.id in left}.values():
            said[f"left alone: {one.reason}; it would have taken {one.needs}"] = None
        if not said:
            said[_why_nothing(first)] = None
        text = first.evidence[0].text if first.evidence else ""
        below = [branch("counted", one) for one in said]
        if text:
            coordinates = first.evidence[0].coordinates
            below.append(
                branch("line", f"{coordinates}  {printable(without_priority(text))}", coordinates=coordinates)
            )
        found.append(
            branch(
                "signal",
                f"{kind}{f' ({what})' if what else ''} x{count}, {moment(first.occurred_at)}{until}",
                below,
                signal=kind,
                what=what or None,
                count=count,
            )
        )
    return tuple(found)


def _kind(signal: Signal) -> tuple[str, str]:
    what = signal.attributes.get("xid", signal.attributes.get("subtype", ""))
    return signal.kind, str(what)


def _uses(explanations: Iterable[Weighed]) -> Mapping[str, list[_Use]]:
    found: dict[str, list[_Use]] = {}
    for one in explanations:
        h = one.hypothesis
        roles = [
            *(("evidence", s) for s in h.causes),
            *(("context", s) for s in h.context),
            *(("symptom", s) for s in h.symptoms),
            *(("symptom", s) for claimed in (one.claims or {}).values() for s in claimed),
        ]
        for role, s in roles:
            found.setdefault(s.id, []).append(_Use(role, one))
    return found


def _counted_as(signal: Signal, uses: Mapping[str, list[_Use]]) -> Iterable[str]:
    mine = {use.weighed.hypothesis.id: use for use in reversed(uses.get(signal.id, []))}
    for use in mine.values():
        one = use.weighed
        incident = f" of {one.incident}" if one.fate in (Fate.TOLD, Fate.PART) else ", which is no incident"
        yield f"counted as {use.role} for {one.hypothesis.family} at {one.hypothesis.root}{incident}"


RUNS = frozenset(
    {
        SignalKind.JOB_RANK,
        SignalKind.JOB_PROGRESS,
        SignalKind.JOB_BUSY,
        SignalKind.JOB_CHECKPOINT,
        SignalKind.JOB_ALLOCATION,
    }
)
"""Kinds that tell how a job runs, and of no fault."""


def _why_nothing(signal: Signal) -> str:
    if signal.kind in RUNS and BY_SUBJECT not in signal.attributes:
        return "tells how the job runs, and of no fault"
    kept = sighting(signal)
    if kept is None:
        return "counted for nothing: it was older than a day when it was read"
    if not kept.firing:
        return "counted for nothing: it reports an end, and nothing that had begun"
    role = _ROLES.get(families().role(kept), "no rule uses it")
    return f"counted for nothing by itself: {role}"
