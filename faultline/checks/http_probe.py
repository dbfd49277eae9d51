"""What chat, ticket systems and pagers say to our tokens: who they are, what they may, until when, and what time it is there.

Only requests that change nothing. A routing key of a pager cannot be tried without waking somebody: its form is all that is
checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from connectors.http import http_client
from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_probe import MAX_SKEW_S
from faultline.runtime.settings import Settings
from streams.config.notifier_settings import SinkSettings
from streams.model.clock import parse_rfc3339, to_the_second, utc_now
from streams.model.errors import BadInput, Unreachable

TIMEOUT_S = 4.0
"""Less than what a probe may take, so that it can say who did not answer."""

SOON = timedelta(days=14)
"""A token that expires sooner is a warning."""

SLACK_SCOPES = frozenset({"chat:write"})
"""What posting needs; the scope of the history depends on the channel, which is asked for."""

Probe = Callable[[], Awaitable[list[CheckFinding]]]


def service_probes(settings: Settings, processes: tuple[str, ...]) -> Iterator[tuple[str, Probe]]:
    """A name and a probe for each service that these processes call."""
    if "chat" in processes and settings.slack.token is not None:
        yield "slack", lambda: _slack(settings)
    if "responder" in processes and (ticket := _ticket_probe(settings)) is not None:
        yield ticket
    if "notifier" in processes:
        for name, sink in settings.notifier.sinks.items():
            if (probe := _sink_probe(name, sink)) is not None:
                yield f"notifier.sinks.{name}", probe


async def asked(
    where: str, base_url: str, path: str, *, headers: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None, params: Mapping[str, Any] | None = None,
) -> tuple[httpx.Response, list[CheckFinding]]:  # fmt: skip
    """The answer to one GET, and what its status and its date say.

    Raises:
        Unreachable: when the service does not answer, or with a server error.
    """
    async with http_client(base_url, timeout_s=TIMEOUT_S, headers=headers, auth=auth) as client:
        try:
            response = await client.get(path, params=params)
        except httpx.RequestError as error:
            raise Unreachable(
                f"{where}: {base_url} does not answer: {type(error).__name__} {error}".rstrip()
            ) from error
    if response.status_code >= 500 or response.status_code == 429:
        raise Unreachable(f"{where}: {base_url} answers {response.status_code}")
    found = []
    if response.status_code == 401:
        found.append(
            CheckFinding("fault", where, "the token is not accepted (401)", "set a token that is valid")
        )
    elif response.status_code == 403:
        found.append(
            CheckFinding("fault", where, "the token may not do this (403)", "give its owner the right to")
        )
    elif response.status_code >= 300:
        what = f"{base_url}/{path} answers {response.status_code}"
        found.append(CheckFinding("fault", where, what, "check the address and the names in this section"))
    return response, [*found, *clock_finding(where, response.headers.get("Date"), utc_now())]


def clock_finding(where: str, date: str | None, now: datetime) -> Iterator[CheckFinding]:
    """A finding where a Date header differs from our clock. It counts whole seconds, so one more is allowed."""
    try:
        there = parsedate_to_datetime(date) if date else None
    except ValueError:
        there = None
    if there is None:
        return
    off_s = ((there if there.tzinfo else there.replace(tzinfo=UTC)) - now).total_seconds()
    if off_s > MAX_SKEW_S or off_s < -MAX_SKEW_S - 1:
        what = f"its clock is {abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} this machine's"
        yield CheckFinding(
            "fault", f"clock of {where}", what, "synchronise this machine's clock (chrony, NTP)"
        )


async def _slack(settings: Settings) -> list[CheckFinding]:
    slack, headers = settings.slack, _bearer(settings.slack.token)
    response, found = await asked("slack.token", slack.base_url, "auth.test", headers=headers)
    answer = _object(response)
    if answer.get("ok") is not True:
        what = f"Slack says {answer.get('error', response.status_code)}"
        return [
            *found,
            CheckFinding("fault", "slack.token", what, "install the app again and set its bot token"),
        ]
    scopes = response.headers.get("x-oauth-scopes")
    lacking = SLACK_SCOPES - {s.strip() for s in scopes.split(",")} if scopes is not None else frozenset()
    if lacking:
        what = f"the app lacks the scope {', '.join(sorted(lacking))}"
        found.append(
            CheckFinding("fault", "slack.token", what, "add it to the app and install the app again")
        )
    for channel in dict.fromkeys((slack.channel, *(route.channel for route in slack.routes))):
        params = {"channel": channel, "limit": "1"}
        response, more = await asked(
            "slack.channel", slack.base_url, "conversations.history", headers=headers, params=params
        )
        found += more
        answer = _object(response)
        if answer.get("ok") is not True:
            needs = f", it needs {answer['needed']}" if "needed" in answer else ""
            what = f"{channel}: Slack says {answer.get('error', response.status_code)}{needs}"
            found.append(
                CheckFinding(
                    "fault", "slack.channel", what, "invite the app to the channel, and give it its scopes"
                )
            )
    return found


def _ticket_probe(settings: Settings) -> tuple[str, Probe] | None:
    match settings.tickets.system:
        case "jira" | "jira-dc" if settings.jira.base_url:
            return "jira", lambda: _jira(settings)
        case "servicenow" if settings.tickets.servicenow.base_url:
            return "tickets.servicenow", lambda: _servicenow(settings)
        case "github":
            return "tickets.github", lambda: _github(settings)
        case "gitlab":
            return "tickets.gitlab", lambda: _gitlab(settings)
        case _:
            return None


async def _jira(settings: Settings) -> list[CheckFinding]:
    jira, cloud = settings.jira, settings.tickets.system == "jira"
    root = f"rest/api/{3 if cloud else 2}"
    token = jira.token.get_secret_value() if jira.token else ""
    bearer = not cloud and not jira.user
    login: dict[str, Any] = {"headers": _bearer(jira.token)} if bearer else {"auth": (jira.user, token)}
    base_url = str(jira.base_url)
    response, found = await asked("jira.token", base_url, f"{root}/myself", **login)
    if not response.is_success:
        return found
    params = {"projectKey": jira.project, "permissions": "CREATE_ISSUES"}
    response, more = await asked("jira.project", base_url, f"{root}/mypermissions", params=params, **login)
    right = _object(response).get("permissions", {}).get("CREATE_ISSUES", {})
    if response.is_success and right.get("havePermission") is False:
        what = f"{jira.user or 'the token'} may not create issues in project {jira.project}"
        more.append(CheckFinding("fault", "jira.project", what, "give its owner Create Issues there"))
    return found + more


async def _servicenow(settings: Settings) -> list[CheckFinding]:
    wanted = settings.tickets.servicenow
    token = wanted.token.get_secret_value() if wanted.token else ""
    login: dict[str, Any] = (
        {"auth": (wanted.user, token)} if wanted.user else {"headers": _bearer(wanted.token)}
    )
    path, params = f"api/now/table/{wanted.table}", {"sysparm_limit": "1", "sysparm_fields": "sys_id"}
    return (await asked("tickets.servicenow", str(wanted.base_url), path, params=params, **login))[1]


async def _github(settings: Settings) -> list[CheckFinding]:
    wanted = settings.tickets.github
    response, found = await asked(
        "tickets.github", wanted.base_url, f"repos/{wanted.repository}", headers=_bearer(wanted.token)
    )
    until = response.headers.get("github-authentication-token-expiration")
    return [*found, *expiry("tickets.github.token", until, utc_now())]


async def _gitlab(settings: Settings) -> list[CheckFinding]:
    wanted, where = settings.tickets.gitlab, "tickets.gitlab.token"
    headers = {"PRIVATE-TOKEN": wanted.token.get_secret_value() if wanted.token else ""}
    response, found = await asked(
        where, wanted.base_url, "api/v4/personal_access_tokens/self", headers=headers
    )
    about = _object(response)
    if response.is_success:
        found += expiry(where, about.get("expires_at"), utc_now())
        if "api" not in about.get("scopes", ["api"]):
            found.append(
                CheckFinding("fault", where, "it lacks the scope api", "make a token with the scope api")
            )
        path = f"api/v4/projects/{quote(wanted.project, safe='')}/issues"
        found += (
            await asked(
                "tickets.gitlab.project", wanted.base_url, path, headers=headers, params={"per_page": "1"}
            )
        )[1]
    return found


def expiry(where: str, until: object, now: datetime) -> Iterator[CheckFinding]:
    """A finding where a token has expired or soon will. `until` is a date or a time, in the vendor's form; None: not told."""
    if (at := _time(until)) is None or at > now + SOON:
        return
    past = at <= now
    what = f"the token {'expired' if past else 'expires'} at {to_the_second(at)}"
    yield CheckFinding("fault" if past else "warning", where, what, "make a new token and set it")


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    for form in ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S %z"):
        try:
            found = datetime.strptime(text, form)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        return parse_rfc3339(text)
    except BadInput:
        return None


def _sink_probe(name: str, sink: SinkSettings) -> Probe | None:
    where = f"notifier.sinks.{name}"
    token, key = sink.api_token, sink.key
    probe: dict[str, Any]
    match sink.kind:
        case "pagerduty" if token is not None:
            headers = {"Authorization": f"Token token={token.get_secret_value()}"}
            probe = {
                "base_url": sink.api_url or "https://api.pagerduty.com",
                "path": "incidents",
                "headers": headers,
            }
        case "jsm" if token is not None and sink.api_url is not None:
            probe = {
                "base_url": sink.api_url,
                "path": "v1/alerts",
                "auth": (sink.api_user, token.get_secret_value()),
            }
        case "alertmanager":
            probe = {
                "base_url": str(sink.url),
                "path": "api/v2/silences",
                "headers": _bearer(key) if key else {},
            }
        case "grafana":
            probe = {"base_url": str(sink.url), "path": "api/annotations", "headers": _bearer(key)}
        case _:
            return None
    limit = {"pagerduty": {"limit": "1"}, "jsm": {"size": "1"}, "grafana": {"limit": "1"}}.get(sink.kind)

    async def ask() -> list[CheckFinding]:
        return (await asked(where, params=limit, **probe))[1]

    return ask


def _bearer(token: SecretStr | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token.get_secret_value() if token else ''}"}


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
