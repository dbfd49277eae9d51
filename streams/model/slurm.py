"""Nodes and jobs as Slurm's controller tells of them, read from the JSON of its tools and of slurmrestd.

The same thing is written differently by each version: a state is a word (22.05), a list of words (data_parser v0.0.40 and later)
or a word with flags beside it; a number may be plain or `{"set": true, "infinite": false, "number": 5}`. Any part may be missing.
Source: slurm, "JSON/YAML output" of squeue, sinfo and scontrol; slurmrestd's OpenAPI, `node` and `job_info`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Record = Mapping[str, Any]

INFINITE = 2**32 - 1
HELD = frozenset({"JobHeldUser", "JobHeldAdmin"})
"""Reasons of a pending job that somebody, or Slurm itself, holds."""

_ENDED = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
_FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})
_AWAY = frozenset({"DOWN", "ERROR", "UNKNOWN", "FUTURE", "INVALID"})
_NOT_THERE = frozenset({"NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"})
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_GRES = re.compile(r"(?:^|,)gpu(?::[^:,()=]+)?[:=](\d+)", re.ASCII)
_TRES = re.compile(r"(?:^|,)gres/gpu=(\d+)", re.ASCII)

NODE_FIELDS = (
    "name", "state", "state_flags", "reason", "reason_set_by_user", "reason_changed_at", "comment", "partitions", "gres",
    "hostname", "address", "boot_time",
)  # fmt: skip
"""What `node_of` reads."""
JOB_FIELDS = (
    "job_id", "name", "user_name", "user_id", "job_state", "state_reason", "nodes", "node_count", "restart_cnt", "requeue",
    "batch_flag", "het_job_id", "priority", "excluded_nodes", "comment", "admin_comment", "partition", "tres_alloc_str",
    "start_time", "submit_time",
)  # fmt: skip
"""What `job_of` reads."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node of Slurm. `states` are its base state and its flags, in capitals."""

    name: str
    states: frozenset[str]
    reason: str = ""
    """Why it is drained or down, as whoever did that wrote it."""
    reason_by: str = ""
    reason_at: datetime | None = None
    comment: str = ""
    partitions: tuple[str, ...] = ()
    gpus: int = 0
    hostname: str = ""
    address: str = ""
    boot_at: datetime | None = None

    @property
    def drained(self) -> bool:
        """Whether somebody took it out of service: no job is started on it, and those that run there go on."""
        return bool(self.states & {"DRAIN", "FAIL"})

    @property
    def down(self) -> bool:
        """Whether nothing can run on it, by its own state."""
        return bool(self.states & _AWAY)

    @property
    def ready(self) -> bool:
        """Whether Slurm reaches it."""
        return not self.down and self.answers

    @property
    def answers(self) -> bool:
        """Whether its daemon answers, though Slurm may still have it down."""
        return not self.states & _NOT_THERE

    @property
    def busy(self) -> bool:
        """Whether a job holds it, or one that ended is still being cleaned up."""
        return bool(self.states & _BUSY)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job of Slurm. `restarts` counts how often it was put back into the queue: it tells one start from the next."""

    id: int
    name: str = ""
    user: str = ""
    states: frozenset[str] = frozenset()
    reason: str = ""
    """Why it is pending."""
    nodes: str = ""
    """The host list of the nodes that it holds."""
    node_count: int = 0
    restarts: int = 0
    requeue: bool = False
    batch: bool = True
    het: bool = False
    priority: int | None = None
    excluded: str = ""
    comment: str = ""
    admin_comment: str = ""
    partition: str = ""
    gpus: int = 0
    started_at: datetime | None = None
    submitted_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over, and was not put back into the queue."""
        return bool(self.states & _ENDED)

    @property
    def failed(self) -> bool:
        """Whether it ended by a failure: not by its limit of time, nor because somebody asked for it."""
        return bool(self.states & _FAILED)

    @property
    def cleaning_up(self) -> bool:
        """Whether processes of it may still be ending on its nodes."""
        return "COMPLETING" in self.states

    @property
    def running(self) -> bool:
        """Whether its processes run; a job whose nodes are still being prepared does not yet."""
        return "RUNNING" in self.states and not self.states & {"COMPLETING", "CONFIGURING"}

    @property
    def held(self) -> bool:
        """Whether it waits in the queue until somebody releases it."""
        return not self.ended and not self.on_nodes and (self.reason in HELD or self.priority == 0)

    @property
    def on_nodes(self) -> bool:
        """Whether it holds nodes and was not put back into the queue."""
        if self.reason in HELD:
            return False
        return bool(self.states & {"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING"})

    @property
    def uid(self) -> str:
        """Stays the same when it is requeued. Numbers begin anew some day: the same one of another user is another job."""
        return f"slurm:{self.id}/{self.user}"


def node_of(record: Record) -> SlurmNode:
    """A node from its JSON record."""
    return SlurmNode(
        name=_text(record, "name"),
        states=_states(record.get("state")) | _states(record.get("state_flags")),
        reason=_text(record, "reason"),
        reason_by=_text(record, "reason_set_by_user"),
        reason_at=_time(record.get("reason_changed_at")),
        comment=_text(record, "comment"),
        partitions=tuple(map(str, record.get("partitions") or ())),
        gpus=sum(map(int, _GRES.findall(re.sub(r"\([^)]*\)", "", _text(record, "gres"))))),
        hostname=_text(record, "hostname"),
        address=_text(record, "address"),
        boot_at=_time(record.get("boot_time")),
    )


def job_of(record: Record) -> SlurmJob:
    """A job from its JSON record."""
    return SlurmJob(
        id=number(record.get("job_id")) or 0,
        name=_text(record, "name"),
        user=_text(record, "user_name") or str(record.get("user_id") or ""),
        states=_states(record.get("job_state")),
        reason=_text(record, "state_reason"),
        nodes=_text(record, "nodes"),
        node_count=number(record.get("node_count")) or 0,
        restarts=number(record.get("restart_cnt")) or 0,
        requeue=bool(record.get("requeue")),
        batch=bool(record.get("batch_flag")),
        het=bool(number(record.get("het_job_id"))),
        priority=number(record.get("priority")),
        excluded=_text(record, "excluded_nodes"),
        comment=_text(record, "comment"),
        admin_comment=_text(record, "admin_comment"),
        partition=_text(record, "partition"),
        gpus=next(map(int, _TRES.findall(_text(record, "tres_alloc_str"))), 0),
        started_at=_time(record.get("start_time")),
        submitted_at=_time(record.get("submit_time")),
    )


def number(value: object) -> int | None:
    """A number in any of the ways of writing one; None where it is not set."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return INFINITE
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


def _text(record: Record, key: str) -> str:
    value = record.get(key)
    if isinstance(value, Mapping):  # comments of jobs, in some versions
        value = value.get("job") or value.get("administrator")
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return value if isinstance(value, str) else ""


def _states(value: object) -> frozenset[str]:
    words = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(str(word).upper() for word in words)


def _time(value: object) -> datetime | None:
    seconds = number(value)
    return datetime.fromtimestamp(seconds, UTC) if seconds and seconds < INFINITE else None
