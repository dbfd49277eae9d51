"""The notifier as a program, to be killed: `python -m tests.faultline.notify.notifier_process JSON`.

The argument is a JSON object: `bootstrap`, `prefix`, `partitions`, `pagerduty` and `alertmanager` (base URLs), and optionally
`die_at`, the label of a crash point at which it kills itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any

from faultline.notify.process import Notifier
from faultline.runtime import logging_setup
from faultline.runtime.notice_sinks import open_sinks
from faultline.runtime.settings import Settings

ROUTING_KEY = "0123456789abcdef0123456789abcdef"


def sinks(pagerduty: str, alertmanager: str) -> dict[str, Any]:
    """A pager and an Alertmanager."""
    quick = {"lag_s": 0.2, "calls_per_minute": 60_000, "timeout_s": 20.0}
    pager = {
        "kind": "pagerduty",
        "key": ROUTING_KEY,
        "url": pagerduty,
        "api_url": pagerduty,
        "api_token": "standin-token",
    }
    return {"oncall": pager | quick, "am": {"kind": "alertmanager", "url": alertmanager} | quick}


async def run(wishes: dict[str, Any]) -> None:
    """Run until killed."""

    def at(label: str) -> None:
        if label == wishes.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    settings = Settings.model_validate(
        {
            "kafka": {
                "bootstrap": wishes["bootstrap"],
                "topic_prefix": wishes["prefix"],
                "cluster_partitions": wishes["partitions"],
                "session_timeout_ms": 6000,
            },
            "responder": {"lease_s": 3.0},
            "notifier": {"sinks": sinks(wishes["pagerduty"], wishes["alertmanager"])},
        }
    )
    async with AsyncExitStack() as stack:
        await Notifier(
            settings.kafka,
            settings.notifier,
            open_sinks(settings, stack),
            lease_s=settings.responder.lease_s,
            approval_expiry_s=settings.responder.approval_expiry_s,
            at=at,
        ).run()


if __name__ == "__main__":
    logging_setup.configure("notifier", level="debug", form="json")
    asyncio.run(run(json.loads(sys.argv[1])))
