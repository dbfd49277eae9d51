"""Settings of the external systems that connectors call: Kubernetes and Slack. Those of tickets are in `ticket_settings`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, StringConstraints, field_validator

from streams.config.power_settings import RedfishSettings, WorkHookSettings
from streams.config.setting_types import Channel, Namespace, Url
from streams.config.settings import Contradiction, Section
from streams.model.incident import Audience
from streams.model.signal import Severity


class KubernetesSettings(Section):
    """The API server."""

    kubeconfig: Path | None = Field(None, description="the pod's own service account when not set")
    context: str | None = Field(None, description="context of the kubeconfig; its current one when not set")
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")


class NodeWorkSettings(Section):
    """Jobs that reset a GPU, reboot a node or validate it. An action without a template is left to the operator."""

    namespace: Namespace = Field("faultline-node-work", description="where the Jobs are created")
    reset_gpu: Path | None = Field(None, description="template of the Job that resets the node's GPU")
    reboot_node: Path | None = Field(None, description="template of the Job that reboots the node")
    validate_node: Path | None = Field(
        None, description="template of the Job that says whether the node may be used again"
    )
    diagnostics: Path | None = Field(
        None,
        description="folder of diagnostics that a node has to pass, all in one session; in place of validate_node",
    )
    pairs: Path | None = Field(
        None,
        description="diagnostic that measures the bandwidth between two nodes: the action diagnose_nodes",
    )
    preflight_gate: bool = Field(
        False,
        description="faultline preflight takes the taint faultline.dev/preflight off a node that has passed",
    )
    object_templates: Path | None = Field(
        None, description="folder of templates for apply_template: objects that other controllers act on"
    )
    replace_node: str | None = Field(
        None, description="which of those templates replaces a node: the action replace_node"
    )
    redfish: RedfishSettings = RedfishSettings()
    hook: WorkHookSettings = WorkHookSettings()
    wait_for_others_s: float = Field(
        7200.0,
        gt=0,
        le=604800,
        description="how long a step waits for somebody else who works on the node (NVSentinel, medik8s, the cloud)",
    )

    def offers(self, action: str) -> bool:
        """Whether the action has a template."""
        return getattr(self, action, None) is not None or (
            (action == "validate_node" and self.diagnostics is not None)
            or (action == "diagnose_nodes" and self.pairs is not None)
            or (action == "apply_template" and self.object_templates is not None)
            or (action == "power_cycle_node" and self.redfish.is_set)
            or action in self.hook.actions
        )

    def contradictions(self) -> Iterator[Contradiction]:
        """Two ways to validate a node."""
        if self.validate_node is not None and self.diagnostics is not None:
            yield ("validate_node", "diagnostics"), "both are set: a node is validated by one of them"
        if self.replace_node is not None and self.object_templates is None:
            yield ("object_templates", "replace_node"), "not set, and replace_node names a template of it"
        for action, key, is_set in (
            ("power_cycle_node", "redfish", self.redfish.is_set),
            ("replace_node", "replace_node", self.replace_node is not None),
        ):
            if is_set and action in self.hook.actions:
                yield ("hook.actions", key), f"{action} is set up twice: there, and by node_work.{key}"


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


_TimeOfDay = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class BusinessHours(Section):
    """Hours of certain days of the week, e.g. those in which a team reads its channel."""

    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = Field(
        ("mon", "tue", "wed", "thu", "fri"), min_length=1, description="days on which the hours begin"
    )
    start: _TimeOfDay = Field("09:00", description="first minute, HH:MM")
    end: _TimeOfDay = Field(
        "18:00", description="minute at which they are over; earlier than the start: on the next day"
    )
    tz: str = Field("UTC", description="time zone, e.g. Europe/Vienna")

    def contradictions(self) -> Iterator[Contradiction]:
        """Hours of no length, or of a place that nobody knows."""
        if self.start == self.end:
            yield ("start", "end"), "the same, so the hours never begin"
        try:
            ZoneInfo(self.tz)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield ("tz",), "no time zone of that name"


class SlackRoute(Section):
    """Incidents that are told in another channel. All that is set has to fit; patterns are shell patterns."""

    channel: Channel = Field(min_length=1, description="channel id (C…)")
    cluster: str | None = Field(None, description="pattern of the cluster's name")
    namespace: str | None = Field(None, description="pattern of the namespace of any job that it affects")
    family: str | None = Field(None, description="pattern of the incident's family, e.g. gpu_*")
    severities: tuple[Severity, ...] = Field((), description="severities at the time when the thread begins")
    audience: Audience | None = Field(
        None,
        description="on_call, or owner: what nobody but a job's owner has to know. Not set: both where the route names a "
        "namespace or a family, else on_call",
    )
    hours: BusinessHours | None = Field(None, description="only in these hours")


class SlackSettings(Section):
    """One thread per incident in one channel. Without a token nothing is posted."""

    base_url: Url = Field("https://slack.com/api", description="where the Web API is")
    token: SecretStr | None = Field(None, description="bot token (xoxb-…)")
    channel: Channel = Field("", description="channel id (C…), not its name: ids survive a rename")
    app_token: SecretStr | None = Field(
        None,
        description="app-level token (xapp-…) for Socket Mode: buttons and commands without an open port",
    )
    signing_secret: SecretStr | None = Field(
        None, description="proves that a request over HTTP is Slack's; without it /slack/… is not served"
    )
    answer_within_s: float = Field(
        5.0,
        gt=0,
        le=60,
        description="how long a press waits for the responder before the person is told that none answered yet",
    )
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")
    history_lag_s: float = Field(
        2.0, ge=0, le=300, description="pause between two lookups of a message that may have been posted"
    )
    debounce_s: float = Field(
        1.0, ge=0, le=300, description="shortest time between two edits of a message's details"
    )
    posts_per_s: float = Field(
        1.0, ge=0.001, le=10_000, description="new messages per channel; Slack allows about one"
    )
    calls_per_minute: float = Field(
        50.0, ge=0.1, le=600_000, description="calls of any other method per channel; Slack's tier 3 is fifty"
    )

    tell_owners: bool = Field(
        False, description="tell the owner of a job in its thread when it is stopped, moved, or needs them"
    )
    owners_file: Path | None = Field(
        None, description="YAML list of rows: owner, namespace or job (patterns), and slack (U… or S…)"
    )
    routes: tuple[SlackRoute, ...] = Field(
        (), description="other channels, the first that fits; an incident keeps the channel that it began in"
    )
    blocks: Literal["rich", "classic"] = Field(
        "rich",
        description="how a run is shown: rich as a plan with a mark per step, classic as text, for clients without plans",
    )

    _none_when_empty = field_validator("token", "app_token", "signing_secret", "owners_file", mode="before")(
        _none_when_empty
    )

    @property
    def takes_answers(self) -> bool:
        """Whether a gateway takes in presses: buttons that nobody answers are worse than none."""
        return self.app_token is not None or self.signing_secret is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A token without a channel to post in, and answers without a token."""
        if self.token is not None and not self.channel:
            yield ("channel", "token"), "not set, and slack.token needs a channel to post in"
        if self.token is None and self.takes_answers:
            yield (
                ("token", "app_token", "signing_secret"),
                "not set, and people could press but not be answered",
            )
