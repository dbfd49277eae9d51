"""Kinds of signals that several rules of correlation treat alike."""

from __future__ import annotations

from streams.model.kinds import SignalKind

GPU_KINDS = (SignalKind.GPU_XID, SignalKind.GPU_OFF_BUS)
FAILURES = (SignalKind.JOB_FAILED, SignalKind.JOB_STALLED)
"""What a job's programs and pods say of its failing."""
