"""What comes back from Slack: is the request really Slack's, and which decision does a pressed button mean? Pure.

The signature covers the raw body, so it is checked before anything is parsed. A press carries only ids and the plan's digest;
whether the person may decide and whether the plan is still that one is the responder's to say. Free text never decides.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import orjson

from streams.model.conversation import Command, Verb
from streams.model.digest import digest
from streams.model.errors import BadInput, Permanent

MAX_AGE_S = 300
"""An older (or later) request is a replay, whatever its signature."""
MAX_BODY_BYTES = 256 * 1024
_ACTION = "faultline."


class Forged(Permanent):
    """The request is not Slack's, or not from now. Answer 401 and do nothing."""


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> None:
    """Check Slack's v0 signature over the raw body. `headers` are looked up in any spelling.

    Raises:
        Forged: saying what is wrong, never what would be right.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    timestamp = lowered.get("x-slack-request-timestamp", "")
    signature = lowered.get("x-slack-signature", "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise Forged("the request has no usable timestamp")
    if abs(now.timestamp() - int(timestamp)) > MAX_AGE_S:
        raise Forged("the request is too old, or from the future")
    if len(body) > MAX_BODY_BYTES:
        raise Forged("the request is too large")
    expected = (
        "v0="
        + hmac.new(secret.encode(), b"v0:%s:%s" % (timestamp.encode(), body), hashlib.sha256).hexdigest()
    )
    if not hmac.compare_digest(expected.encode(), signature.encode()):
        raise Forged("the signature does not match")


def command_from(body: bytes, now: datetime) -> Command:
    """The decision in a verified interaction request (form-encoded, one `payload` field).

    Its id is a hash of person, button and moment, so that a redelivered press is the same command.

    Raises:
        BadInput: when it is no press of one of our buttons; names what is missing.
    """
    payload = _payload(body)
    if payload.get("type") != "block_actions":
        raise BadInput(f"an interaction of type {str(payload.get('type'))[:40]!r} decides nothing")
    action = _first(payload.get("actions"))
    name = str(action.get("action_id", ""))
    try:
        verb = Verb(name.removeprefix(_ACTION)) if name.startswith(_ACTION) else None
    except ValueError:
        verb = None
    if verb is None:
        raise BadInput(f"{name[:60]!r} is none of our buttons")
    value = _loaded(str(action.get("value", "")), "the button's value")
    incident, cluster = _text(value, "i"), _text(value, "c")
    actor, pressed_at = _actor(payload.get("user")), str(action.get("action_ts", ""))
    return Command(
        id="cmd-" + digest(incident, verb, actor, pressed_at, str(action.get("value")), size=8),
        incident=incident,
        cluster=cluster,
        verb=verb,
        actor=actor,
        at=now,
        step=_text(value, "s") if "s" in value else None,
        digest=_text(value, "d") if "d" in value else None,
        via="slack",
    )


def _payload(body: bytes) -> dict[str, Any]:
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput("the request is no form") from error
    if len(fields.get("payload", [])) != 1:
        raise BadInput("the request has no single `payload`")
    return _loaded(fields["payload"][0], "payload")


def _loaded(text: str, what: str) -> dict[str, Any]:
    try:
        loaded = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{what} is no JSON") from error
    if not isinstance(loaded, dict):
        raise BadInput(f"{what} is no JSON object")
    return loaded


def _first(actions: Any) -> dict[str, Any]:
    if not isinstance(actions, list) or len(actions) != 1 or not isinstance(actions[0], dict):
        raise BadInput("`actions` does not hold exactly one press")
    return actions[0]


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not text:
        raise BadInput(f"the button's value has no text {name!r}")
    return text


def _actor(user: Any) -> str:
    """`name (id)`: the name is for people, the id is what cannot be taken by somebody else."""
    if not isinstance(user, dict) or not isinstance(user.get("id"), str) or not user["id"]:
        raise BadInput("nobody is named as the one who pressed")
    name = user.get("username") or user.get("name")
    return f"{name} ({user['id']})" if isinstance(name, str) and name else user["id"]
