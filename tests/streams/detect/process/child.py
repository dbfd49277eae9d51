"""A detector as a process of its own, for tests that kill it. It ends in order on SIGTERM.

Arguments: the Kafka settings as JSON and, for one that ends itself by SIGKILL, a label and how often it must have come by;
then the detector's settings as JSON.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import suppress

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.process import DetectorProcess


async def main() -> None:
    settings = KafkaSettings.model_validate_json(sys.argv[1])
    label, times = sys.argv[2:4] if len(sys.argv) > 2 else ("", "0")
    wanted = DetectorSettings(batch_records=500)
    if len(sys.argv) > 4:
        wanted = DetectorSettings.model_validate_json(sys.argv[4])
    seen: Counter[str] = Counter()

    def at(here: str) -> None:
        seen[here] += 1
        if here == label and seen[here] == int(times):
            os.kill(os.getpid(), signal.SIGKILL)

    running = asyncio.ensure_future(DetectorProcess(settings, wanted, cluster="c1", at=at).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with suppress(asyncio.CancelledError):
        await running


if __name__ == "__main__":
    asyncio.run(main())
