"""Whether a request is really Slack's. Pure. The signature covers the raw body, so it is checked before anything is parsed."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime

from streams.model.errors import Permanent

MAX_AGE_S = 300
"""An older (or later) request is a replay, whatever its signature."""
MAX_BODY_BYTES = 256 * 1024


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
    # Bytes that are no ASCII arrive as halves of surrogate pairs, which cannot be encoded again.
    if not signature.isascii() or not hmac.compare_digest(expected, signature):
        raise Forged("the signature does not match")
