"""What other systems post: alerts and events become raw records, what people do elsewhere becomes commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiohttp import web

from faultline.gateway.hooks.alertmanager import AlertmanagerWebhook
from faultline.gateway.hooks.events import EventsWebhook
from faultline.gateway.hooks.hook import Hook
from faultline.gateway.hooks.jira import JiraWebhook
from faultline.gateway.hooks.pagerduty import PagerDutyWebhook
from faultline.gateway.hooks.servicenow import ServiceNowWebhook
from faultline.gateway.limits import BodyBudget
from faultline.gateway.parts import GatewayParts

HOOKS: dict[str, Callable[[GatewayParts], Hook]] = {
    "alertmanager": AlertmanagerWebhook,
    "events": EventsWebhook,
    "pagerduty": PagerDutyWebhook,
    "jira": JiraWebhook,
    "servicenow": ServiceNowWebhook,
}
"""Each hook by its name in the settings and in its path."""


def routes(parts: GatewayParts) -> list[web.RouteDef]:
    """`/hooks/NAME` of every hook whose secret is set."""
    budget = BodyBudget(parts.settings.max_held_bytes)
    return [
        web.post(f"/hooks/{name}", partial(_receive, make(parts), budget))
        for name, make in HOOKS.items()
        if getattr(parts.settings, name).is_on
    ]


async def _receive(hook: Hook, budget: BodyBudget, request: web.Request) -> web.Response:
    return await hook.receive(request, budget)
