"""One settings class: environment variables `FAULTLINE_*` over a YAML file over the defaults. Strict; errors name the key.

Nested keys are joined with two underscores: `FAULTLINE_KAFKA__BOOTSTRAP=broker:9092` is `kafka.bootstrap` of the file.
The file is named by `--config` or `FAULTLINE_CONFIG`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from faultline.runtime.secret_files import PREFIX, EnvironmentAndFiles, variables
from faultline.runtime.setting_faults import (
    SETTINGS_FILE,
    contradiction_lines,
    every_key,
    fault_lines,
    no_json,
    twice,
    unknown_variables,
    wrong_values,
)
from faultline.runtime.yaml_size import MAX_NODES, expanded_size
from streams.config.archive_settings import ArchiveSettings
from streams.config.connector_settings import (
    KubernetesSettings,
    NodeWorkSettings,
    SlackSettings,
)
from streams.config.console_settings import ConsoleSettings
from streams.config.evidence_settings import EvidenceSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.notifier_settings import NotifierSettings
from streams.config.post_settings import PostSettings
from streams.config.section import contradictions_in, raise_contradictions, values_alone
from streams.config.setting_types import ClusterName, ListenHost
from streams.config.settings import (
    Contradiction,
    CorrelatorSettings,
    DetectorSettings,
    InventorySettings,
    KafkaSettings,
    ResponderSettings,
)
from streams.config.slurm_settings import SlurmSettings
from streams.config.ticket_settings import JiraSettings, TicketSettings
from streams.config.tracing_settings import TracingSettings
from streams.kafka.lease import MARGIN_S, longest_s
from streams.model.errors import ConfigError
from streams.telemetry.redaction import know, secrets_of


class Settings(BaseSettings):
    """Everything that can be set. `faultline config check` prints it."""

    model_config = SettingsConfigDict(
        env_prefix="FAULTLINE_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    cluster: ClusterName = Field("default", description="name of this cluster in every record")
    log_format: Literal["auto", "json", "line"] = Field(
        "auto", description="auto: a readable line on a terminal, else JSON"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="minimum log level")
    http_port: int = Field(
        0, ge=0, le=65535, description="port of /live and /ready of a process; 0 switches them off"
    )
    reload_s: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="how often a process looks whether settings, runbooks and catalog have changed; 0: never",
    )
    http_host: ListenHost = Field("127.0.0.1", description="address they listen on")
    kafka: KafkaSettings = KafkaSettings()
    detector: DetectorSettings = DetectorSettings()
    inventory: InventorySettings = InventorySettings()
    correlator: CorrelatorSettings = CorrelatorSettings()
    responder: ResponderSettings = ResponderSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    node_work: NodeWorkSettings = NodeWorkSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    slurm: SlurmSettings = SlurmSettings()
    slack: SlackSettings = SlackSettings()
    tickets: TicketSettings = TicketSettings()
    jira: JiraSettings = JiraSettings()
    notifier: NotifierSettings = NotifierSettings()
    posts: PostSettings = PostSettings()
    gateway: GatewaySettings = GatewaySettings()
    console: ConsoleSettings = ConsoleSettings()
    archive: ArchiveSettings = ArchiveSettings()
    tracing: TracingSettings = TracingSettings()

    def contradictions(self) -> Iterator[Contradiction]:
        """The lease of a frozen responder must have expired when another one takes over, including clock skew; and a sink of the
        notifier that posts needs its section of `posts`."""
        lease_s, longest = self.responder.lease_s, longest_s(self.kafka)
        keys = ("responder.lease_s", "kafka.session_timeout_ms")
        if lease_s <= MARGIN_S:
            yield (
                keys[:1],
                f"{lease_s:g} s must exceed the {MARGIN_S:g} s reserved for clock skew",
            )
        elif lease_s > longest:
            yield (
                keys,
                f"{lease_s:g} s is too long for kafka.session_timeout_ms {self.kafka.session_timeout_ms}: "
                "a frozen responder could still act when another one has taken over; "
                f"set it to {longest:g} or less, or make the session longer",
            )
        unset = {
            "email": ("posts.email.host", not self.posts.email.host),
            "teams": ("posts.teams.url", self.posts.teams.url is None),
            "webhook": ("posts.webhook.url", self.posts.webhook.url is None),
            "apprise": ("posts.apprise.urls", not self.posts.apprise.urls),
        }
        for name, sink in self.notifier.sinks.items():
            key, is_unset = unset.get(sink.kind, ("", False))
            if is_unset:
                yield (key, f"notifier.sinks.{name}.kind"), f"not set, and notifier.sinks.{name} needs it"

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        raise_contradictions(self.contradictions())
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
        """Environment over file: the file arrives as init values, so the usual order is reversed."""
        return EnvironmentAndFiles(settings_cls, _variables()), init_settings


class _WithoutEnvironment(Settings):
    """Settings from values that already include the environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The values alone."""
        return (init_settings,)


def load(path: Path | None = None) -> Settings:
    """Read the file (`path`, else `FAULTLINE_CONFIG`, else none) and the environment.

    Raises:
        ConfigError: naming every wrong key, where it came from, and what would be right.
    """
    settings, faults = examined(path)
    if settings is None or faults:
        named = settings_file(path)
        source = f"{named} and the environment" if named else "the environment"
        raise ConfigError(f"settings from {source} are not usable:\n" + "\n".join(faults))
    return settings


def load_reach(path: Path | None = None) -> tuple[Settings, list[str]]:
    """`cluster` and `kafka` alone where other settings are not usable, and a line for each fault: enough to give a command, above
    all the one that stops everything, while the processes go on with the settings from before. A file that is no YAML needs both
    as variables.

    Raises:
        ConfigError: where these two are not usable either.
    """
    named = settings_file(path)
    is_read = True
    try:
        settings, faults = examined(path)
        root, values = _read_file(named) if named else (None, {})
    except ConfigError as error:
        settings, faults, root, values, is_read = None, [f"  {error}"], None, {}, False
    if settings is not None and not faults:
        return settings, []
    environment = _variables()
    told = _merged(values, EnvironmentAndFiles(Settings, environment)())
    reached = {key: told[key] for key in _REACH if key in told}
    kafka = reached.get("kafka")
    is_told = "cluster" in reached and isinstance(kafka, Mapping) and "bootstrap" in kafka
    # A default in place of a misspelt key would be another cluster's switch.
    sure = (
        is_read
        and not unknown_variables(Settings, environment)
        and told.keys() <= Settings.model_fields.keys()
    )
    if not (is_told or sure) or (root is not None and _says_two_things(root)):
        raise _not_reached(named, faults, told)
    try:
        with (
            values_alone()
        ):  # what contradicts a default of another section contradicts nothing that is used here
            reach = _WithoutEnvironment(**reached)
    except ValidationError:
        raise _not_reached(named, faults, told) from None
    know(secrets_of(reach))
    return reach, faults


_REACH = ("cluster", "kafka")


def _says_two_things(root: yaml.Node) -> bool:
    """Whether the file has a key of the broker or the cluster twice: which of the two is meant, nobody but its author knows."""
    given = [(str(key.value), value) for key, value in root.value if str(key.value) in _REACH]
    return len({key for key, _ in given}) < len(given) or any(list(twice(value)) for _, value in given)


def _not_reached(named: Path | None, faults: list[str], told: Mapping[str, Any]) -> ConfigError:
    """Why no command is given, and how it is: somebody who wants to stop everything has no time to mend a file."""
    lines = ["settings are not usable, and which cluster and broker are meant is not sure:", *faults]
    if named is not None:
        kafka = told.get("kafka")
        # All that the file says of the broker: without its prefix or its login the command would go elsewhere, or nowhere.
        said = kafka if isinstance(kafka, Mapping) else {}
        reach = {"bootstrap": None} | {key: said[key] for key in KafkaSettings.model_fields if key in said}
        given = " ".join(f"{PREFIX}KAFKA__{key.upper()}={_shown(key, value)}" for key, value in reach.items())
        lines.append(
            f"without this file, and without --config: env -u {SETTINGS_FILE} {PREFIX}CLUSTER=… {given} faultline …"
        )
    return ConfigError("\n".join(lines))


def _shown(key: str, value: object) -> str:
    """A value for a command line; a secret, or what is no single value, is left to be filled in."""
    if "Secret" in str(KafkaSettings.model_fields[key].annotation) or not isinstance(
        value, str | int | float
    ):
        return "…"
    return shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))


def examined(path: Path | None = None) -> tuple[Settings | None, list[str]]:
    """The settings, and a line for each fault in them. With faults, the settings are those without the wrong values, to look at
    what else they name and not to work with; None where too little is left.

    Raises:
        ConfigError: when the file cannot be read or is no mapping.
    """
    named = settings_file(path)
    root, values = _read_file(named) if named else (None, {})
    told = _variables()
    faults = unknown_variables(Settings, told) + (list(twice(root)) if root is not None else [])
    settings: Settings | None = None
    try:
        settings = Settings(**values)
    except SettingsError as error:
        faults += no_json(Settings, told) or [f"  {error}"]
    except ValidationError as error:
        faults += fault_lines(error, Settings, root)
        further, settings = _further(error, values, root)
        faults += [line for line in further if line not in faults]
    if settings is not None:
        # Here, because whoever holds secrets has read them here: from now on they are in nothing that is logged or printed.
        know(secrets_of(settings))
    return settings, faults


def _variables() -> dict[str, str]:
    return variables({f"{PREFIX}{name.replace('.', '__').upper()}" for name in every_key(Settings)})


def settings_file(path: Path | None) -> Path | None:
    """The settings file: `path`, else the one of `FAULTLINE_CONFIG`; None without one."""
    return path or (Path(told) if (told := os.environ.get(SETTINGS_FILE)) else None)


def is_empty(path: Path) -> bool:
    """Whether a settings file says nothing at all: no text, or only comments. False where it cannot be read."""
    try:
        return _read_file(path)[0] is None
    except ConfigError:
        return False


def edited(settings: Settings, pairs: Sequence[str]) -> Settings:
    """Settings with other values: each pair is `KEY=VALUE`, the key as in the file (`responder.kill_switch`), the value YAML.

    Raises:
        ConfigError: naming every pair that is wrong, and what would be right.
    """
    faults: list[str] = []
    values: dict[str, Any] = settings.model_dump(exclude_unset=True)
    for pair in pairs:
        key, equals, text = pair.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            faults.append(f"  {key}: {text!r} is no YAML: {' '.join(str(error).split())}")
            continue
        if not equals or not key:
            faults.append(f"  {pair}: expected KEY=VALUE")
            continue
        for part in reversed(key.split(".")):
            value = {part: value}
        values = _merged(values, value)
    try:
        made = _WithoutEnvironment(**values)
    except ValidationError as error:
        faults += fault_lines(error, Settings, None)
        faults += [line for line in _further(error, values, None)[0] if line not in faults]
    if faults:
        raise ConfigError("settings that are set are not usable:\n" + "\n".join(faults))
    return made


def _further(
    error: ValidationError, values: Mapping[str, Any], root: yaml.Node | None
) -> tuple[list[str], Settings | None]:
    """Contradictions among the valid values, and settings of these alone.

    pydantic looks for contradictions only where all values of a section, and of all sections in it, are valid and go together.
    """
    left, wrong, found = (
        _merged(values, EnvironmentAndFiles(Settings, _variables())()),
        wrong_values(error),
        list[str](),
    )
    new = wrong
    for _ in range(_LOOKS):
        for path in new:  # what was taken out before misses nothing: its whole section would go
            _take_out(left, path)
        try:
            with values_alone():
                whole = _WithoutEnvironment(**left)
        except ValidationError as further:
            found += fault_lines(further, Settings, root, besides=wrong)
            new = wrong_values(further)
            wrong = [*wrong, *new]
        else:
            return found + contradiction_lines(contradictions_in(whole), root, besides=wrong), whole
    return found, None


_LOOKS = 5
"""How often settings are validated again without the wrong values: a row that misses what was taken out of it goes as a whole."""


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        both[key] = (
            _merged(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
        )
    return deepcopy(both)


def _take_out(values: Any, path: Sequence[int | str]) -> None:
    """Remove the value at a path, or what misses it. Items of lists keep their places: an item goes with its whole list."""
    steps: list[tuple[Any, int | str]] = []
    for part in path:
        if not _has(values, part):
            break
        steps.append((values, part))
        values = values[part]
    while steps and isinstance(steps[-1][0], list):
        steps.pop()
    if steps:
        holder, key = steps[-1]
        del holder[key]


def _has(values: Any, part: int | str) -> bool:
    if isinstance(values, list):
        return isinstance(part, int) and part < len(values)
    return isinstance(values, dict) and part in values


def _read_file(path: Path) -> tuple[yaml.Node | None, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        loader = yaml.SafeLoader(text)  # for line numbers of keys, which the values do not have
        loader.name = str(path)
        root = loader.get_single_node()
        if root is not None and expanded_size(root) > MAX_NODES:
            raise ConfigError(
                f"settings file {path}: more than {MAX_NODES} values once its aliases are followed"
            )
        content = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"cannot read settings file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {path} is not YAML: {error}") from error
    if content is None:
        return None, {}
    if not isinstance(content, dict):
        raise ConfigError(f"settings file {path}: the top level must be a mapping of keys")
    return root, {str(key): value for key, value in content.items()}
