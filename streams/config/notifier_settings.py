"""Settings of the notifier: who is paged, which alarms are silenced, where incidents are drawn, who gets mail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, SecretStr, field_validator

from streams.config.cron import check_cron, check_zone, latest_cron
from streams.config.setting_types import ClusterName, Url
from streams.config.settings import DAY_S, Contradiction, Section
from streams.model.kinds import IncidentFamily
from streams.model.signal import Severity

SinkKind = Literal["pagerduty", "jsm", "alertmanager", "grafana", "email", "teams", "webhook", "apprise"]
PAGES: frozenset[str] = frozenset({"pagerduty", "jsm"})
POSTS: frozenset[str] = frozenset({"email", "teams", "webhook", "apprise"})

_SINK = re.compile(r"[a-z][a-z0-9-]{0,39}")
_MATCHER = re.compile(r'(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<how>=~|!~|!=|=)"(?P<value>[^"\n]{0,500})"')


def _sink_name(value: str) -> str:
    if not _SINK.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a name of a sink: lower-case letters, digits and hyphens, at most 40"
        )
    return value


def _matcher(value: str) -> str:
    found = _MATCHER.fullmatch(value)
    if found is None:
        raise ValueError(f'{value!r} is not a matcher, e.g. instance=~"{{node}}(:.*)?"')
    if found["how"] in ("=~", "!~"):
        try:
            re.compile(found["value"].replace("{node}", "n").replace("{cluster}", "c"))
        except re.error as error:
            raise ValueError(f"{value!r} is not a matcher: {error}") from error
    return value


def _none_when_empty(value: object) -> object:
    """An environment variable cannot unset what a file sets, only empty it."""
    return None if value == "" else value


def matcher_parts(matcher: str) -> tuple[str, str, str]:
    """Label, operator and value of a matcher that these settings accepted."""
    found = _MATCHER.fullmatch(matcher)
    assert found is not None
    return found["name"], found["how"], found["value"]


SinkName = Annotated[str, AfterValidator(_sink_name)]
"""Part of record keys."""
Matcher = Annotated[str, AfterValidator(_matcher)]
"""As Alertmanager writes one; `{node}` and `{cluster}` stand for their names."""


class OpenHours(Section):
    """When a sink may be told something new."""

    cron: str = Field(description="beginning: minute hour day-of-month month day-of-week")
    duration_s: float = Field(gt=0, le=7 * DAY_S, description="length")
    tz: str = Field("UTC", description="time zone of cron, e.g. Europe/Berlin")

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        check_cron(value)
        return value

    @field_validator("tz")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        return check_zone(value)

    def holds(self, now: datetime) -> bool:
        """Whether `now` is within it."""
        length = timedelta(seconds=self.duration_s)
        began = latest_cron(self.cron, now, ZoneInfo(self.tz), length)
        return began is not None and now < began + length


class SinkSettings(Section):
    """One sink. What its kind does not use is left out."""

    kind: SinkKind = Field(description="what it is; email, teams, webhook and apprise are set up in `posts`")
    clusters: tuple[ClusterName, ...] = Field((), description="only incidents of these; all when empty")
    families: tuple[IncidentFamily, ...] = Field((), description="only incidents of these; all when empty")
    namespaces: tuple[str, ...] = Field(
        (), description="only incidents that affect a job in one of these, patterns; all when empty"
    )
    severity: Severity = Field(Severity.WARNING, description="only incidents at least this bad")
    hours: tuple[OpenHours, ...] = Field(
        (),
        description="only then is anything new sent; always when empty. What was sent is updated and ended at any time",
    )
    url: Url | None = Field(
        None,
        description="base URL; pagerduty and jsm have their vendor's (Opsgenie: https://api.opsgenie.com); "
        "alertmanager and grafana need one",
    )
    key: SecretStr | None = Field(
        None,
        description="pagerduty: routing key; jsm: the integration's API key; alertmanager, grafana: bearer token",
    )
    api_url: Url | None = Field(
        None,
        description="jsm: https://api.atlassian.com/jsm/ops/api/CLOUD_ID; pagerduty: its REST API elsewhere",
    )
    api_user: str = Field("", description="jsm: e-mail address of the owner of api_token")
    api_token: SecretStr | None = Field(
        None, description="pagerduty, jsm: token that may read, to look up what became of a page"
    )
    page_shadow: bool = Field(
        False, description="pages: also for critical incidents that have a plan in shadow mode only"
    )
    group_window_s: float = Field(
        300.0,
        ge=0,
        le=DAY_S,
        description="pages, posts: what comes up in a cluster within this time is one page or mail",
    )
    settle_s: float = Field(
        60.0, ge=0, le=3600, description="posts, annotations: what is over sooner is not told"
    )
    matchers: tuple[Matcher, ...] = Field(
        ('instance=~"{node}(:.*)?"',),
        min_length=1,
        description="alertmanager: what a silence for a node matches, all together",
    )
    silence_s: float = Field(
        4 * 3600.0,
        ge=600,
        le=7 * DAY_S,
        description="alertmanager: a silence ends by itself after this time unless it is renewed",
    )
    created_by: str = Field(
        "faultline", min_length=1, max_length=100, description="alertmanager: author of our silences"
    )
    tags: tuple[str, ...] = Field((), description="grafana: more tags of each annotation")
    dashboard: str = Field(
        "", max_length=40, description="grafana: UID of one dashboard; all of the organisation when empty"
    )
    panel: int = Field(0, ge=0, description="grafana: id of one panel of that dashboard")
    timeout_s: float = Field(10.0, gt=0, le=300, description="timeout of one request")
    lag_s: float = Field(
        5.0,
        ge=0,
        le=300,
        description="pause between two lookups of what may have been sent; six times as long after each page, "
        "its presence is checked",
    )
    calls_per_minute: float = Field(
        100.0, ge=1, le=60_000, description="pagerduty, jsm: events per minute at most"
    )

    _none_when_empty = field_validator("url", "key", "api_url", "api_token", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """What a kind cannot do without."""
        if self.kind in PAGES and self.key is None:
            yield ("key", "kind"), f"not set, and a sink of kind {self.kind} needs it"
        if self.kind in ("alertmanager", "grafana") and self.url is None:
            yield ("url", "kind"), f"not set, and a sink of kind {self.kind} needs it"
        if self.kind == "grafana" and self.key is None:
            yield ("key", "kind"), "not set, and a sink of kind grafana needs a service account token"
        if self.panel and not self.dashboard:
            yield ("panel", "dashboard"), "a panel needs its dashboard"
        if self.kind == "jsm" and self.api_token is not None and not (self.api_url and self.api_user):
            yield ("api_url", "api_token"), "an api_token of jsm needs api_url and api_user"

    def is_open(self, now: datetime) -> bool:
        """Whether anything new may be sent now."""
        return not self.hours or any(hours.holds(now) for hours in self.hours)


class NotifierSettings(Section):
    """Who is told outside the chat. Without a sink nothing is sent."""

    sinks: Mapping[SinkName, SinkSettings] = Field(
        {}, description="the sinks by name; a name is part of stored keys: a renamed sink is a new one"
    )
    slack_url: Url | None = Field(
        None,
        description="https://WORKSPACE.slack.com, for links from pages to an incident's thread; none when not set",
    )
    debounce_s: float = Field(
        60.0, ge=0, le=3600, description="shortest time between two updates of a detail"
    )
