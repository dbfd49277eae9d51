"""Settings of the gateway: where it listens, what bounds a request, and the secret of each hook.

A hook answers 404 until its secret is set. A secret set twice (`…_next`) is being rotated: both are accepted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from pydantic import Field, SecretStr, field_validator

from streams.config.setting_types import ListenHost
from streams.config.settings import DAY_S, Contradiction, Section

MIN_SECRET = 16
"""Characters of a secret that is not guessed in a lifetime at the rate the gateway answers."""


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


def _usable(value: SecretStr | None) -> SecretStr | None:
    """The secret, unless it is too short or not what its beginning says. The message never holds it."""
    text = value.get_secret_value() if value is not None else ""
    if value is not None and len(text) < MIN_SECRET:
        raise ValueError(f"is shorter than {MIN_SECRET} characters: anybody may try to guess it")
    if text.startswith("whsec_"):
        try:
            base64.b64decode(text[6:], validate=True)
        except binascii.Error:
            raise ValueError("begins with whsec_, but what follows is not base64") from None
    return value


def _first(key: str, first: SecretStr | None, second: SecretStr | None) -> Iterator[Contradiction]:
    if second is not None and first is None:
        yield (f"{key}_next", key), f"set without {key}"


def _own_user(secret: SecretStr | None, own_user: str) -> Iterator[Contradiction]:
    if secret is not None and not own_user:
        yield (
            ("own_user",),
            "not set: without it, what Faultline writes there itself would come back as a person's command",
        )


class _Hook(Section):
    """What the sections of all hooks share: the check of their secrets."""

    @field_validator(
        "token", "token_next", "secret", "secret_next", "password", mode="before", check_fields=False
    )
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return _none_when_empty(value)

    @field_validator("token", "token_next", "secret", "secret_next", "password", check_fields=False)
    @classmethod
    def _is_usable(cls, value: SecretStr | None) -> SecretStr | None:
        return _usable(value)


class AlertmanagerHook(_Hook):
    """`/hooks/alertmanager`: Alertmanager's webhook, with a bearer token or a user and password."""

    token: SecretStr | None = Field(None, description="bearer token that Alertmanager sends")
    token_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    user: str = Field("", description="user of basic authentication")
    password: SecretStr | None = Field(None, description="password of basic authentication")

    @property
    def is_on(self) -> bool:
        """Whether the hook is served."""
        return self.token is not None or self.password is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """Half a login, and a second token without a first."""
        if bool(self.user) is not (self.password is not None):
            yield ("user", "password"), "basic authentication needs a user and a password"
        yield from _first("token", self.token, self.token_next)


class EventsHook(_Hook):
    """`/hooks/events`: events as JSON or CloudEvents, signed as Standard Webhooks are, or with a bearer token."""

    secret: SecretStr | None = Field(None, description="key of the signature; `whsec_…` is base64")
    secret_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    token: SecretStr | None = Field(None, description="bearer token")
    token_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")

    @property
    def is_on(self) -> bool:
        """Whether the hook is served."""
        return self.secret is not None or self.token is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A second secret without a first."""
        yield from _first("secret", self.secret, self.secret_next)
        yield from _first("token", self.token, self.token_next)


class PagerDutyHook(_Hook):
    """`/hooks/pagerduty`: version 3 webhooks. What people do to an incident there is a command here."""

    secret: SecretStr | None = Field(None, description="secret of the webhook subscription")
    secret_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    own_user: str = Field(
        "",
        description="id of the user (P…) that Faultline itself acts as; empty where it acts by an integration",
    )
    max_age_s: float = Field(
        6 * 3600.0, gt=0, le=7 * DAY_S, description="older events are refused; PagerDuty retries for hours"
    )

    @property
    def is_on(self) -> bool:
        """Whether the hook is served."""
        return self.secret is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A second secret without a first."""
        yield from _first("secret", self.secret, self.secret_next)


class JiraHook(_Hook):
    """`/hooks/jira`: webhooks of Jira Cloud and Data Center. An issue closed by a person resolves its incident."""

    secret: SecretStr | None = Field(None, description="secret of the webhook")
    secret_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    own_user: str = Field(
        "", description="Faultline's account: its accountId (Cloud) or user name (Data Center)"
    )
    max_age_s: float = Field(
        6 * 3600.0, gt=0, le=7 * DAY_S, description="older events are refused; Jira retries for a while"
    )

    @property
    def is_on(self) -> bool:
        """Whether the hook is served."""
        return self.secret is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A second secret without a first, and an account that would be taken for a person."""
        yield from _first("secret", self.secret, self.secret_next)
        yield from _own_user(self.secret, self.own_user)


class ServiceNowHook(_Hook):
    """`/hooks/servicenow`: what a business rule posts. An incident closed by a person resolves its incident here."""

    secret: SecretStr | None = Field(None, description="key of the signature; `whsec_…` is base64")
    secret_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    token: SecretStr | None = Field(None, description="bearer token")
    token_next: SecretStr | None = Field(None, description="a second one, while the first is being replaced")
    own_user: str = Field("", description="user name that Faultline itself acts as")
    max_age_s: float = Field(6 * 3600.0, gt=0, le=7 * DAY_S, description="older events are refused")

    @property
    def is_on(self) -> bool:
        """Whether the hook is served."""
        return self.secret is not None or self.token is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A second secret without a first, and an account that would be taken for a person."""
        yield from _first("secret", self.secret, self.secret_next)
        yield from _first("token", self.token, self.token_next)
        yield from _own_user(self.secret or self.token, self.own_user)


class GatewaySettings(Section):
    """The gateway: HTTP from outside. Off without a port; each hook is off without a secret."""

    host: ListenHost = Field("127.0.0.1", description="address it listens on")
    port: int = Field(0, ge=0, le=65535, description="port it listens on; 0 switches it off")
    max_body_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        le=7 * 1024 * 1024,
        description="longest body of a request; longer ones get 413",
    )
    max_held_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, le=1 << 34, description="bodies in memory at once; further requests wait"
    )
    max_connections: int = Field(
        1000, ge=1, le=100_000, description="open connections; further ones are closed"
    )
    head_timeout_s: float = Field(
        10.0,
        gt=0,
        le=300,
        description="how long a new connection may take to send the head of its first request",
    )
    body_timeout_s: float = Field(
        10.0, gt=0, le=300, description="how long a body may take; later ones get 408"
    )
    kafka_timeout_s: float = Field(
        4.0, gt=0, le=60, description="how long a write to Kafka may take; after that the sender gets 503"
    )
    requests_per_s: float = Field(
        100.0, ge=0.01, le=100_000, description="deliveries of each hook in the long run; more get 503"
    )
    requests_at_once: int = Field(
        3000, ge=1, le=1_000_000, description="deliveries of each hook in one burst, on top of that"
    )
    failures_per_minute: float = Field(
        30.0, ge=0.01, le=100_000, description="failed authentications per address and hook; more get 429"
    )
    replay_window_s: float = Field(
        300.0, gt=0, le=3600, description="how far the time of a signature may be from this clock"
    )
    alertmanager: AlertmanagerHook = AlertmanagerHook()
    events: EventsHook = EventsHook()
    pagerduty: PagerDutyHook = PagerDutyHook()
    jira: JiraHook = JiraHook()
    servicenow: ServiceNowHook = ServiceNowHook()

    def contradictions(self) -> Iterator[Contradiction]:
        """A hook that nobody can reach, and bodies that never fit."""
        if self.max_held_bytes < self.max_body_bytes:
            yield ("max_held_bytes", "max_body_bytes"), "is less than one body (gateway.max_body_bytes)"
        hooks = ("alertmanager", "events", "pagerduty", "jira", "servicenow")
        if self.port == 0 and (on := [name for name in hooks if getattr(self, name).is_on]):
            yield ("port", *on), f"not set, and gateway.{on[0]} needs a port to be reached at"
