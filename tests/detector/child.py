"""A detector as a process of its own, for tests that kill it: settings as JSON in the first argument."""

from __future__ import annotations

import asyncio
import sys

from streams.detector import DetectorProcess
from streams.model.settings import DetectorSettings, KafkaSettings


async def main() -> None:
    settings = KafkaSettings.model_validate_json(sys.argv[1])
    await DetectorProcess(settings, DetectorSettings(batch_records=500), cluster="c1").run()


if __name__ == "__main__":
    asyncio.run(main())
