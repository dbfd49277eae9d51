"""How a process gets a token for `kafka.sasl_mechanism: OAUTHBEARER`: OAuth's client credentials, from any provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from streams.config.section import Contradiction, Section


class KafkaOAuthSettings(Section):
    """The client of an identity provider, with `kafka.sasl_mechanism: OAUTHBEARER`."""

    token_url: str | None = Field(
        None, description="token endpoint of the provider, https (http on loopback)"
    )
    client_id: str = Field(
        "", description="this process's client there; its principal is a claim of the token"
    )
    client_secret: SecretStr | None = Field(None, description="its secret")
    client_secret_file: Path | None = Field(
        None, description="a file with the secret instead, reread for every token"
    )
    scope: str = Field("", description="scopes to ask for, separated by spaces")
    audience: str = Field("", description="the parameter `audience`, which some providers want")
    cafile: Path | None = Field(
        None, description="authorities to trust for the provider; the system's when not set"
    )

    @field_validator("token_url")
    @classmethod
    def _is_private(cls, value: str | None) -> str | None:
        """A secret never goes over the wire in the clear, except to this machine itself."""
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme == "https" and parts.hostname:
            return value
        if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"):
            return value
        raise ValueError("expected https://HOST/PATH; http only for a provider on this machine")

    def contradictions(self) -> Iterator[Contradiction]:
        """A client without a secret, or with two."""
        if self.token_url is None:
            return
        if not self.client_id:
            yield ("client_id", "token_url"), "not set, and kafka.oauth.token_url needs it"
        if (self.client_secret is None) == (self.client_secret_file is None):
            yield ("client_secret", "client_secret_file"), "set exactly one of the two"

    def secret(self) -> str:
        """The client's secret now.

        Raises:
            OSError: when its file cannot be read.
        """
        if self.client_secret_file is not None:
            return self.client_secret_file.read_text(encoding="utf-8").strip()
        return self.client_secret.get_secret_value() if self.client_secret else ""
