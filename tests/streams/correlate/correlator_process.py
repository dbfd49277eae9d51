"""The correlator as a program, to be killed: `python -m tests.streams.correlate.correlator_process JSON`.

The argument is a JSON object: `kafka` (settings), and optionally `settle` (how long it waits before it decides), `tick_s` (how
often it tells the time), `die_at` (a crash point's label) with `after` (how often it is passed before), `fail_on` (an XID that
the engine cannot bear: a fault of ours, not of the record), `slow_s` (how long the engine takes for signals) and `silence_s`
(after which a silent stream is given up).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from faultline.runtime import logging_setup
from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate import Changes, Config, Engine, Rows, consumption
from streams.correlate.process import Correlator
from streams.model.signal import Signal


class Frail(Engine):
    """An engine with a fault of its own, or a slow one."""

    def __init__(
        self, cluster: str, rows: Rows, config: Config, *, fail_on: int | None, slow_s: float
    ) -> None:
        super().__init__(cluster, rows, config)
        self._fail_on = fail_on
        self._slow_s = slow_s

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        time.sleep(self._slow_s)
        if any(s.attributes.get("xid", 0) == self._fail_on for s in signals):
            raise ZeroDivisionError("a fault of ours")
        return super().on_signals(signals, now)


def main() -> None:
    """Run until killed."""
    wishes: dict[str, Any] = json.loads(sys.argv[1])
    passed: Counter[str] = Counter()

    def at(label: str) -> None:
        passed[label] += 1
        if label == wishes.get("die_at") and passed[label] > wishes.get("after", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if label == wishes.get("freeze_at") and passed[label] == wishes.get("after", 0) + 1:
            os.kill(os.getpid(), signal.SIGSTOP)

    hasty = {"hang_settle_s": 2.0, "application_settle_s": 1.0, "node_settle_s": 5.0}
    settings = CorrelatorSettings(**(wishes.get("settle") or hasty))
    # A copy, because a test may want fewer ticks than the settings allow anybody.
    settings = settings.model_copy(update={"tick_s": wishes.get("tick_s", 0.2)})
    # What is only more evidence is told every two minutes, and who waits for the last word waits as long.
    config = replace(Config.of(settings), detail_every=timedelta(seconds=2))

    def make(cluster: str, rows: Rows) -> Engine:
        return Frail(cluster, rows, config, fail_on=wishes.get("fail_on"), slow_s=wishes.get("slow_s", 0.0))

    consumption.SILENCE_S = wishes.get("silence_s", consumption.SILENCE_S)
    logging_setup.configure("correlator", level="debug" if wishes.get("loud") else "info", form="json")

    async def work() -> None:
        correlator = Correlator(KafkaSettings(**wishes["kafka"]), settings, make, at=at)
        task = asyncio.ensure_future(correlator.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    asyncio.run(work())


if __name__ == "__main__":
    main()
