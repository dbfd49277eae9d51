"""Clocks that differ: the workload manager's credentials are refused where one of two clocks is minutes off.

A refusal is about a pair: who made the credential, and who refused it. A node refuses what the controller made, or the controller
what a node made: either counts for the node. Nobody says which of the two is wrong. On one node it is the node's own, for all
others take what the same controller sends; on several nodes at once it is the controller's, or what all of them ask for the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_series import series
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import is_of_clock
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.model.kinds import IncidentFamily

CLOCKS = SharedGroup(GroupKind.STARTS, "munge")
"""Nodes that refuse what the controller sends, or whose messages it refuses: nothing starts on them."""


def of_clocks(hypotheses: Iterable[Hypothesis]) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """What a node's clock is blamed for, where nothing else is in it."""
    found = tuple(h for h in hypotheses if all(map(is_of_clock, h.causes)))
    return {CLOCKS: found} if found else {}


def clock_faults(
    cluster: str, evidence: Sequence[tuple[str, Sequence[Hypothesis]]], incarnations: Incarnations
) -> list[SharedFault]:
    """The times when enough nodes refused what is sent to them."""
    rule = part_policy().clocks
    found = series(
        cluster,
        CLOCKS,
        evidence,
        incarnations,
        rule,
        family=IncidentFamily.PLATFORM_FAULT,
        why=lambda nodes: (
            f"munge refuses on at least {_at_least(nodes)} nodes what the workload manager sends: their clocks and its own "
            "differ by minutes. Look at the controller's clock, and at what all of them ask for the time, before at any of them; "
            "no job starts there, and what runs goes on"
        ),
        alike="refuse what is sent to them",
    )
    return [replace(fault, hypothesis=_calm(fault.hypothesis, rule.settle)) for fault in found]


def _calm(h: Hypothesis, settle: timedelta) -> Hypothesis:
    """The root as it is told: once most have spoken, and with no more news than that they are twice as many.

    Neither the nodes nor what runs on them suffer.
    """
    told = {**h.facts, "nodes_hit": _at_least(h.nodes)}
    return replace(h, nodes=(), facts=told, candidates=(), ready_at=h.ready_at + settle)


def _at_least(nodes: Sequence[str]) -> int:
    """The power of two that so many nodes are at least: node after node refuses what one clock is wrong about."""
    return 1 << (len(nodes).bit_length() - 1)
