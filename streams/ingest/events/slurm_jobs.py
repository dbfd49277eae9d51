"""Jobs as `squeue --json`, `sacct --json`, `scontrol show jobs --json` and slurmrestd print them.

`{"meta": {"slurm": {…}}, "jobs": [{"job_id", "name", "job_state": ["RUNNING"], "nodes": "gpu-[017-018]", "partition",
"tres_per_node": "gres/gpu:8"}]}`. Collectors also write each job as a record of its own. Every job becomes the line that
`scontrol show job --oneliner` prints of it. Shape: slurm, data_parser v0.0.39 to v0.0.42; before 23.02 states are plain text.
"""

from __future__ import annotations

import re
from typing import Any

from streams.ingest import timestamps
from streams.ingest.logs import text
from streams.ingest.records import JsonObject, Opened, RecordContext

HINTS = (rb'"job_state"\s{0,4}:\s{0,4}(?:\[\s{0,4})?"[A-Z_]{6}',)
"""Bytes (RE2) of such records."""

_SOURCE = "scontrol"
_MAX_JOBS = 5_000
_WORD = re.compile(r"[^\s=]{1,1024}")
_TOLD = frozenset(
    {"RUNNING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
)
"""States that tell of an allocation or of its end. A job that waits or completes tells of neither."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add a line for each job that holds nodes or has ended; False for any other format."""
    jobs = record.get("jobs")
    if not isinstance(jobs, list):
        jobs = [record]
    if not jobs or not isinstance(jobs[0], dict) or not {"job_id", "job_state"} <= jobs[0].keys():
        return False
    polled = timestamps.any_form(record.get("last_update"))
    for job in jobs[:_MAX_JOBS]:
        if isinstance(job, dict) and (line := _line(job)) is not None:
            ended = _number(job.get("end_time")) if "JobState=RUNNING" not in line else None
            at = timestamps.any_form(ended) if ended else polled
            text.read(line, context, into, at=at, source=_SOURCE)
    return True


def _line(job: dict[str, Any]) -> str | None:
    state, number, nodes = _state(job.get("job_state")), _number(job.get("job_id")), job.get("nodes")
    if state not in _TOLD or not number or not isinstance(nodes, str) or _WORD.fullmatch(nodes) is None:
        return None
    told = {
        "JobId": number,
        "JobName": job.get("name"),
        "JobState": state,
        "Partition": job.get("partition"),
        "NodeList": nodes,
        "TresPerNode": job.get("tres_per_node") or job.get("gres"),
    }
    return " ".join(f"{name}={value}" for name, value in told.items() if _WORD.fullmatch(str(value or "")))


def _state(value: object) -> str:
    """The base state; flags like COMPLETING follow it, or are in the list with it."""
    words = value if isinstance(value, list) else str(value).replace("+", " ").split()
    if "COMPLETING" in words:
        return ""  # some of its nodes are free again
    return str(words[0]) if words else ""


def _number(value: object) -> int | None:
    """A number, also as `{"set": true, "number": 7}`."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return value if isinstance(value, int) and value > 0 else None
