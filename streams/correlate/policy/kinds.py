"""Kinds of signals that more than one rule of correlation speaks of, by the names that the detector gives them."""

from __future__ import annotations

TIMEOUT = "nccl.timeout"
ERROR = "nccl.error"
LINK = "fabric.link"
PFC = "fabric.pfc_storm"
NOT_READY = "node.not_ready"

GPU_KINDS = ("gpu.xid", "gpu.off_bus")
FAILURES = ("job.failed", "job.stalled")
"""What a job's programs and pods say of its failing."""
