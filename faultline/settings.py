"""One settings class: environment variables `FAULTLINE_*` over a YAML file over the defaults. Strict; errors name the key.

Nested keys are joined with two underscores: `FAULTLINE_KAFKA__BOOTSTRAP=broker:9092` is `kafka.bootstrap` of the file.
The file is named by `--config` or `FAULTLINE_CONFIG`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from runbooks.leases import MARGIN_S, longest_s
from streams.model.errors import ConfigError
from streams.model.settings import (
    CorrelatorSettings,
    DetectorSettings,
    InventorySettings,
    JiraSettings,
    KafkaSettings,
    KubernetesSettings,
    NodeWorkSettings,
    ResponderSettings,
    SlackSettings,
)


class Settings(BaseSettings):
    """Everything that can be set. `faultline config check` prints it."""

    model_config = SettingsConfigDict(
        env_prefix="FAULTLINE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    cluster: str = Field("default", min_length=1, description="name of this cluster in every record")
    log_format: Literal["auto", "json", "line"] = Field(
        "auto", description="auto: a readable line on a terminal, else JSON"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least that is told")
    http_port: int = Field(
        0, ge=0, le=65535, description="port of /live and /ready of a process; 0 switches them off"
    )
    http_host: str = Field("127.0.0.1", description="address they listen on")
    kafka: KafkaSettings = KafkaSettings()
    detector: DetectorSettings = DetectorSettings()
    inventory: InventorySettings = InventorySettings()
    correlator: CorrelatorSettings = CorrelatorSettings()
    responder: ResponderSettings = ResponderSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    node_work: NodeWorkSettings = NodeWorkSettings()
    slack: SlackSettings = SlackSettings()
    jira: JiraSettings = JiraSettings()

    @model_validator(mode="after")
    def _a_lease_ends_before_the_session(self) -> Self:
        """A frozen responder must have used its lease up when another one takes over, however far their clocks are apart."""
        lease_s, longest = self.responder.lease_s, longest_s(self.kafka)
        if lease_s <= MARGIN_S:
            raise ValueError(
                f"responder.lease_s: {lease_s:g} s is not longer than the {MARGIN_S:g} s kept free for clocks that differ"
            )
        if lease_s > longest:
            raise ValueError(
                f"responder.lease_s: {lease_s:g} s is too long for kafka.session_timeout_ms {self.kafka.session_timeout_ms}: "
                "a frozen responder could still act when another one has taken over; "
                f"set it to {longest:g} or less, or make the session longer"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over file: the file arrives as init values, so the usual order is turned round."""
        return env_settings, init_settings


def load(path: Path | None = None) -> Settings:
    """Read the file (`path`, else `FAULTLINE_CONFIG`, else none) and the environment.

    Raises:
        ConfigError: naming every wrong key, where it came from, and what would be right.
    """
    named = path or (Path(os.environ["FAULTLINE_CONFIG"]) if os.environ.get("FAULTLINE_CONFIG") else None)
    values = _read_file(named) if named else {}
    _refuse_unknown_environment()
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}"
            for e in error.errors(include_url=False)
        ]
        source = f"{named} and the environment" if named else "the environment"
        raise ConfigError(f"settings from {source} are not usable:\n" + "\n".join(lines)) from error


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read settings file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"settings file {path} is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"settings file {path}: the top level must be a mapping of keys")
    return content


def _refuse_unknown_environment() -> None:
    """A mistyped variable must not be silently ignored: pydantic sees only the names it knows."""
    known = set(Settings.model_fields)
    for name in os.environ:
        if name.startswith("FAULTLINE_") and name not in NOT_SETTINGS:
            key = name.removeprefix("FAULTLINE_").lower().split("__")[0]
            if key not in known:
                raise ConfigError(
                    f"{name}: there is no setting `{key}`; known are {', '.join(sorted(known))}"
                )


NOT_SETTINGS = frozenset({"FAULTLINE_CONFIG", "FAULTLINE_TESTBED"})
"""Variables of the same prefix that are not settings: where the settings file is, where the testbed was built."""
