"""Kafka's client tells of a broker that is away with every try, sixty lines a second. Here that becomes a line with a meaning.

A trouble is told when it has lasted for longer than such things do by themselves (a leader moves, the first group of a new broker
waits for its coordinator), then once in a while with how many lines were folded, and once when it is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

log = structlog.get_logger("faultline.kafka")

AGAIN_S = 60.0
"""How often a trouble that lasts is told."""

QUIET_S = 12.0
"""Without a word for so long it is over: members of a group talk to the broker every few seconds."""


GAP_S = 3.0
"""Lines further apart belong to two short troubles that pass by themselves, unless the first is told already."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of trouble: its name, how long it may last before it is told, how the client's lines begin and what they hold."""

    event: str
    over: str
    grace_s: float
    begins: tuple[str, ...]
    says: str = ""


AWAY = Trouble(
    "Kafka does not answer, trying on",
    "Kafka answers again",
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
NO_COORDINATOR = Trouble(
    "no broker coordinates the consumer group, trying on; is offsets.topic.replication.factor larger than there are brokers?",
    "the consumer group has a coordinator",
    30.0,
    ("Group Coordinator Request failed", "FindCoordinator Request failed"),
    "[Error 15]",  # an answer, and so not of a broker that is away
)
ROUTINE = (
    "Heartbeat failed for group %s because it is rebalancing",
    "Topic %s is not available during auto-create",
)
"""What goes with every rebalance: told at `debug`."""


class Folding(logging.Filter):
    """A filter of a handler. Call `look` now and then; what has become of the troubles is told there.

    Args:
        clock: Seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._going: dict[Trouble, _Going] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is told as it is."""
        if not record.name.startswith("aiokafka"):
            return True
        text = str(record.msg)
        if text.startswith(ROUTINE):
            return logging.getLogger().level <= logging.DEBUG
        for trouble in (NO_COORDINATOR, AWAY):
            if text.startswith(trouble.begins) and trouble.says in record.getMessage():
                self._note(trouble, record.getMessage())
                return False
        return True

    def look(self) -> None:
        """Tell what has lasted for long enough, again what still lasts, and what is over."""
        now = self._clock()
        for trouble, going in list(self._going.items()):
            lasted_s = round(going.last - going.since, 1)
            if now - going.last >= QUIET_S:
                del self._going[trouble]
                if going.told_at is not None:
                    log.info(trouble.over, lasted_s=lasted_s, tries=going.lines)
            elif lasted_s >= trouble.grace_s and (going.told_at is None or now - going.told_at >= AGAIN_S):
                going.told_at = now
                log.error(trouble.event, lasted_s=lasted_s, tries=going.lines, reason=going.reason)

    def _note(self, trouble: Trouble, reason: str) -> None:
        now = self._clock()
        going = self._going.get(trouble)
        if going is None or (going.told_at is None and now - going.last > GAP_S):
            going = self._going[trouble] = _Going(now, now, reason)
        going.last, going.reason = now, reason
        going.lines += 1


@dataclass(slots=True)
class _Going:
    """A trouble that is on."""

    since: float
    last: float
    reason: str
    lines: int = 0
    told_at: float | None = None
