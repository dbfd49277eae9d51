"""What a sink should hold for an incident: the interface of its planners, and what they share. Pure: documents and the time in.

A planner says of an incident which documents tell of it, and since when a new one is due; of those that are due it makes or joins
documents; and of a document it says what it should show. `SinkWorker` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Protocol

from faultline.chat.thread_plan import Slot
from faultline.notify.notice_documents import DocumentIndex
from faultline.notify.notice_texts import Told
from faultline.notify.sources import NoticeSources
from streams.config.notifier_settings import SinkSettings
from streams.model.incident import Incident
from streams.model.thread import Thread


@dataclass(frozen=True, slots=True)
class Looked:
    """Documents to plan for an incident, since when it is to be told anew, and when to look again whatever happens."""

    keys: tuple[str, ...] = ()
    due_at: datetime | None = None
    again_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a document should show: its slots, how important it is, and when that changes by itself."""

    slots: tuple[Slot, ...] = ()
    weight: tuple[bool, bool, int] = (True, True, 0)
    again_at: datetime | None = None


class Planner(Protocol):
    """What one kind of sink should hold."""

    def look(self, name: str, now: datetime) -> Looked:
        """Look at an incident."""

    def start(self, due: Sequence[str], now: datetime) -> tuple[list[Thread], datetime | None]:
        """New and joined documents for incidents that are due, and when to try the others again."""

    def wanted(self, document: Thread, now: datetime) -> Wanted:
        """What a document should show. It may not be stored yet."""

    def cluster_of(self, key: str) -> str:
        """The cluster of a document that may not be stored yet; empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Links:
    """Where people find more: the console, and the Slack workspace of the threads. None where there is none."""

    console: str | None = None
    slack: str | None = None


class SinkPlanner:
    """What planners share: the sink's filter, and the incidents of a document."""

    def __init__(
        self,
        settings: SinkSettings,
        sources: NoticeSources,
        index: DocumentIndex,
        links: Links,
    ) -> None:
        self._settings = settings
        self._sources = sources
        self._index = index
        self._console_url = links.console
        self._slack_url = links.slack

    def start(self, due: Sequence[str], now: datetime) -> tuple[list[Thread], datetime | None]:
        """Nothing: documents are made by their first post."""
        return [], None

    def cluster_of(self, key: str) -> str:
        """The cluster of the incident that a document is named after."""
        document = self._index.get(key)
        incident = self._sources.incidents.get(key.split("/")[1])
        return document.cluster if document is not None else incident.cluster if incident is not None else ""

    def _passes(self, incident: Incident) -> bool:
        wanted = self._settings
        return (
            (not wanted.clusters or incident.cluster in wanted.clusters)
            and (not wanted.families or incident.family in wanted.families)
            and (
                not wanted.namespaces
                or any(
                    fnmatchcase(job.namespace, pattern)
                    for job in incident.jobs
                    for pattern in wanted.namespaces
                )
            )
            and incident.severity.rank >= wanted.severity.rank
        )

    def _told(self, document: Thread) -> list[Told]:
        """The known incidents of a document, the one it is named after first."""
        found = (self._sources.incidents.get(name) for name in document.members)
        return [(incident, self._sources.standing(incident)) for incident in found if incident is not None]


def earliest(*times: datetime | None) -> datetime | None:
    """The earliest of the times that there are."""
    return min((one for one in times if one is not None), default=None)
