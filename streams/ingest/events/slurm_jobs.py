"""Jobs as `squeue --json`, `sacct --json`, `scontrol show jobs --json` and slurmrestd print them.

`{"meta": {"slurm": {…}}, "jobs": [{"job_id", "name", "job_state": ["RUNNING"], "nodes": "gpu-[017-018]", "partition",
"tres_per_node": "gres/gpu:8"}]}`. Collectors also write each job as a record of its own. Every job becomes the line that
`scontrol show job --oneliner` prints of it. Shape: slurm, data_parser v0.0.39 to v0.0.42; before 23.02 states are plain text.
What polls `squeue` for metrics says the same in tags or labels, under names of its own (`of_labels`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from streams.ingest import timestamps
from streams.ingest.logs import text
from streams.ingest.records import JsonObject, Opened, RecordContext

HINTS = (
    rb'"job_state"\s{0,4}:\s{0,4}(?:\[\s{0,4})?"[A-Z_]{6}',
    rb"[Nn]ode_?[Ll]ist\W",
)
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


def of_labels(labels: Mapping[str, Any], at: datetime | None, context: RecordContext, into: Opened) -> bool:
    """Add a line for the job that a metric's tags or labels describe; False where they describe none."""
    named = {_PUNCTUATION.sub("", name.lower()): value for name, value in labels.items()}
    number = str(_first(named, _JOB_IDS) or "")
    nodes, state = _first(named, _NODE_LISTS), str(_first(named, _STATES) or "RUNNING").upper()
    if not number.isdigit() or not isinstance(nodes, str):
        return False
    gpus, count = _first(named, ("gpus", "numgpus")), _first(named, ("nodes", "numnodes"))
    per_node = int(gpus // count) if _is_number(gpus) and _is_number(count) and count else 0
    job = {
        "job_id": int(number),
        "name": _first(named, ("jobname", "name")),
        "job_state": {"R": "RUNNING", "CD": "COMPLETED", "F": "FAILED", "NF": "NODE_FAIL"}.get(state, state),
        "partition": named.get("partition"),
        "nodes": nodes,
        "tres_per_node": f"gres/gpu:{per_node}" if per_node else None,
    }
    if (line := _line(job)) is not None:
        text.read(line, context, into, at=at, source=_SOURCE)
    return True


_JOB_IDS = ("jobid", "slurmjobid", "jobidraw")
_NODE_LISTS = ("nodelist", "slurmnodelist", "jobnodelist", "hostlist")
_STATES = ("jobstate", "state", "st")
_PUNCTUATION = re.compile(r"[_.\- ]")


def _first(named: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((named[name] for name in names if named.get(name) not in (None, "")), None)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
