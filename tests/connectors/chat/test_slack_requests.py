"""Requests from Slack: only genuine and fresh ones pass."""

from __future__ import annotations

import hashlib
import hmac
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from connectors.chat.slack_requests import Forged, verify
from tests.connectors.chat.thread_documents import NOW

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SENT_AT = str(int(NOW.timestamp()))


def signed(body: bytes, timestamp: str = SENT_AT, secret: str = SECRET) -> dict[str, str]:
    mac = hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": f"v0={mac}"}


def press() -> bytes:
    return urlencode({"payload": '{"type": "block_actions"}'}).encode()


def test_a_genuine_and_fresh_request_passes() -> None:
    body = press()
    verify(SECRET, signed(body), body, NOW)
    verify(SECRET, {k.lower(): v for k, v in signed(body).items()}, body, NOW + timedelta(seconds=299))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(b"another body"),
        signed(press(), secret="guessed"),
        signed(press(), timestamp=str(int(SENT_AT) - 301)),
        signed(press(), timestamp=str(int(SENT_AT) + 301)),
        signed(press()) | {"X-Slack-Request-Timestamp": "soon"},
        signed(press()) | {"X-Slack-Request-Timestamp": "9" * 40},
        signed(press()) | {"X-Slack-Request-Timestamp": "١٢٣"},
        signed(press()) | {"X-Slack-Signature": "v0=é"},
        signed(press()) | {"X-Slack-Signature": "v0=\udcff"},
    ],
)
def test_a_forged_or_stale_request_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forged):
        verify(SECRET, headers, press(), NOW)
