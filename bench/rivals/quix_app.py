"""A straightforward Quix Streams app: the same expressions in `apply`, a message for each report found.

Runs in an environment of its own (`bench.rivals.quix_environment`), because Quix Streams and the Kubernetes client want
different versions of pydantic; so it imports nothing of Faultline.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from quixstreams import Application

from bench.rivals.wanted import signals_of


def one_pass(bootstrap: str, topic: str, reports: str, records: int, run: str) -> dict[str, float]:
    """Read `records` records in a group of its own; the first hundred only start the clock."""
    app = Application(
        broker_address=bootstrap,
        consumer_group=f"bench-quix-{run}",
        auto_offset_reset="earliest",
        auto_create_topics=False,
        loglevel="ERROR",
    )
    seen = signals = 0
    began = took = 0.0

    def detect(value: bytes) -> list[dict[str, Any]]:
        nonlocal seen, signals, began, took
        found = signals_of(value)
        signals += len(found)
        seen += 1
        if seen == 100:
            began = time.perf_counter()
        if seen == records:
            took = time.perf_counter() - began
            app.stop()
        return found

    lines = app.dataframe(app.topic(topic, value_deserializer="bytes", key_deserializer="bytes"))
    lines.apply(detect, expand=True).to_topic(
        app.topic(reports, value_serializer="json"), key=lambda signal: str(signal["host"])
    )
    app.run()
    return {"per_s": (seen - 100) / took, "signals": signals}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(one_pass(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
