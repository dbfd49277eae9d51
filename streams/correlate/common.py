"""Faults that several nodes have in common: which there are, and which root on a node became part of which.

Racks and NVLink domains are groups of their own; storage is one group, for any node may mount any of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from streams.correlate.hypotheses import Hypothesis
from streams.correlate.lives import Lives
from streams.correlate.racks import nvlink_faults, of_nvlink_domain, of_rack, rack_faults
from streams.correlate.rows import NodeRow
from streams.correlate.shares import SharedFault, Shares
from streams.correlate.storage import Waits, storage_faults, waits

STORAGE = "storage"
_STORAGE_KINDS = ("node.storage", "node.kernel")


class CommonFaults:
    """Kept up to date node by node; a group is judged anew when something in it changed."""

    def __init__(self, cluster: str, lives: Lives) -> None:
        self._cluster = cluster
        self._lives = lives
        self._racks: Shares[tuple[Hypothesis, ...]] = Shares()
        self._domains: Shares[tuple[Hypothesis, ...]] = Shares()
        self._storage: Shares[Waits] = Shares()
        self._faults: dict[str, list[SharedFault]] = {}
        self._owners: dict[str, Hypothesis] = {}

    def put(self, node: str, row: NodeRow, hypotheses: Sequence[Hypothesis]) -> set[str]:
        """Take in what one node says. Returns the groups (`rack/…`, `nvlink/…`, `storage`) to judge anew."""
        touched: set[str] = set()
        fact = row.fact
        power = of_rack(hypotheses)
        racks = {f"rack/{fact.rack}": power} if power and fact and fact.rack else {}
        touched |= self._racks.put(node, racks)
        if fact and fact.rack and self._racks.of(f"rack/{fact.rack}"):
            touched.add(f"rack/{fact.rack}")  # how many nodes it has may have changed
        links = of_nvlink_domain(hypotheses)
        domain = fact.nvlink_domain if fact else None
        touched |= self._domains.put(node, {f"nvlink/{domain}": links} if links and domain else {})
        seen = [s for group in row.seen.values() if group[0].kind in _STORAGE_KINDS for s in group]
        said = waits(seen, hypotheses) if seen else Waits()
        touched |= self._storage.put(node, {STORAGE: said} if said != Waits() else {})
        return touched

    def judge(self, group: str, known: Callable[[str], int]) -> tuple[set[str], bool]:
        """Judge a group anew; `known` tells how many nodes a rack has.

        Returns the nodes of which something became part of another root than before, and whether any root changed.
        """
        before = self._faults.pop(group, [])
        kind, _, name = group.partition("/")
        if kind == "rack":
            after = rack_faults(self._cluster, name, self._racks.of(group), known(name), self._lives)
        elif kind == "nvlink":
            after = nvlink_faults(self._domains.of(group))
        else:
            after = storage_faults(self._cluster, self._storage.of(group), self._lives)
        if after:
            self._faults[group] = after
        if before == after:
            return set(), False
        for fault in before:
            for part in fault.parts:
                self._owners.pop(part, None)
        for fault in after:
            self._owners |= dict.fromkeys(fault.parts, fault.hypothesis)
        old, new = _parts_of(before), _parts_of(after)
        return {node for node, _, _ in old ^ new}, True

    def owner(self, part: str) -> Hypothesis | None:
        """What a node's hypothesis became part of."""
        return self._owners.get(part)

    def standing(self, group: str) -> list[Hypothesis]:
        """Roots of a group's own; that of a link is its node's."""
        return [f.hypothesis for f in self._faults.get(group, ()) if f.hypothesis.scope == f"shared/{group}"]

    def roots(self) -> Iterable[Hypothesis]:
        """All roots that belong to no single node."""
        return (h for group in list(self._faults) for h in self.standing(group))

    def storages(self, nodes: set[str]) -> list[Hypothesis]:
        """Storage that some of these nodes do not reach."""
        return [h for h in self.standing(STORAGE) if not nodes.isdisjoint(h.nodes)]

    def parts(self, incident: str) -> dict[str, str]:
        """Ids of hypotheses that became part of an incident, each with its node."""
        return {
            part: node
            for faults in self._faults.values()
            for fault in faults
            if fault.hypothesis.id == incident
            for part, node in fault.parts.items()
        }


def _parts_of(faults: Sequence[SharedFault]) -> set[tuple[str, str, str]]:
    """Node, part and the root that it became part of."""
    return {(node, part, fault.hypothesis.id) for fault in faults for part, node in fault.parts.items()}
