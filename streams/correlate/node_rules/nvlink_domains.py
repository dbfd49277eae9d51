"""Links of an NVLink domain: the far ends of a failed link report it within seconds, on whatever node they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily


def of_nvlink_domain(hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """A node's hypotheses that may be the near or the far end of an NVLink fault."""
    return tuple(
        h for h in hypotheses if (h.domain == "gpu" and h.certainty is not Certainty.WEAK) or _link(h)
    )


def nvlink_faults(evidence: Sequence[tuple[str, Sequence[Hypothesis]]]) -> list[SharedFault]:
    """The faults in an NVLink domain that far ends on other nodes report too. The root stays that of its own node."""
    within = timedelta(seconds=families().shared.nvlink.within_s)
    pairs = sorted(
        ((node, h) for node, found in evidence for h in found), key=lambda p: (p[1].fault_at, p[1].id)
    )
    roots: list[tuple[tuple[str, Hypothesis], dict[str, str]]] = []
    for node, h in sorted(pairs, key=lambda p: -p[1].strength[0]):
        near = [
            r for r in roots if r[0][0] != node and _link(h) and abs(h.fault_at - r[0][1].fault_at) <= within
        ]
        if near:
            near[0][1][h.id] = node
        else:
            roots.append(((node, h), {}))
    return [SharedFault(h, parts) for (_, h), parts in roots if parts]


def tray_at(
    trays: Mapping[str, Sequence[Sighting]],
    at: datetime,
    within: timedelta,
    stands_here: Callable[[str], bool | None],
) -> tuple[str, Sighting] | None:
    """The one switch tray that reported on its NVLinks around that moment, and what it said; None where none did, or several.

    Those whose name tells that they stand here (`stands_here`) count, else those whose name does not tell where they do (None).
    """
    spoke = {name: s for name, seen in sorted(trays.items()) for s in seen if abs(s.at - at) <= within}
    here = {name: s for name, s in spoke.items() if stands_here(name) is True}
    near = here or {name: s for name, s in spoke.items() if stands_here(name) is None}
    return next(iter(near.items())) if len(near) == 1 else None


def _link(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.GPU_NVLINK
