"""Which channel an incident is told in: the first route that fits, else the default. Pure.

It is decided once, when the thread begins; an incident keeps its channel whatever becomes of its severity or of the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from streams.config.connector_settings import BusinessHours, SlackRoute
from streams.model.incident import Incident


class Routes:
    """The routes of the settings, in their order."""

    def __init__(self, default: str, routes: Sequence[SlackRoute] = ()) -> None:
        self.default = default
        self._routes = tuple(routes)

    def channel_of(self, incident: Incident, now: datetime) -> str:
        """The channel in which an incident's thread would begin now."""
        return next((route.channel for route in self._routes if _fits(route, incident, now)), self.default)


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
