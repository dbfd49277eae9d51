"""What programs meet of faulty hardware: errors of CUDA that no bad program leaves, as signals of the node they ran on.

CUDA does not say on which GPU, and anybody can print such a line. So it is context of its node, and proves something only where
the node's own metrics say the same of a GPU at that time (`node_rules/program_errors.py`): where the kernel's log is not shipped,
there are no more than these two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from streams.correlate.job_rules.job_evidence import placed_at
from streams.correlate.job_rules.node_reports import NodeReports
from streams.correlate.policy.families import PROGRAM, families
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.placement import Placement
from streams.model.entity import Entity
from streams.model.hostnames import folded
from streams.model.kinds import SignalKind
from streams.model.signal import PRINTED_BY, RELAYED


class GpuErrors(NodeReports):
    """By node: the hardware errors that programs of jobs met there."""

    def _of_job(self, job: str) -> Mapping[str, Sequence[Sighting]]:
        found: dict[str, list[Sighting]] = defaultdict(list)
        for s in sorted(self._evidence_cache.told(job), key=order):
            rule = families().rule(s) if s.kind == SignalKind.JOB_FAILED and s.firing else None
            if rule is None or rule.at_node is None:
                continue
            node = self._stands(s, placed_at(self._placements.placements_of(job), s.at, self._config))
            if node is not None:
                printed_by = s.entity.pod.key if s.entity.pod else ""
                at_node = replace(
                    s,
                    kind=rule.at_node,
                    entity=Entity(s.entity.cluster, node=node),
                    attributes={"subtype": PROGRAM, "job": job, RELAYED: True, PRINTED_BY: printed_by},
                )
                found[node].append(at_node)
        return found

    def _stands(self, s: Sighting, there: Sequence[Placement]) -> str | None:
        """The node of the process: that of the rank or address in the line, else of the pod that printed it if it has GPUs."""
        rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
        if rank is not None and (holder := next((p for p in there if rank in p.ranks), None)) is not None:
            return holder.node
        if address := s.text("ip"):
            return self._evidence_cache.addresses(there).nodes.get(folded(address))
        pod = s.entity.pod.key if s.entity.pod else None
        return next((p.node for p in there if p.pod == pod and p.gpus), None)
