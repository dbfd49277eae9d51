"""Effects of posting, for the tests of every sink."""

from __future__ import annotations

from datetime import UTC, datetime

from connectors.base import Effect
from streams.model.codec import encode
from streams.model.message import (
    Button,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Table,
    Tone,
)
from streams.model.run import Target
from streams.model.signal import Attribute

INCIDENT = "inc-0123456789abcdef"
AT = datetime(2030, 5, 4, 3, 2, 1, tzinfo=UTC)

MESSAGE = Message(
    "GPU fell off the bus on gpu-17",
    (
        Heading("GPU fell off the bus on gpu-17"),
        Paragraph("XID 79 on GPU 3; two jobs wait for it."),
        Facts((Fact("Node", "gpu-17", url="https://console.example.test/n/gpu-17"), Fact("Since", at=AT))),
        Table(("Job", "State"), (("train-a", "stalled"), ("train-b", "stalled"))),
        Code("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
        Buttons((Button("approve", "Approve", '{"i":"inc-0123456789abcdef"}'),)),
        Paragraph("Cordoned by faultline", quiet=True),
    ),
    Tone.BAD,
)


def post(key: str = "a" * 32, message: Message = MESSAGE, **params: Attribute) -> Effect:
    """An effect that posts `message` in the incident's thread."""
    given: dict[str, Attribute] = {
        "message": encode(message).decode(),
        "thread": INCIDENT,
        "first": True,
        "subject": "GPU fell off the bus on gpu-17",
    }
    return Effect(
        key=key,
        action="post",
        target=Target("Sink", "posts"),
        cluster="c1",
        incident=INCIDENT,
        run="",
        step="post",
        params=given | params,
    )
