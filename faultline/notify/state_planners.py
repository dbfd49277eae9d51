"""Silences and annotations: one for each closed node, one for each incident, kept as the incident is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faultline.chat.thread_plan import Slot, Urgency, weight
from faultline.notify.notice_documents import incident_of, is_final, key_of, was_ended_by_a_person
from faultline.notify.notice_texts import annotation_params, silence_params
from faultline.notify.planner import Looked, SinkPlanner, Wanted
from streams.model.digest import digest
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.message import Message
from streams.model.thread import ROOT, Thread

RENEWALS = 4
"""How often a silence is renewed within its length, so that a process that was away for hours comes back in time."""


class SilencePlanner(SinkPlanner):
    """A silence for each node that is closed for an incident, lifted when the node returns.

    What a person lifts stays lifted as long as the node is closed for that incident.
    """

    def look(self, name: str, now: datetime) -> Looked:
        """The silences of an incident's nodes."""
        documents = self._index.of(name)
        keys = dict.fromkeys(one.incident for one in documents if not is_final(one))
        incident = self._sources.incidents.get(name)
        if incident is not None and self._is_silenced(incident):
            for node in self._sources.closed_nodes(name):
                of_node = [one for one in documents if _node(one.incident) == node]
                if any(not is_final(one) or was_ended_by_a_person(one) for one in of_node):
                    continue
                keys[
                    self._index.next_key(name, node) if of_node else key_of(self._index.sink, name, node)
                ] = None
        return Looked(tuple(keys))

    def _is_silenced(self, incident: Incident) -> bool:
        """Whether its nodes are: work that people planned is no fault of any severity, and rings every alarm of its nodes."""
        planned = incident.family == IncidentFamily.PLANNED_WORK
        return self._passes(replace(incident, severity=self._settings.severity) if planned else incident)

    def wanted(self, document: Thread, now: datetime) -> Wanted:
        """The silence as it should be, renewed from time to time."""
        if is_final(document):
            return Wanted()
        name, node = incident_of(document.incident), _node(document.incident)
        incident = self._sources.incidents.get(name)
        closed = node in self._sources.closed_nodes(name)
        until, renewed_at = self._until(document.incident, now)
        state = "silenced" if closed else "lifted"
        slot = Slot(
            ROOT,
            Message(f"{node} is closed for {name}" if closed else f"{node} is back"),
            state,
            Urgency.STEP,
            params=silence_params(incident, name, node, state, until, self._console_url),
            actions=("silence", "update_silence"),
            moot=not closed,
            shows=f"{state} {until.isoformat() if closed else ''}",
        )
        heavy = weight(incident) if incident is not None else (True, True, 0)
        return Wanted((slot,), heavy, renewed_at if closed else None)

    def _until(self, key: str, now: datetime) -> tuple[datetime, datetime]:
        """Until when it lasts, and when that is moved. Not all silences are renewed at the same moment."""
        step = self._settings.silence_s / RENEWALS
        phase = int(digest(key, size=4), 16) % int(step)
        began = (now.timestamp() - phase) // step * step + phase
        return _moment(began + self._settings.silence_s), _moment(began + step)


class AnnotationPlanner(SinkPlanner):
    """An annotation for each incident that is worth one: it gets its end when the incident ends."""

    def look(self, name: str, now: datetime) -> Looked:
        """The annotation of an incident."""
        key, incident = key_of(self._index.sink, name), self._sources.incidents.get(name)
        if incident is None:
            return Looked()
        if self._index.get(key) is not None:
            return Looked((key,))
        suppressed = incident.state is IncidentState.SUPPRESSED
        if (
            incident.state.is_over
            or suppressed
            or incident.certainty is Certainty.WEAK
            or not self._passes(incident)
        ):
            return Looked()
        settled = incident.opened_at + timedelta(seconds=self._settings.settle_s)
        return Looked((key,)) if settled <= now else Looked(again_at=settled)

    def wanted(self, document: Thread, now: datetime) -> Wanted:
        """The annotation as it should be."""
        incident = self._sources.incidents.get(incident_of(document.incident))
        if incident is None:
            return Wanted()
        over = incident.state.is_over
        params = annotation_params(incident, self._console_url)
        text = f"{incident.title} ({incident.severity}): {incident.reason}"
        slot = Slot(
            ROOT,
            Message(text),
            "over" if over else "open",
            Urgency.EVIDENCE,
            params=params,
            actions=("annotate", "update_annotation"),
            moot=over,
            shows=f"{text} {params.get('end_ms', '')}",
        )
        return Wanted((slot,), weight(incident))


def _node(key: str) -> str:
    return key.split("/")[2]


def _moment(timestamp: float) -> datetime:
    return datetime.fromtimestamp(round(timestamp), UTC)
