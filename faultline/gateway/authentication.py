"""Proofs that a delivery comes from who it says: tokens, passwords and signatures. Pure; comparisons take constant time.

A token is in the head, so it is checked before the body is read; a signature is over the body. Where two secrets are given,
one is being replaced by the other, and either is good.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pydantic import SecretStr

from faultline.gateway.refusal import RequestRefused

Headers = Mapping[str, str]
"""The headers of a request; names are found in any case."""

MAX_SIGNATURES = 10
"""Signatures looked at in one header: each costs a comparison."""


class HeadProof(Protocol):
    """A proof that the head of a request holds."""

    def proves(self, headers: Headers) -> bool:
        """Whether it is there and right."""
        ...


class BodyProof(Protocol):
    """A proof over the body."""

    def is_offered(self, headers: Headers) -> bool:
        """Whether a signature is there at all."""
        ...

    def check(self, headers: Headers, body: bytes, now: datetime) -> None:
        """Raises RequestRefused: 401 when it is forged, 403 when it is from another time."""
        ...


def given(*secrets: SecretStr | None) -> tuple[SecretStr, ...]:
    """The secrets that are set."""
    return tuple(secret for secret in secrets if secret is not None)


@dataclass(frozen=True, slots=True)
class Bearer:
    """`Authorization: Bearer TOKEN`."""

    tokens: tuple[SecretStr, ...]

    def proves(self, headers: Headers) -> bool:
        """Whether one of the tokens is there."""
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.casefold() != "bearer":
            return False
        return _any_equal(header_bytes(token.strip()), [_key(known) for known in self.tokens])


@dataclass(frozen=True, slots=True)
class Basic:
    """`Authorization: Basic USER:PASSWORD`, base64."""

    user: str
    password: SecretStr

    def proves(self, headers: Headers) -> bool:
        """Whether user and password are right."""
        scheme, _, encoded = headers.get("Authorization", "").partition(" ")
        if scheme.casefold() != "basic":
            return False
        try:
            login = base64.b64decode(header_bytes(encoded.strip()), validate=True)
        except binascii.Error:
            return False
        return hmac.compare_digest(login, self.user.encode() + b":" + _key(self.password))


@dataclass(frozen=True, slots=True)
class SignedBody:
    """HMAC-SHA256 of the body as hex digits behind a word: `v1=…` (PagerDuty), `sha256=…` (WebSub, as Jira signs)."""

    header: str
    word: str
    secrets: tuple[SecretStr, ...]

    def is_offered(self, headers: Headers) -> bool:
        """Whether the header is there."""
        return self.header in headers

    def check(self, headers: Headers, body: bytes, now: datetime) -> None:
        """Refuses a body that none of the signatures in the header fits."""
        parts = [part.strip() for part in headers.get(self.header, "").split(",")][:MAX_SIGNATURES]
        found = [part[len(self.word) + 1 :] for part in parts if part.startswith(f"{self.word}=")]
        wanted = [_hmac(_key(secret), body).hex().encode() for secret in self.secrets]
        if not any(_any_equal(header_bytes(one.lower()), wanted) for one in found):
            raise RequestRefused(401, f"no signature in {self.header} fits")


@dataclass(frozen=True, slots=True)
class StandardWebhook:
    """The signature of Standard Webhooks: `v1,BASE64` over `ID.TIME.BODY`, in the headers `webhook-…`."""

    secrets: tuple[SecretStr, ...]
    window_s: float

    def is_offered(self, headers: Headers) -> bool:
        """Whether the header is there."""
        return "webhook-signature" in headers

    def check(self, headers: Headers, body: bytes, now: datetime) -> None:
        """Refuses what is forged, and what was signed more than the window ago or ahead."""
        name, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        signed = b".".join((header_bytes(name), header_bytes(stamp), body))
        found = headers.get("webhook-signature", "").split()[:MAX_SIGNATURES]
        wanted = [base64.b64encode(_hmac(_signing_key(secret), signed)) for secret in self.secrets]
        fits = [_any_equal(header_bytes(one[3:]), wanted) for one in found if one.startswith("v1,")]
        if not name or not any(fits):
            raise RequestRefused(
                401, "no signature in webhook-signature fits webhook-id, webhook-timestamp and the body"
            )
        if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 12:
            raise RequestRefused(401, "webhook-timestamp is not in seconds since 1970")
        refuse_other_times(int(stamp), now, self.window_s, "webhook-timestamp")


def refuse_other_times(stamp_s: float, now: datetime, window_s: float, what: str) -> None:
    """Refuse what is from another time, and say how far off it is: mostly a clock is wrong."""
    off_s = now.timestamp() - stamp_s
    if abs(off_s) > window_s:
        side = "behind" if off_s > 0 else "ahead of"
        raise RequestRefused(
            403,
            f"{what} is {abs(off_s):.0f} s {side} this clock, more than the {window_s:g} s that are allowed",
        )


def _any_equal(found: bytes, wanted: Sequence[bytes]) -> bool:
    fits = False
    for one in wanted:
        # Every comparison is made: which of the secrets it was must not show in the time it takes.
        fits |= hmac.compare_digest(found, one)
    return fits


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _key(secret: SecretStr) -> bytes:
    return secret.get_secret_value().encode()


def _signing_key(secret: SecretStr) -> bytes:
    """The key of a Standard Webhooks secret: base64 behind `whsec_`, else the text itself."""
    text = secret.get_secret_value()
    return base64.b64decode(text[6:]) if text.startswith("whsec_") else text.encode()


def header_bytes(text: str) -> bytes:
    """A header's bytes as they came: bytes that are not UTF-8 arrive as surrogates."""
    return text.encode("utf-8", "surrogateescape")
