"""The ticket system that the settings choose, under the desk's policy."""

from __future__ import annotations

from typing import Any

from connectors.tickets.desk import TicketDesk
from connectors.tickets.github_api import GitHubApi
from connectors.tickets.gitlab_api import GitLabApi
from connectors.tickets.jira_api import JiraApi
from connectors.tickets.servicenow_api import ServiceNowApi
from connectors.tickets.ticket_api import TicketApi
from connectors.tickets.ticket_fields import TicketFields
from streams.config.ticket_settings import JiraSettings, TicketSettings


def ticket_desk(
    settings: TicketSettings, jira: JiraSettings, *, console_url: str | None = None, **policy: Any
) -> TicketDesk | None:
    """The connector of tickets; None where no system is configured. `policy` overrides what the desk would take.

    `console_url` is where people reach the console, for a link in each ticket.

    Raises:
        ConfigError: the chosen system lacks what it needs.
    """
    if (api := _api(settings, jira)) is None:
        return None
    chosen: dict[str, Any] = {
        "fields": TicketFields(settings.fields),
        "reopen_within_h": settings.reopen_within_h,
        "console_url": console_url or "",
        "evidence": settings.evidence,
    }
    return TicketDesk(api, **chosen | policy)


def _api(settings: TicketSettings, jira: JiraSettings) -> TicketApi | None:
    match settings.system:
        case "servicenow":
            return ServiceNowApi(settings.servicenow)
        case "github":
            return GitHubApi(settings.github, assignees=_names(settings.fields.get("assignees")))
        case "gitlab":
            return GitLabApi(settings.gitlab, assignees=_names(settings.fields.get("assignee_ids")))
        case "jira" | "jira-dc" if jira.base_url:
            return JiraApi(jira, cloud=settings.system == "jira")
        case _:
            return None


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else [str(value)] if value else []
