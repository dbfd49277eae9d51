"""Each ticket system as its tests need it: a stand-in, a connector for it, and what is there as the system itself sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import SecretStr

from connectors.base import Effect
from connectors.tickets.desk import TicketDesk
from connectors.tickets.systems import ticket_desk
from sandbox.fake_services.github import GitHubStandin
from sandbox.fake_services.gitlab import GitLabStandin
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.jira_data_center import JiraDataCenterStandin
from sandbox.fake_services.server import Standin
from sandbox.fake_services.servicenow import ServiceNowStandin
from streams.config.ticket_settings import JiraSettings, TicketSettings
from streams.model.hardware_evidence import HardwareEvidence, Observation
from streams.model.run import Target

INCIDENT = "inc-0123456789abcdef"
NOW = datetime(2026, 11, 25, 3, 0, tzinfo=UTC)
TOKEN = SecretStr("standin-token")
CONTEXT = {
    "title": "GPU fell off the bus",
    "reason": "XID 79 on node-07",
    "family": "gpu_off_bus",
    "root": "GPU 0000:1b:00 on node-07",
    "node": "node-07",
}

PROOF = HardwareEvidence(
    "inc-1", "c1", "GPU fell off the bus", "XID 79", "gpu_off_bus", "decisive", NOW, "GPU", "node-07",
    uuid="GPU-1b", xids=(Observation(NOW, "gpu.xid: XID 79", "79", lines=("NVRM: Xid (PCI:0000:1b:00): 79",)),),
)  # fmt: skip


def effect(
    action: str,
    key: str,
    *,
    incident: str = INCIDENT,
    context: Mapping[str, Any] | None = None,
    **params: str,
) -> Effect:
    return Effect(
        key=key,
        action=action,
        target=Target("Ticket", incident),
        cluster="c1",
        incident=incident,
        run="run-1",
        step=action,
        params=params,
        context=CONTEXT if context is None else context,
    )


@dataclass
class Seen:
    """One ticket as its system shows it."""

    title: str
    body: str
    comments: list[str]
    open: bool
    found_by: str
    """Everything that it could be found by."""
    files: dict[str, bytes]
    file_names: list[str]
    """The names of the files, one that is there twice twice."""


class World:
    """A system with a stand-in. `connector` talks to `url`, which may be a proxy's."""

    name = ""

    def __init__(self, standin: Standin) -> None:
        self.server = standin

    def settings(self, url: str, timeout_s: float) -> tuple[dict[str, Any], JiraSettings]:
        """The settings `tickets` (as a mapping) and `jira`."""
        raise NotImplementedError

    def connector(
        self,
        url: str,
        *,
        timeout_s: float = 3.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], datetime] = lambda: NOW,
        console_url: str | None = None,
        **tickets: Any,
    ) -> TicketDesk:
        own, jira = self.settings(url, timeout_s)
        chosen = TicketSettings.model_validate(own | tickets)
        desk = ticket_desk(chosen, jira, console_url=console_url, sleep=sleep, clock=clock)
        assert desk is not None
        return desk

    def seen(self) -> list[Seen]:
        """All tickets, oldest first."""
        raise NotImplementedError

    def hide(self, number: int = 0) -> None:
        """The marks of a ticket go, as a rule or a person takes them off."""
        raise NotImplementedError

    def take_on(self) -> None:
        """A person takes the first ticket on."""
        raise NotImplementedError

    def close_by_hand(self) -> None:
        """A person closes the first ticket."""
        raise NotImplementedError


class JiraWorld(World):
    name = "jira"
    server: JiraStandin

    def settings(self, url: str, timeout_s: float) -> tuple[dict[str, Any], JiraSettings]:
        user = self.server.user if self.name == "jira" else ""
        jira = JiraSettings(base_url=url, user=user, token=TOKEN, timeout_s=timeout_s, search_lag_s=0.05)
        return {"system": self.name}, jira

    def seen(self) -> list[Seen]:
        return [
            Seen(
                i.summary,
                str(i.fields["description"]),
                [str(comment) for comment in i.comments],
                i in self.server.open_issues(),
                " ".join(i.labels),
                {one.name: one.content for one in i.attachments},
                [one.name for one in i.attachments],
            )
            for i in self.server.issues
        ]

    def hide(self, number: int = 0) -> None:
        self.server.issues[number].fields["labels"] = []

    def take_on(self) -> None:
        self.server.issues[0].status = "In Progress"

    def close_by_hand(self) -> None:
        self.server.issues[0].status = "Done"
        self.server.issues[0].closed_at = NOW


class JiraDataCenterWorld(JiraWorld):
    name = "jira-dc"


class ServiceNowWorld(World):
    name = "servicenow"
    server: ServiceNowStandin
    table = "incident"

    def settings(self, url: str, timeout_s: float) -> tuple[dict[str, Any], JiraSettings]:
        own = {
            "base_url": url,
            "user": "faultline",
            "token": TOKEN,
            "table": self.table,
            "timeout_s": timeout_s,
            "search_lag_s": 0.05,
        }
        return {"system": "servicenow", "servicenow": own}, JiraSettings()

    def seen(self) -> list[Seen]:
        return [
            Seen(
                r.fields["short_description"],
                r.fields["description"],
                r.notes,
                r.state not in ("6", "7", "8"),
                f"{r.fields.get('correlation_id')} {r.fields.get('correlation_display')}",
                {one.name: one.content for one in r.attachments},
                [one.name for one in r.attachments],
            )
            for r in self.server.records
        ]

    def hide(self, number: int = 0) -> None:
        self.server.records[number].fields |= {"correlation_id": "", "correlation_display": ""}

    def take_on(self) -> None:
        self.server.records[0].fields["state"] = "2"

    def close_by_hand(self) -> None:
        self.server.records[0].fields |= {"state": "6", "resolved_at": f"{NOW:%Y-%m-%d %H:%M:%S}"}


def _files(comments: Iterable[str]) -> dict[str, bytes]:
    found = [text.encode() for text in comments if "faultline-file-evidence-txt" in text]
    return {"evidence.txt": found[0]} if found else {}


class GitHubWorld(World):
    name = "github"
    server: GitHubStandin

    def settings(self, url: str, timeout_s: float) -> tuple[dict[str, Any], JiraSettings]:
        own = {
            "base_url": url,
            "token": TOKEN,
            "repository": self.server.repository,
            "timeout_s": timeout_s,
            "search_lag_s": 0.05,
        }
        return {"system": "github", "github": own}, JiraSettings()

    def seen(self) -> list[Seen]:
        return [
            Seen(
                i.title,
                i.body,
                [text for text in i.comments.values() if "faultline-file-" not in text],
                i.state == "open",
                # An issue is found by its label, and only then by what is hidden in its body.
                f"{' '.join(i.labels)} {i.body if INCIDENT in str(i.labels) else ''}",
                _files(i.comments.values()),
                ["evidence.txt" for text in i.comments.values() if "faultline-file-" in text],
            )
            for i in self.server.issues
        ]

    def hide(self, number: int = 0) -> None:
        self.server.issues[number].labels = []

    def take_on(self) -> None:
        self.server.issues[0].assignees = ["a-person"]

    def close_by_hand(self) -> None:
        self.server.issues[0].state, self.server.issues[0].closed_at = "closed", NOW


class GitLabWorld(World):
    name = "gitlab"
    server: GitLabStandin

    def settings(self, url: str, timeout_s: float) -> tuple[dict[str, Any], JiraSettings]:
        own = {
            "base_url": url,
            "token": TOKEN,
            "project": self.server.project,
            "timeout_s": timeout_s,
            "search_lag_s": 0.05,
        }
        return {"system": "gitlab", "gitlab": own}, JiraSettings()

    def seen(self) -> list[Seen]:
        return [
            Seen(
                i.title,
                i.description,
                [n.body for n in i.notes if not n.system and "faultline-file-" not in n.body],
                i.state == "opened",
                f"{' '.join(i.labels)} {i.description if INCIDENT in str(i.labels) else ''}",
                {
                    url.rpartition("/")[2]: content
                    for url, content in self.server.uploads.items()
                    if any(url in note.body for note in i.notes)
                },
                [n.body.partition("]")[0][1:] for n in i.notes if "faultline-file-" in n.body],
            )
            for i in self.server.issues
        ]

    def hide(self, number: int = 0) -> None:
        self.server.issues[number].labels = []

    def take_on(self) -> None:
        self.server.issues[0].assignee_ids = [99]

    def close_by_hand(self) -> None:
        self.server.issues[0].state, self.server.issues[0].closed_at = "closed", NOW


WORLDS: dict[str, Callable[[], World]] = {
    "jira": lambda: JiraWorld(JiraStandin(now=lambda: NOW)),
    "jira-dc": lambda: JiraDataCenterWorld(JiraDataCenterStandin(now=lambda: NOW)),
    "servicenow": lambda: ServiceNowWorld(ServiceNowStandin(now=lambda: NOW)),
    "github": lambda: GitHubWorld(GitHubStandin(now=lambda: NOW)),
    "gitlab": lambda: GitLabWorld(GitLabStandin(now=lambda: NOW)),
}
