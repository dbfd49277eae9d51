"""The archive as a program, to be killed: `python -m tests.faultline.archive.archive_process JSON`.

The argument is a JSON object: `bootstrap`, `prefix`, `partitions` and `url`, and optionally `flush_s`, `die_at`, the label of a
crash point at which it kills itself, or `freeze_at`, one at which it stops itself, and `times`: which time that is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from faultline.archive.process import Archiver
from faultline.runtime import logging_setup
from streams.config.archive_settings import ArchiveSettings
from streams.config.settings import KafkaSettings


async def run(wishes: dict[str, Any]) -> None:
    """Run until killed."""
    left = int(wishes.get("times", 1))

    def at(label: str) -> None:
        nonlocal left
        if label in (wishes.get("die_at"), wishes.get("freeze_at")):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL if wishes.get("die_at") else signal.SIGSTOP)

    kafka = KafkaSettings(
        bootstrap=wishes["bootstrap"],
        topic_prefix=wishes["prefix"],
        cluster_partitions=wishes["partitions"],
        session_timeout_ms=6000,
    )
    settings = ArchiveSettings(url=wishes["url"], flush_s=wishes.get("flush_s", 0.2))
    await Archiver(kafka, settings, at=at).run()


if __name__ == "__main__":
    logging_setup.configure("archive", level="debug", form="json")
    asyncio.run(run(json.loads(sys.argv[1])))
