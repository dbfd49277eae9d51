"""Which partitions are ours: between a rebalance's begin and its end none, and none that another took over meanwhile.

Who loses a partition in the middle of an event neither writes nor acknowledges: the new owner reads it again. A process that was
frozen is the last to learn that it was taken for dead, so after a pause it asks the broker first.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import structlog
from faust.types import TP

from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import App
from streams.kafka import clients
from streams.kafka.topics import SIGNALS
from streams.model.clock import boot_seconds
from streams.model.errors import Unreachable

log = structlog.get_logger(__name__)

JOINING_S = 90.0
"""How long joining the group and reading on to the end of the state may take, besides two session timeouts."""


class Ownership:
    """Counts rebalances as terms: what was begun in an earlier term must not be written."""

    def __init__(self, app: App, settings: KafkaSettings) -> None:
        self._app = app
        self._settings = settings
        self.term = 0
        self.settled = False
        """Whether the state of the owned partitions is read, so that their records may be handled."""
        self._unsettled_since = monotonic()
        self._awake_at = boot_seconds()
        self._pauses = 0
        """Pauses that were noticed so far."""
        self._asked_about = 0
        """How many of them had been when the group was last asked, and still included us."""

    def lose(self) -> None:
        """Begin a new term: a rebalance began."""
        self.term += 1
        self._unsettle()

    def settle(self, term: int) -> None:
        """The state is read; it counts unless another rebalance has begun since."""
        self.settled = term == self.term

    def notice_pause(self) -> None:
        """Note whether the process was frozen since the last call for so long that the group may have put it out."""
        now = boot_seconds()
        self._pauses += now - self._awake_at > self._settings.session_timeout_ms / 2000
        self._awake_at = now

    async def holds(self, partition: int, term: int) -> bool:
        """Whether what follows may be written. What a worker writes that was taken for dead would overwrite the new owner's."""
        self.notice_pause()
        consumer: Any = self._app.consumer
        while term == self.term and self._asked_about != self._pauses:
            pauses = self._pauses
            owns = await consumer.owns(TP(clients.topic_name(self._settings, SIGNALS), partition))
            if not owns:
                log.warning(
                    "lost the partition to another correlator during a pause; nothing is stored",
                    partition=partition,
                )
                if term == self.term:
                    self._unsettle()
                return False
            if term == self.term:
                self._asked_about = pauses
            self.notice_pause()  # frozen once more while it was asked: the answer may be from before that
        return term == self.term

    def check_join(self) -> None:
        """Check a rebalance that does not end.

        Raises:
            Unreachable: when it took longer than `JOINING_S` and two session timeouts.
        """
        limit_s = JOINING_S + 2 * self._settings.session_timeout_ms / 1000
        if monotonic() - self._unsettled_since > limit_s:
            raise Unreachable(
                f"Kafka at {self._settings.bootstrap}: joining the group did not end within {limit_s:g} s"
            )

    def _unsettle(self) -> None:
        self.settled = False
        self._unsettled_since = monotonic()
