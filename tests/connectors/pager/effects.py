"""Effects as the notifier makes them, and connectors that talk to a proxy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pydantic import SecretStr

from connectors.base import Effect
from streams.config.notifier_settings import SinkSettings
from streams.model.codec import encode
from streams.model.message import Message
from streams.model.run import Target
from streams.model.signal import Attribute

INCIDENT = "inc-0123456789abcdef"
UNTIL = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=4)


def sink(kind: str, url: str, **more: object) -> SinkSettings:
    """Settings of a sink that lies at `url`."""
    wishes: dict[str, object] = {"timeout_s": 3.0, "lag_s": 0.05, "calls_per_minute": 60_000, "url": url}
    return SinkSettings.model_validate({"kind": kind, **wishes, **more})


def secret(text: str) -> SecretStr:
    """A secret setting."""
    return SecretStr(text)


def effect(
    action: str, key: str, params: Mapping[str, Attribute], summary: str = "GPU fell off the bus on gpu-17"
) -> Effect:
    """One effect of the incident."""
    return Effect(
        key=key,
        action=action,
        target=Target("Channel", "oncall"),
        cluster="c1",
        incident=f"oncall/{INCIDENT}",
        run="",
        step="root",
        params={"message": encode(Message(summary)).decode(), **params},
    )


def page(state: str = "triggered", key: str = f"{INCIDENT}-1", **params: Attribute) -> dict[str, Attribute]:
    """The params of a page."""
    return {
        "dedup_key": key,
        "state": state,
        "severity": "critical",
        "source": "gpu-17",
        "component": "gpu 0000:1b:00",
        "group": "c1",
        "class": "gpu_off_bus",
        "details": json.dumps({"Culprit": "gpu-17", "Jobs": "PyTorchJob research/llm-70b"}),
        "links": json.dumps([["https://faultline.example.test/incidents/1", "Console"]]),
        **params,
    }


def silence(state: str = "silenced", **params: Attribute) -> dict[str, Attribute]:
    """The params of a silence."""
    return {
        "incident": INCIDENT,
        "node": "gpu-17",
        "state": state,
        "until": UNTIL.isoformat(),
        "title": "GPU fell off the bus",
        "link": "https://faultline.example.test/incidents/1",
        **params,
    }
