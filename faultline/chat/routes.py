"""Which channel an incident is told in: the first route that fits, else that of the one team whose jobs it affects, else the
default. What only the owner of a job has to know never comes into the default one. Pure.

It is decided once, when the thread begins; an incident keeps its channel whatever becomes of its severity or of the hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from types import MappingProxyType
from zoneinfo import ZoneInfo

from streams.config.connector_settings import BusinessHours, SlackRoute
from streams.config.tenant_settings import Tenant, tenant_of
from streams.model.facts import JobFact
from streams.model.incident import Audience, Incident

NOWHERE = ""
"""The channel of what is not posted."""


class Routes:
    """The routes of the settings, in their order."""

    def __init__(
        self, default: str, routes: Sequence[SlackRoute] = (), tenants: Sequence[Tenant] = ()
    ) -> None:
        self.default = default
        self._routes = tuple(routes)
        self._tenants = tuple(tenants)

    def channel_of(
        self,
        incident: Incident,
        now: datetime,
        jobs: Mapping[str, JobFact] = MappingProxyType({}),
        *,
        audience: Audience = Audience.ON_CALL,
    ) -> str:
        """The channel in which an incident's thread would begin now, or `NOWHERE`; `jobs` are those of its cluster, by key."""
        fitting = (r.channel for r in self._routes if _takes(r, audience) and _fits(r, incident, now))
        routed = next(fitting, "") or self._of_team(incident, jobs)
        return routed or (self.default if audience is Audience.ON_CALL else NOWHERE)

    def _of_team(self, incident: Incident, jobs: Mapping[str, JobFact]) -> str:
        """The channel of the team that all affected jobs are of; empty where they are of several, or of none."""
        if not self._tenants:
            return ""
        facts = ((job.namespace, jobs.get(job.key)) for job in incident.jobs)
        found = {
            tenant_of(self._tenants, namespace, fact.queue if fact else None, fact.team if fact else None)
            for namespace, fact in facts
        }
        (only,) = found if len(found) == 1 else (None,)
        return only.channel if only is not None else ""


def _takes(route: SlackRoute, audience: Audience) -> bool:
    """Whether a route is for these readers. Whoever sends a namespace or a kind of fault somewhere means all of it."""
    if route.audience is not None:
        return route.audience is audience
    return audience is Audience.ON_CALL or route.namespace is not None or route.family is not None


def _fits(route: SlackRoute, incident: Incident, now: datetime) -> bool:
    namespaces = {job.namespace for job in incident.jobs}
    return (
        (route.cluster is None or fnmatchcase(incident.cluster, route.cluster))
        and (route.family is None or fnmatchcase(incident.family, route.family))
        and (
            route.namespace is None or any(fnmatchcase(name, route.namespace) for name in sorted(namespaces))
        )
        and (not route.severities or incident.severity in route.severities)
        and (route.hours is None or is_within(route.hours, now))
    )


def is_within(hours: BusinessHours, now: datetime) -> bool:
    """Whether a moment is within the hours. Hours that begin later than they end reach into the next day and count for the day
    on which they begin."""
    local = now.astimezone(ZoneInfo(hours.tz))
    time, today = local.strftime("%H:%M"), local.weekday()
    days = {_DAYS.index(day) for day in hours.days}
    if hours.start < hours.end:
        return today in days and hours.start <= time < hours.end
    return (today in days and time >= hours.start) or ((today - 1) % 7 in days and time < hours.end)


_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
