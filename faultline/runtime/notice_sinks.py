"""Builds the connectors of the notifier's sinks from their settings, each with only the packages it needs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from connectors.base import Connector
from faultline.runtime.settings import Settings
from streams.config.notifier_settings import SinkSettings
from streams.model.errors import ConfigError

if TYPE_CHECKING:
    from faultline.notify.partition_notices import Sink


def open_sinks(settings: Settings, stack: AsyncExitStack) -> dict[str, Sink]:
    """The sinks by name; `stack` closes their connections.

    Raises:
        ConfigError: when a sink lacks what its kind needs.
    """
    from faultline.notify.partition_notices import Sink

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

    if not settings.posts.email.host:
        raise ConfigError("notifier.sinks: a sink of kind email needs posts.email.host")
    return Email(settings.posts.email)


def _teams(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.teams import Teams

    if settings.posts.teams.url is None:
        raise ConfigError("notifier.sinks: a sink of kind teams needs posts.teams.url")
    return Teams(settings.posts.teams)


def _webhook(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.webhook import Webhook

    if settings.posts.webhook.url is None:
        raise ConfigError("notifier.sinks: a sink of kind webhook needs posts.webhook.url")
    return Webhook(settings.posts.webhook)


def _apprise(_: SinkSettings, settings: Settings) -> Connector:
    from connectors.posts.apprise_post import ApprisePost

    if not settings.posts.apprise.urls:
        raise ConfigError("notifier.sinks: a sink of kind apprise needs posts.apprise.urls")
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
