"""Settings of the console: who may log in, by which proof, and the bounds on its readers."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator

from streams.config.setting_types import Name, Url
from streams.config.settings import Contradiction, Section


def _network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an address or a network, e.g. 10.0.0.7 or 10.0.0.0/24") from None
    return value


Network = Annotated[str, AfterValidator(_network)]
"""An IP address, or a network in CIDR form."""


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


def _is_https_or_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


class OidcSettings(Section):
    """Login with an OpenID Connect provider. Off without an issuer."""

    issuer: Url | None = Field(None, description="the provider, as in its tokens: https://login.example.test")
    client_id: str = Field("", description="the console's id at the provider")
    client_secret: SecretStr | None = Field(
        None, description="its secret; a public client, which has PKCE alone, has none"
    )
    scopes: tuple[Name, ...] = Field(("openid", "profile", "email"), description="what to ask for")
    groups_claim: Name = Field("groups", description="claim of the ID token that lists a person's groups")
    timeout_s: float = Field(10.0, gt=0, le=60, description="timeout of one request to the provider")

    _empty = field_validator("issuer", "client_secret", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """An issuer without a client id."""
        if self.issuer is not None and not self.client_id:
            yield ("client_id", "issuer"), "not set, and console.oidc.issuer needs it"
        if self.issuer is not None and not _is_https_or_local(self.issuer):
            yield ("issuer",), "not https: whoever is on the way could log in as anybody"
        if "openid" not in self.scopes:
            yield ("scopes",), "must contain openid"


class ProxySettings(Section):
    """Login by a proxy that has authenticated the person. Off without addresses."""

    addresses: tuple[Network, ...] = Field(
        (), description="from which the headers are believed; from anywhere else they are ignored"
    )
    user_header: Name = Field("X-Forwarded-User", description="who it is: an id that nobody can choose")
    name_header: Name = Field("X-Forwarded-Preferred-Username", description="how the person is called")
    groups_header: Name = Field("X-Forwarded-Groups", description="groups, separated by commas")

    def contradictions(self) -> Iterator[Contradiction]:
        """Networks that everybody is in."""
        if any(ipaddress.ip_network(one).prefixlen == 0 for one in self.addresses):
            yield ("addresses",), "holds every address: anybody could say who they are"


class ConsoleSettings(Section):
    """The pages. Without a login they are read-only and served to this machine alone."""

    public_url: Url | None = Field(
        None,
        description="where people reach the console: for links in pages and tickets, the provider's redirect, and behind a proxy",
    )
    session_secret: SecretStr | None = Field(
        None,
        description="signs cookies and forms, at least 32 characters, the same for every gateway; needed for any login",
    )
    session_hours: float = Field(8.0, gt=0, le=24 * 7, description="how long a login lasts")
    oidc: OidcSettings = OidcSettings()
    proxy: ProxySettings = ProxySettings()
    answer_wait_s: float = Field(
        5.0, ge=0, le=30, description="how long a decision waits for the responder's answer"
    )
    readers: int = Field(200, ge=1, le=10_000, description="pages that are updated live at the same time")
    page_size: int = Field(50, ge=5, le=500, description="rows of one page of a list")

    _empty = field_validator("public_url", "session_secret", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """A login that cannot come back, or a secret that can be guessed."""
        if self.oidc.issuer is not None and self.public_url is None:
            yield ("public_url", "oidc.issuer"), "not set, and a login at console.oidc.issuer returns to it"
        if self.session_secret is None and self.has_login:
            yield (
                ("session_secret",),
                "not set: a form that one gateway has made would be refused by the other, and by itself after a restart",
            )
        if self.session_secret is not None and len(self.session_secret.get_secret_value()) < 32:
            yield ("session_secret",), "shorter than 32 characters"

    @property
    def has_login(self) -> bool:
        """Whether anybody can log in at all."""
        return self.oidc.issuer is not None or bool(self.proxy.addresses)
