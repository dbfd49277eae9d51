"""Faults of hardware that only the output of jobs reports, on many nodes at once: something about the jobs, not about the nodes.

Anybody who may run a container may print what a kernel prints: a crash handler that dumps last week's kernel log on every rank,
a test of a parser, a notebook that reads another cluster's log, or somebody who wants automation stopped. Of one node such a line
is kept as likely, for the kernel's own log may not be shipped, and counts only while a job there suffers: without the GPU that it
calls lost, none goes on. Of many nodes it is one question about whose output it is. A node of which anybody else says so, too,
does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_series import series, shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.model.kinds import IncidentFamily
from streams.model.signal import PRINTED_BY, RELAYED, SPEAKER

FAMILY = IncidentFamily.PLATFORM_FAULT


def is_hearsay(h: Hypothesis) -> bool:
    """Whether a node's hypothesis rests on nothing but what jobs print of its hardware."""
    return h.domain != "application" and bool(h.causes) and all(map(_is_printed, (*h.causes, *h.context)))


def _is_printed(s: Sighting) -> bool:
    return RELAYED in s.attributes


def of_output(hypotheses: Iterable[Hypothesis]) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """A node's hearsay, by the namespace whose pods print it."""
    found: dict[SharedGroup, tuple[Hypothesis, ...]] = {}
    for h in hypotheses:
        if not is_hearsay(h):
            continue
        pods = (s.text(PRINTED_BY) or s.text(SPEAKER) for s in h.causes)
        # Two tenants may print of one node; it counts as that of one, or it would be part of two faults.
        group = SharedGroup(GroupKind.OUTPUT, min(pod.partition("/")[0] for pod in pods))
        found[group] = (*found.get(group, ()), h)
    return found


def printed_faults(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when output of one namespace reported faults on enough nodes, one after the other."""
    pods = f"pods of {group.name}" if group.name else "jobs"
    return series(
        cluster,
        group,
        evidence,
        incarnations,
        part_policy().hearsay,
        family=FAMILY,
        why=lambda nodes: (
            f"{pods} print faults of the hardware of {len(nodes)} nodes ({shown(nodes)}), and no kernel, metric or agent of "
            "these nodes tells of one: look at what is printed, and whether their own logs are shipped, before at any of them"
        ),
        alike="only what a job prints accuses",
        facts={"printed": True},
    )


def unless_printed(h: Hypothesis) -> Hypothesis:
    """A node's own hypothesis; one that only jobs print counts while a job suffers there."""
    return replace(h, alone=False) if is_hearsay(h) else h


def settled(h: Hypothesis) -> Hypothesis:
    """A node's hearsay as it is told: not before other nodes may be accused as well, or the kernel has spoken."""
    until = min(s.seen_at for s in h.causes) + part_policy().hearsay_settles
    return replace(h, ready_at=max(h.ready_at, until))
