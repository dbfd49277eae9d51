"""Containers of jobs that cannot open their GPUs, also where another pod prints it: Ray's driver, a launcher."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at
from streams.correlate.job_rules.node_reports import NodeReports
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.device_access import at_node, says_of_access
from streams.correlate.state.placement import Placement
from streams.model.entity import PodRef
from streams.model.hostnames import folded


class DeviceReports(NodeReports):
    """By node: what is printed of containers of jobs there that cannot open their GPUs."""

    def _of_job(self, job: str) -> Mapping[str, Sequence[Sighting]]:
        found: dict[str, list[Sighting]] = defaultdict(list)
        for s in sorted(self._evidence_cache.told(job), key=order):
            if (said := says_of_access(s)) is None:
                continue
            there = placed_at(self._placements.placements_of(job), s.at, self._config)
            held_by = self._holder(s, there)
            if held_by is not None:
                namespace, _, name = held_by.pod.partition("/")
                pod = PodRef(namespace, name)
                found[held_by.node].append(at_node(s, held_by.node, pod, said[0], ends=said[1]))
        return found

    def _holder(self, s: Sighting, there: Sequence[Placement]) -> Placement | None:
        """The pod of the process that says it: of the rank or the address in the line."""
        rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
        if rank is not None:
            return next((p for p in there if rank in p.ranks and p.gpus), None)
        if address := s.text("ip"):
            node = self._evidence_cache.addresses(there).nodes.get(folded(address))
            return next((p for p in there if p.node == node and p.gpus), None)
        # Also where the line does not say on which node that was.
        pod = s.entity.pod.key if s.entity.pod is not None else None
        return next((p for p in there if p.pod == pod and p.gpus), None)


def lost_access(evidence: JobEvidence, start: datetime, end: datetime, config: Config) -> Hypothesis | None:
    """The fault by which containers on several nodes lost their GPUs, where this job's own say so as it fails."""
    if not evidence.lost_devices:
        return None
    since, until = start - config.before, end + config.before
    said = [s.at for s in evidence.failed if says_of_access(s) is not None and since <= s.at <= until]
    found = [
        h
        for h in evidence.lost_devices
        if any(job.key == evidence.job.key for job in h.jobs)
        and any(h.fault_at - config.skew <= at <= h.last_at + config.skew for at in said)
    ]
    return min(found, key=lambda h: (h.fault_at, h.id), default=None)
