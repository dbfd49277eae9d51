"""Settings of tracing: where spans go, and how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, SecretStr, field_validator

from streams.config.section import Contradiction, Section


class TracingSettings(Section):
    """Traces, sent as OTLP over HTTP. Off until there is an `endpoint`."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
        description="base URL of a collector, e.g. http://otel-collector:4318; spans go to /v1/traces below it",
    )
    headers: Mapping[str, SecretStr] = Field(
        {}, description="headers of each request, e.g. a login: Authorization: Bearer …"
    )
    sample_ratio: float = Field(
        0.05,
        ge=0,
        le=1,
        description="share of the detector's batches that are traced; what a traced record leads to always is, and so are "
        "incidents, runs and effects",
    )
    resource: Mapping[str, str] = Field(
        {}, description="attributes of every span's resource, e.g. deployment.environment.name: production"
    )
    timeout_s: float = Field(10.0, gt=0, le=60, description="how long one request may take, retries included")
    queue: int = Field(
        4096,
        ge=512,
        le=100_000,
        description="spans that wait in memory at most; later ones are dropped and counted",
    )

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, content in value.items():
            if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f"{name[:40]!r} is no name of a header")
            if any(ord(char) < 32 or ord(char) > 126 for char in content.get_secret_value()):
                raise ValueError(f"{name}: its value holds what no header may hold")
        return value

    def contradictions(self) -> Iterator[Contradiction]:
        """What says how to send, with nowhere to send to."""
        if self.endpoint is None:
            for key in sorted(self.model_fields_set - {"endpoint"}):
                yield (key, "endpoint"), "not used, because tracing.endpoint is not set"
