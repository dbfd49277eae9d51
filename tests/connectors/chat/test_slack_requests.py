"""Requests from Slack: only genuine and fresh ones pass, and only a press of our buttons becomes a command."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.chat.slack_blocks import render
from connectors.chat.slack_requests import Forged, command_from, verify
from faultline.chat.thread_plan import wanted
from streams.model.conversation import Verb
from streams.model.errors import BadInput
from streams.model.run import Mode, StepState
from tests.connectors.chat.thread_documents import NOW, incident, run

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SENT_AT = str(int(NOW.timestamp()))


def signed(body: bytes, timestamp: str = SENT_AT, secret: str = SECRET) -> dict[str, str]:
    mac = hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": f"v0={mac}"}


def press(**changes: Any) -> bytes:
    """A press of the first button of the approval message, as Slack would send it."""
    asked = wanted(incident(), [run(incident(), Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)], [])
    (approval,) = [slot for slot in asked if slot.name.startswith("approval/")]
    blocks = render(approval.message, answers=True)["attachments"][0]["blocks"]
    (button, *_) = next(block["elements"] for block in blocks if block["type"] == "actions")
    action = {
        "action_id": button["action_id"],
        "value": button["value"],
        "action_ts": "1.5",
        "type": "button",
    }
    payload = {
        "type": "block_actions",
        "user": {"id": "U1", "username": "alice"},
        "actions": [action],
    } | changes
    return urlencode({"payload": json.dumps(payload)}).encode()


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
    ],
)
def test_a_forged_or_stale_request_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Forged):
        verify(SECRET, headers, press(), NOW)


def test_a_press_of_approve_becomes_a_command_bound_to_the_plan_that_was_shown() -> None:
    command = command_from(press(), NOW)
    assert (command.verb, command.actor, command.via) == (Verb.APPROVE, "alice (U1)", "slack")
    assert (command.incident, command.cluster, command.step) == (incident().id, "c1", "cordon")
    assert command.digest == run(incident()).plan.digest


def test_a_redelivered_press_is_the_same_command() -> None:
    assert command_from(press(), NOW).id == command_from(press(), NOW + timedelta(minutes=5)).id
    assert command_from(press(), NOW).id != command_from(press(user={"id": "U2"}), NOW).id


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload=%7B",
        b"payload=[]",
        b"payload=%FF",
        b"\xff\xfe",
        b"payload={}&payload={}",
        press(type="view_submission"),
        press(user=None),
        press(actions=[]),
        press(actions=[{"action_id": "other.approve", "value": "{}"}]),
        press(actions=[{"action_id": "faultline.rm -rf", "value": "{}"}]),
        press(actions=[{"action_id": "faultline.approve", "value": '{"i": 5, "c": "c1"}'}]),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(body: bytes) -> None:
    with pytest.raises(BadInput):
        command_from(body, NOW)


@given(st.binary(max_size=400))
def test_no_bytes_make_it_fail_in_another_way(body: bytes) -> None:
    with pytest.raises(BadInput):
        command_from(b"payload=" + body, NOW)
