"""The chat process as a program, to be killed or frozen: `python -m tests.faultline.chat.chat_process JSON`.

The argument is a JSON object: `bootstrap`, `prefix`, `partitions`, `slack` (base URL), and optionally `die_at` or
`freeze_at`, the label of a crash point at which it kills or stops itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from pydantic import SecretStr

from connectors.chat.slack import Slack
from faultline.chat.process import Chat
from faultline.runtime import logging_setup
from streams.config.connector_settings import SlackSettings
from streams.config.settings import KafkaSettings

CHANNEL = "C0INCIDENTS"


def main() -> None:
    """Run until killed."""
    wishes: dict[str, Any] = json.loads(sys.argv[1])

    def at(label: str) -> None:
        if label == wishes.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if label == wishes.get("freeze_at"):
            os.kill(os.getpid(), signal.SIGSTOP)

    kafka = KafkaSettings(
        bootstrap=wishes["bootstrap"],
        topic_prefix=wishes["prefix"],
        cluster_partitions=wishes["partitions"],
        session_timeout_ms=wishes.get("session_timeout_ms", 6000),
    )
    settings = SlackSettings(
        base_url=wishes["slack"],
        token=SecretStr("xoxb-standin"),
        channel=CHANNEL,
        timeout_s=20.0,
        history_lag_s=0.2,
        posts_per_s=1000,
        calls_per_minute=60_000,
    )
    chat = Chat(
        kafka,
        Slack(settings),
        channel=CHANNEL,
        debounce_s=0.2,
        lease_s=wishes.get("lease_s", 3.0),
        at=at,
    )
    logging_setup.configure("chat", level="debug", form="json")
    asyncio.run(chat.run())


if __name__ == "__main__":
    main()
