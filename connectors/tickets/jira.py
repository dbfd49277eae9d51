"""The connector for Jira tickets: the desk's policy over Jira Cloud or, with `cloud=False`, Jira Data Center."""

from __future__ import annotations

from typing import Any

from connectors.tickets.desk import TicketDesk
from connectors.tickets.jira_api import JiraApi
from streams.config.ticket_settings import JiraSettings


class Jira(TicketDesk):
    """`open_ticket`, `comment_ticket`, `close_ticket` in one project of Jira."""

    def __init__(self, settings: JiraSettings, *, cloud: bool = True, **policy: Any) -> None:
        super().__init__(JiraApi(settings, cloud=cloud), **policy)
