"""What every part of the gateway is built from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faultline.gateway.raw_records import RawRecords
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from runbooks.language.schema import Runbook
from streams.config.connector_settings import SlackSettings
from streams.config.console_settings import ConsoleSettings
from streams.config.gateway_settings import GatewaySettings
from streams.model.clock import Clock, utc_now


def _nothing(what: str) -> None:
    """The default for `count`."""


def _unnoticed(hook: str, outcome: str) -> None:
    """The default for `on_delivery`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """What every part of the gateway is built from. `cluster` is the one this installation is configured for."""

    settings: GatewaySettings
    view: LiveView
    decisions: Decisions
    records: RawRecords
    cluster: str
    slack: SlackSettings
    console: ConsoleSettings | None = None
    """None: only what other systems post is served."""
    runbooks: Sequence[Runbook] | None = None
    """What the console shows as loaded; the shipped ones where they are not known."""
    clock: Clock = utc_now
    count: Callable[[str], None] = _nothing
    """Counts something for the next status line in the log."""
    on_delivery: Callable[[str, str], None] = _unnoticed
    """Called with the hook of each delivery and what was answered: `accepted`, `refused` or `failed`."""
