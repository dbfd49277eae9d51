"""Settings of the external systems that connectors call: Kubernetes and Slack. Those of tickets are in `ticket_settings`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from streams.config.setting_types import Channel, Namespace, Url
from streams.config.settings import Contradiction, Section


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


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


class SlackSettings(Section):
    """One thread per incident in one channel. Without a token nothing is posted."""

    base_url: Url = Field("https://slack.com/api", description="where the Web API is")
    token: SecretStr | None = Field(None, description="bot token (xoxb-…)")
    channel: Channel = Field("", description="channel id (C…), not its name: ids survive a rename")
    signing_secret: SecretStr | None = Field(
        None, description="not used yet: interactive buttons are not supported"
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

    _none_when_empty = field_validator("token", "signing_secret", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """A token without a channel to post in."""
        if self.token is not None and not self.channel:
            yield ("channel", "token"), "not set, and slack.token needs a channel to post in"
