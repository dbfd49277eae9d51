"""Which incident a thread in Slack is about, and what people are called: looked up in Slack, remembered within bounds."""

from __future__ import annotations

from collections import OrderedDict

import structlog

from faultline.gateway.slack.actions import clean_name
from faultline.gateway.slack.web_api import WebApi
from faultline.live_view.view import LiveView
from streams.model.errors import FaultlineError, Temporary
from streams.model.incident import Incident

log = structlog.get_logger(__name__)

MAX_THREADS = 10_000
MAX_PEOPLE = 10_000


class ThreadRoots:
    """A root's metadata says which incident it is about; that never changes. Threads of others are remembered too."""

    def __init__(self, api: WebApi, view: LiveView) -> None:
        self._api = api
        self._view = view
        self._known: OrderedDict[tuple[str, str], str | None] = OrderedDict()

    async def incident_of(self, channel: str, ts: str) -> Incident | None:
        """The incident of the thread under this root; None where it is none of ours, or its incident is long gone.

        Raises:
            Temporary: Slack does not say now, or the incident may not be read yet.
            Rejected: it refuses to say.
        """
        key = (channel, ts)
        if key not in self._known:
            self._known[key] = await self._api.incident_of_thread(channel, ts)
            if len(self._known) > MAX_THREADS:
                self._known.popitem(last=False)
        name = self._known[key]
        incident = self._view.incident(name) if name is not None else None
        if name is not None and incident is None and not self._view.ready:
            raise Temporary(f"{name} may not be read yet")
        return incident


class People:
    """Names of people whose messages carry only an id."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._names: OrderedDict[str, str] = OrderedDict()

    async def name(self, user: str) -> str:
        """The person's name; empty while Slack does not say it, because the id is enough."""
        if user not in self._names:
            try:
                name = clean_name(await self._api.user_name(user))
            except FaultlineError as error:
                log.info("a person's name is not known", user=user, reason=str(error))
                return ""
            self._names[user] = name
            if len(self._names) > MAX_PEOPLE:
                self._names.popitem(last=False)
        return self._names[user]
