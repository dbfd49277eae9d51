"""Builds the connectors of the notifier's sinks from their settings, each with only the packages it needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from connectors.base import Connector
from faultline.notify.partition_notices import Sink
from faultline.runtime.settings import Settings
from streams.config.notifier_settings import SinkSettings


def open_sinks(settings: Settings, stack: AsyncExitStack) -> dict[str, Sink]:
    """The sinks by name; `stack` closes their connections.

    Raises:
        ConfigError: when a sink lacks what its kind needs.
    """
    sinks: dict[str, Sink] = {}
    for name, sink in settings.notifier.sinks.items():
        connector = _MAKERS[sink.kind](sink, settings)
        stack.push_async_callback(connector.close)
        sinks[name] = Sink(sink, connector)
    return sinks


def _pagerduty(sink: SinkSettings, _: Settings) -> Connector:
    from connectors.pager.pagerduty import PagerDuty

    return PagerDuty(sink)


def _jsm(sink: SinkSettings, _: Settings) -> Connector:
    from connectors.pager.jsm import JsmOperations

    return JsmOperations(sink)


def _alertmanager(sink: SinkSettings, _: Settings) -> Connector:
    from connectors.pager.alertmanager import AlertmanagerSilences

    return AlertmanagerSilences(sink)


def _grafana(sink: SinkSettings, _: Settings) -> Connector:
    from connectors.pager.grafana import GrafanaAnnotations

    return GrafanaAnnotations(sink)


def _email(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.email import Email

    return Email(settings.posts.email)


def _teams(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.teams import Teams

    return Teams(settings.posts.teams)


def _webhook(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.webhook import Webhook

    return Webhook(settings.posts.webhook)


def _apprise(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.apprise_post import ApprisePost

    return ApprisePost(settings.posts.apprise)


_MAKERS: dict[str, Callable[[SinkSettings, Settings], Connector]] = {
    "pagerduty": _pagerduty,
    "jsm": _jsm,
    "alertmanager": _alertmanager,
    "grafana": _grafana,
    "email": _email,
    "teams": _teams,
    "webhook": _webhook,
    "apprise": _apprise,
}
