"""Settings of tickets: which system they are opened in, what is put into its fields, and how each system is reached."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, SecretStr, field_validator

from streams.config.setting_types import Name, ProjectKey, Url
from streams.config.settings import Contradiction, Section
from streams.model.similar import suggestion

TICKET_FACTS = (
    "incident",
    "cluster",
    "run",
    "step",
    "title",
    "reason",
    "family",
    "severity",
    "certainty",
    "root",
    "node",
    "gpu_pci",
    "gpu_uuid",
    "gpu_index",
    "jobs",
    "runbook",
)
"""What a value of `tickets.fields` may name in braces."""

OWN_FIELDS = {
    "jira": ("project", "summary", "description"),
    "jira-dc": ("project", "summary", "description"),
    "servicenow": ("short_description", "description", "correlation_id", "correlation_display", "state"),
    "github": ("title", "body", "state"),
    "gitlab": ("title", "description", "state_event"),
}
"""Fields of each system that say what the ticket is and by what it is found."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")


def braces_in(text: str) -> Iterator[str]:
    """The names in braces of a value of `tickets.fields`.

    Raises:
        ValueError: a brace without its other half, or more than a name between them.
    """
    for _, name, form, conversion in Formatter().parse(text):
        if name is None:
            continue
        if form or conversion or not name.isidentifier():
            raise ValueError(f"{text!r}: braces hold one name, e.g. {{node}}; write {{{{ for a brace")
        yield name


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts_in(inner)


def _field_value(value: Any) -> Any:
    """A value whose braces name known facts only: a typo is found at start and not when the first ticket is due."""
    for text in _texts_in(value):
        for name in braces_in(text):
            if name not in TICKET_FACTS:
                hint = suggestion(name, TICKET_FACTS) or f"; known are {', '.join(TICKET_FACTS)}"
                raise ValueError(f"{{{name}}} is no fact of an incident{hint}")
    return value


def _repository(value: str) -> str:
    if value and not _REPOSITORY.fullmatch(value):
        raise ValueError(f"{value!r} is not a repository: OWNER/NAME, e.g. example/gpu-tickets")
    return value


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


FieldValue = Annotated[JsonValue, AfterValidator(_field_value)]


class JiraSettings(Section):
    """One issue per incident, in Jira Cloud or Jira Data Center. Without a base URL no ticket is opened there."""

    base_url: Url | None = Field(None, description="https://SITE.atlassian.net, or where Data Center is")
    user: str = Field(
        "",
        description="e-mail address of the token's owner; empty for a personal access token of Data Center",
    )
    token: SecretStr | None = Field(None, description="API token")
    project: ProjectKey = Field("GPU", description="key of the project for the issues")
    issue_type: Name = Field("Task", description="name of the issue type")
    done_transition: Name = Field("Done", description="name of the transition that closes an issue")
    reopen_transition: Name = Field(
        "To Do", description="name of the transition that reopens one, with tickets.reopen_within_h"
    )
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")
    search_lag_s: float = Field(
        5.0, ge=0, le=600, description="pause between two searches for an issue that may exist"
    )

    _none_when_empty = field_validator("base_url", "token", mode="before")(_none_when_empty)


class ServiceNowSettings(Section):
    """One incident or change request per incident, by the Table API."""

    base_url: Url | None = Field(None, description="https://INSTANCE.service-now.com")
    user: str = Field("", description="user with the right to write the table; empty for a bearer token")
    token: SecretStr | None = Field(None, description="the user's password, or a bearer token without a user")
    table: Literal["incident", "change_request"] = Field("incident", description="table of the tickets")
    close_state: str = Field("", description="value of `state` when closed; 6 or 3, as the table has it")
    withdraw_state: str = Field("", description="value of `state` when withdrawn; 8 or 4")
    reopen_state: str = Field("", description="value of `state` when reopened; 2 or -1")
    close_code: str = Field(
        "Solved (Permanently)", description="close code; the choices differ between instances"
    )
    timeout_s: float = Field(15.0, gt=0, le=300, description="timeout of one request")
    search_lag_s: float = Field(
        2.0, ge=0, le=600, description="pause between two searches for a ticket that may exist"
    )

    _none_when_empty = field_validator("base_url", "token", mode="before")(_none_when_empty)


class GitHubSettings(Section):
    """One issue per incident in a repository."""

    base_url: Url = Field(
        "https://api.github.com", description="the API; https://HOST/api/v3 of an Enterprise Server"
    )
    token: SecretStr | None = Field(None, description="token that may write issues")
    repository: Annotated[str, AfterValidator(_repository)] = Field("", description="OWNER/NAME")
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")
    search_lag_s: float = Field(
        5.0, ge=0, le=600, description="pause between two looks for an issue that may exist"
    )

    _none_when_empty = field_validator("token", mode="before")(_none_when_empty)


class GitLabSettings(Section):
    """One issue per incident in a project."""

    base_url: Url = Field("https://gitlab.com", description="where GitLab is")
    token: SecretStr | None = Field(None, description="project or personal access token with the scope `api`")
    project: str = Field("", description="id of the project, or its path: GROUP/NAME")
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")
    search_lag_s: float = Field(
        2.0, ge=0, le=600, description="pause between two looks for an issue that may exist"
    )

    _none_when_empty = field_validator("token", mode="before")(_none_when_empty)


class TicketSettings(Section):
    """One ticket per incident in one system. The section `jira` says how the two kinds of Jira are reached."""

    system: Literal["jira", "jira-dc", "servicenow", "github", "gitlab"] = Field(
        "jira", description="where tickets are opened, once that system is configured"
    )
    fields: Mapping[str, FieldValue] = Field(
        {}, description="further fields of a new ticket; {node} and other facts of the incident are filled in"
    )
    reopen_within_h: float = Field(
        0.0,
        ge=0,
        le=8760,
        description="a fault that comes back within this time reopens its ticket; 0 opens another one",
    )
    evidence: bool = Field(True, description="attach the evidence of a hardware fault to its ticket")
    servicenow: ServiceNowSettings = ServiceNowSettings()
    github: GitHubSettings = GitHubSettings()
    gitlab: GitLabSettings = GitLabSettings()

    def contradictions(self) -> Iterator[Contradiction]:
        """A system that was chosen but not said where it is."""
        match self.system:
            case "servicenow" if self.servicenow.base_url is None:
                yield ("servicenow.base_url", "system"), "not set, and tickets.system is servicenow"
            case "github" if not self.github.repository:
                yield ("github.repository", "system"), "not set, and tickets.system is github"
            case "gitlab" if not self.gitlab.project:
                yield ("gitlab.project", "system"), "not set, and tickets.system is gitlab"
            case _:
                pass
        for name in OWN_FIELDS[self.system]:
            if name in self.fields:
                yield ("fields", "system"), f"{name} is written by Faultline itself"
        if self.system in ("jira", "jira-dc", "github") and isinstance(self.fields.get("labels"), str):
            yield ("fields", "system"), "labels is a list there, e.g. [hardware]"
        for name in ("servicenow", "github", "gitlab"):
            if self.system == name and getattr(self, name).token is None:
                yield (f"{name}.token", "system"), f"not set, and tickets.system is {name}"
