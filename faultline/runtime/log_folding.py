"""Aggregates noisy log lines of the Kafka client: it logs sixty lines a second while a broker is unreachable.

A problem is logged once it lasts longer than transient ones do (a leader election, the first group of a new broker waiting for
its coordinator), then every `AGAIN_S` with the number of aggregated lines, and once when it is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger("faultline.kafka")

AGAIN_S = 60.0
"""How often a problem that lasts is logged again."""

QUIET_S = 12.0
"""A problem without a line for this long is over: group members contact the broker every few seconds."""


GAP_S = 3.0
"""Lines further apart belong to two transient problems, unless the first has been logged already."""


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """A known problem: its log event, the grace period before it is logged, and how to recognize the client's lines."""

    event: str
    over: str
    grace_s: float
    begins: tuple[str, ...]
    contains: str = ""


UNREACHABLE = KnownProblem(
    "Kafka unreachable, retrying",
    "Kafka reachable again",
    5.0,
    (
        "Unable connect to",
        "Unable to request metadata",
        "Unable to update metadata",
        "Error sending",
        "Marking the coordinator dead",
        "LeaveGroup request failed",
        "Heartbeat session expired",
        "Heartbeat send request failed",
        "Heartbeat failed for group %s: coordinator",
        "Failed fetch messages from",
        "Failed fetch offsets from",
        "Cannot send",
        "Could not send",
        "Got error produce response",
        "OffsetCommit failed for group %s due to group",
        "Unexpected error while fetching data",
        "Group Coordinator Request failed",
        "FindCoordinator Request failed",
    ),
)
NO_COORDINATOR = KnownProblem(
    "no group coordinator available, retrying; check that offsets.topic.replication.factor <= broker count",
    "group coordinator available again",
    30.0,
    ("Group Coordinator Request failed", "FindCoordinator Request failed"),
    "[Error 15]",  # an error code in a response: the broker is reachable
)
ROUTINE = (
    "Heartbeat failed for group %s because it is rebalancing",
    "Topic %s is not available during auto-create",
)
"""Lines of every rebalance: logged at `debug` only."""


class KafkaLogFilter(logging.Filter):
    """Filter for a log handler that holds lines of known problems back. `look`, called every second or so, logs the problems.

    Args:
        clock: Seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._ongoing: dict[KnownProblem, _Ongoing] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is logged unchanged."""
        if not record.name.startswith("aiokafka"):
            return True
        text = str(record.msg)
        if text.startswith(ROUTINE):
            return logging.getLogger(__name__).isEnabledFor(logging.DEBUG)
        for problem in (NO_COORDINATOR, UNREACHABLE):
            if text.startswith(problem.begins) and problem.contains in record.getMessage():
                self._note(problem, record.getMessage())
                return False
        return True

    def look(self) -> None:
        """Log problems past their grace period, those that still last, and those that are over."""
        now = self._clock()
        for problem, ongoing in list(self._ongoing.items()):
            lasted_s = round(ongoing.last - ongoing.since, 1)
            if now - ongoing.last >= QUIET_S:
                del self._ongoing[problem]
                if ongoing.logged_at is not None:
                    log.info(problem.over, lasted_s=lasted_s, tries=ongoing.lines)
            elif lasted_s >= problem.grace_s and (
                ongoing.logged_at is None or now - ongoing.logged_at >= AGAIN_S
            ):
                ongoing.logged_at = now
                log.error(problem.event, lasted_s=lasted_s, tries=ongoing.lines, reason=ongoing.reason)

    def _note(self, problem: KnownProblem, reason: str) -> None:
        now = self._clock()
        ongoing = self._ongoing.get(problem)
        if ongoing is None or (ongoing.logged_at is None and now - ongoing.last > GAP_S):
            ongoing = self._ongoing[problem] = _Ongoing(now, now, reason)
        ongoing.last, ongoing.reason = now, reason
        ongoing.lines += 1


@dataclass(slots=True)
class _Ongoing:
    """An ongoing problem."""

    since: float
    last: float
    reason: str
    lines: int = 0
    logged_at: float | None = None
