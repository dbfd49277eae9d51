"""Settings of the sinks that only post: e-mail, a Teams channel, a webhook, Apprise. Each is off until it is set."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator

from streams.config.settings import Contradiction, Section

_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@"
    r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[?[0-9A-Fa-f:]+\]?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
MIN_SECRET_BYTES = 24
MAX_SECRET_BYTES = 64
"""Bytes of a webhook's secret, as Standard Webhooks has them."""


def is_mail_address(value: str) -> bool:
    """Whether this is one plain ASCII address, which cannot end a header or name a second recipient."""
    return len(value) <= 254 and _ADDRESS.fullmatch(value) is not None


def secret_bytes(secret: str) -> bytes:
    """The key in a webhook's secret: `whsec_` and base64, or base64 alone.

    Raises:
        ValueError: when it is none, or too short or too long.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ValueError("not whsec_ followed by base64") from None  # the value is not echoed
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"{len(key)} bytes; {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} are wanted")
    return key


def _mail_address(value: str) -> str:
    if not is_mail_address(value):
        raise ValueError(f"{value!r} is not a mail address: NAME@DOMAIN, in ASCII and without a display name")
    return value


def _mail_addresses(value: object) -> object:
    """Also one string with commas, as it comes from an environment variable."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _host(value: str) -> str:
    if value and not _HOST_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a host name or address; the port is a setting of its own")
    return value


def _hook(value: SecretStr | None) -> SecretStr | None:
    """An address that a secret is part of: only over TLS, but on this machine itself. It is never echoed."""
    if value is None:
        return None
    try:
        parts = urlsplit(value.get_secret_value())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("not a URL: https://HOST[:PORT]/PATH") from None
    safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not safe or not _HOST_NAME.fullmatch(host) or port == 0 or "@" in parts.netloc or parts.fragment:
        raise ValueError("not a URL of the form https://HOST[:PORT]/PATH, without a user and a fragment")
    if not value.get_secret_value().isascii() or any(c.isspace() for c in value.get_secret_value()):
        raise ValueError("a URL has no blanks and is ASCII")
    return value


def _signing_secret(value: SecretStr | None) -> SecretStr | None:
    if value is not None:
        secret_bytes(value.get_secret_value())
    return value


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


MailAddress = Annotated[str, AfterValidator(_mail_address)]
MailAddresses = Annotated[tuple[MailAddress, ...], BeforeValidator(_mail_addresses)]
HookUrl = Annotated[SecretStr | None, BeforeValidator(_none_when_empty), AfterValidator(_hook)]
HookSecret = Annotated[SecretStr | None, BeforeValidator(_none_when_empty), AfterValidator(_signing_secret)]


class EmailSettings(Section):
    """Mail through one SMTP server. Without a host nothing is sent."""

    host: Annotated[str, AfterValidator(_host)] = Field("", description="the SMTP server to hand mail to")
    port: int = Field(587, ge=1, le=65535, description="587 with STARTTLS, 465 with TLS, 25 in plain")
    security: Literal["starttls", "tls", "plain"] = Field(
        "starttls", description="starttls never falls back to plain text"
    )
    ca_file: Path | None = Field(None, description="authorities to trust; the system's when not set")
    user: str = Field("", description="user to log in as; no login when not set")
    password: SecretStr | None = Field(None, description="its password")
    sender: MailAddress | None = Field(None, description="address that mail comes from and bounces go to")
    to: MailAddresses = Field((), description="addresses that get every post, unless a post names others")
    list_id: str = Field(
        "",
        pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*)?$",
        description="List-Id; faultline.DOMAIN of the sender when not set",
    )
    timeout_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="longest wait for one answer; all before the mail itself takes at most four times this",
    )
    at_once: int = Field(4, ge=1, le=100, description="connections to the server at once")

    _none_when_empty = field_validator("password", "sender", "ca_file", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """A server without a sender or anybody to send to, and a password that would travel in plain text."""
        if self.host and self.sender is None:
            yield ("sender", "host"), "not set, and posts.email.host needs an address that mail comes from"
        if self.host and not self.to:
            yield ("to", "host"), "not set, and posts.email.host needs somebody to send to"
        if self.user and self.password is None:
            yield ("password", "user"), "not set, and posts.email.user needs it"
        if self.user and self.security == "plain":
            yield ("user", "security"), "a password in plain text; use starttls or tls"


class TeamsSettings(Section):
    """Posts in one Teams channel, through a workflow that takes webhook requests. Without its URL nothing is posted."""

    url: HookUrl = Field(None, description="URL of the workflow's trigger; whoever has it can post")
    timeout_s: float = Field(20.0, gt=0, le=300, description="longest wait for an answer")
    repeat_unclear: bool = Field(
        False, description="send again what may have been posted: a copy rather than a gap"
    )


class WebhookSettings(Section):
    """Signed CloudEvents to one receiver. Without a URL nothing is sent."""

    url: HookUrl = Field(None, description="where events are posted to; redirects are not followed")
    secret: HookSecret = Field(None, description="signing secret: whsec_ and base64 of 24 to 64 bytes")
    old_secret: HookSecret = Field(
        None, description="the secret before it, signed with as well while it is replaced"
    )
    source: str = Field(
        "/faultline",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="the events' source, before the cluster",
    )
    timeout_s: float = Field(15.0, gt=0, le=300, description="longest wait for an answer")
    at_once: int = Field(8, ge=1, le=100, description="requests to the receiver at once")

    def contradictions(self) -> Iterator[Contradiction]:
        """A receiver without a secret: nobody could tell our events from others'."""
        if self.url is not None and self.secret is None:
            yield ("secret", "url"), "not set, and posts.webhook.url needs it: every event is signed"


class AppriseSettings(Section):
    """Posts through Apprise, to services that have no connector here. Needs the extra `apprise`."""

    urls: tuple[SecretStr, ...] = Field(
        (), max_length=20, description="Apprise's own URLs, one per service; they hold credentials"
    )
    timeout_s: float = Field(30.0, gt=0, le=300, description="longest wait for one service")


class PostSettings(Section):
    """Sinks that only post."""

    email: EmailSettings = EmailSettings()
    teams: TeamsSettings = TeamsSettings()
    webhook: WebhookSettings = WebhookSettings()
    apprise: AppriseSettings = AppriseSettings()
