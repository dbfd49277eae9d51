"""PyTorch's flight recorder: what a rank dumps when a collective does not end (FlightRecorder.hpp, 2.4 to 2.7, as JSON)."""

from __future__ import annotations

from typing import Any

from sandbox.simulation.layout import Layout
from sandbox.simulation.wait_for import Wait

SHOWN = 3
"""Entries of the ring besides the one that hangs; a real dump has two thousand."""
_SPELLING = {
    "ALLREDUCE": "all_reduce",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base",
    "_ALLGATHER_BASE": "_all_gather_base",
    "SEND": "send",
    "RECV": "recv",
}


def dump(layout: Layout, wait: Wait, steps: int, timeout_ms: int) -> dict[str, Any]:
    """The dump of a rank that waits; groups in which nothing is pending show the counts after whole steps."""
    group, base = wait.op.group, wait.after(steps)
    mine = [g for g in layout.groups if wait.rank in g.ranks]
    status, config = {}, {}
    for number, each in enumerate(mine):
        done = base + wait.completed if each == group else steps
        ahead = base + wait.enqueued if each == group else steps
        status[str(number)] = {
            "last_enqueued_collective": ahead,
            "last_started_collective": done + (each == group),
            "last_completed_collective": done,
        }
        ranks = ", ".join(map(str, each.ranks))
        config[str(each.guid)] = {"name": str(each.guid), "desc": each.about, "ranks": f"[{ranks}]"}
    number = mine.index(group)
    entries = [_entry(wait, number, base + wait.completed, "completed", timeout_ms)]
    last = min(wait.op.seq + SHOWN, wait.enqueued)
    for seq in range(wait.op.seq, last + 1):
        state = "started" if seq == wait.op.seq else "scheduled"
        entries.append(_entry(wait, number, base + seq, state, timeout_ms))
    return {"version": "2.4", "pg_config": config, "pg_status": status, "entries": entries}


def _entry(wait: Wait, number: int, seq: int, state: str, timeout_ms: int) -> dict[str, Any]:
    op = wait.op
    paired = op.kind in ("SEND", "RECV")
    return {
        "record_id": seq,
        "pg_id": number,
        "process_group": [str(op.group.guid), op.group.about],
        "collective_seq_id": seq,
        "p2p_seq_id": seq if paired else 0,
        "op_id": seq,
        "profiling_name": f"nccl:{_SPELLING.get(op.kind, op.kind.lower())}",
        "input_sizes": [[op.numel]],
        "output_sizes": [[op.numel]],
        "input_dtypes": ["BFloat16"],
        "state": state,
        "retired": state == "completed",
        "timeout_ms": timeout_ms,
        "is_p2p": paired,
    }
