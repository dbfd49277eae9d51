"""The host that a line names before its message speaks, where it is named like the host that ships the job's output."""

from __future__ import annotations

import orjson
import pytest

from streams.detect import Detector
from tests.streams.detect.lines import record

SAID = "Failed to initialize NVML: Driver/library version mismatch"


def speaker(message: str, host: str = "gpu-17") -> str | None:
    value = {"file": "/home/ann/runs/slurm-4242.out", "host": host, "message": message, "source_type": "file"}
    (signal,) = Detector("c1").detect(record(orjson.dumps(value), topic="raw.job-logs")).signals
    return signal.entity.node


@pytest.mark.parametrize(
    ("message", "node"),
    [
        (f"gpu-18: {SAID}", "gpu-18"),
        (f"gpu-018: {SAID}", "gpu-018"),
        (f"worker18: {SAID}", "gpu-17"),
        (SAID, "gpu-17"),
    ],
)
def test_the_host_before_the_message_speaks_if_it_is_named_like_the_shipping_one(
    message: str, node: str
) -> None:
    assert speaker(message) == node
