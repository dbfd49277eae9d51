"""Series that a site's own recording rules make of its GPUs' metrics, one for each node.

Where Prometheus sends only these on, they are all there is of a node. Their names follow its convention,
`level:metric:operation` (prometheus.io, Recording rules): `node:dcgm_sm_clock:min`, `instance:nvidia_gpu_temp:max5m`.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

LEAST: Set[str] = frozenset({"min", "avg", "mean"})
"""Operations by which a low value is that of a node's GPUs, or of one of them."""
MOST: Set[str] = frozenset({"max", "avg", "mean"})

_OF_A_NODE: Set[str] = frozenset({"node", "instance", "host", "hostname", "machine"})


class RecordedGauge(NamedTuple):
    """Names of one quantity within those of recording rules, and the operations that count."""

    names: tuple[str, ...]
    operations: Set[str]

    def is_name(self, name: str) -> bool:
        """Whether a series of that name is this quantity, one for each node."""
        level, _, rest = name.lower().partition(":")
        metric, _, operation = rest.rpartition(":")
        # The operation may tell over which time: `avg5m`, `max_over_time_5m`.
        operation = operation.partition("_")[0].rstrip("smhd").rstrip("0123456789") or operation
        if level not in _OF_A_NODE or operation not in self.operations:
            return False
        return any(metric == own or metric.endswith(f"_{own}") for own in self.names)
