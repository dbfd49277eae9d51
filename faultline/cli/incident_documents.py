"""The documents of one incident, or of a whole cluster, from Kafka or from a replay: the same in both cases."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streams.model.clock import utc_now
from streams.model.conversation import TimelineEntry
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import Run

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class IncidentDocuments:
    """One incident with all that is stored about it. `now` is the time of reading, or where its capture ends."""

    incident: Incident
    runs: Sequence[Run]
    timeline: Sequence[TimelineEntry]
    nodes: Mapping[str, NodeFact]
    now: datetime

    @property
    def as_of(self) -> datetime:
        """The time to report for: now while anything is going on or a node is kept closed, else the last change, so that the
        report does not change any more."""
        held = any(self.incident.id in fact.owners for fact in self.nodes.values())
        if held or not self.incident.state.is_over or any(run.has_work for run in self.runs):
            return self.now
        changes = [self.incident.closed_at or self.incident.updated_at, self.incident.updated_at]
        changes += [run.finished_at or run.updated_at for run in self.runs]
        return max([*changes, *(entry.at for entry in self.timeline)])


@dataclass(frozen=True, slots=True)
class ClusterDocuments:
    """All incidents of one cluster with all that is stored about them."""

    cluster: str
    incidents: Mapping[str, Incident]
    runs: Sequence[Run]
    timeline: Sequence[TimelineEntry]
    nodes: Mapping[str, NodeFact]
    now: datetime

    def of(self, incident: Incident) -> IncidentDocuments:
        """The documents of one of them."""
        return IncidentDocuments(
            incident,
            [run for run in self.runs if run.incident == incident.id],
            [entry for entry in self.timeline if entry.incident == incident.id],
            self.nodes,
            self.now,
        )


async def of_topics(settings: Settings, prefix: str) -> IncidentDocuments:
    """The documents of the incident whose id begins with `prefix`, as the topics hold them now.

    Raises:
        BadInput: when there is none, or more than one.
        Unreachable: when no broker answers.
    """
    from faultline.cli.incident_overview import read_nodes
    from faultline.cli.read_topics import read_incident, read_runs, read_timeline

    incident = await read_incident(settings.kafka, prefix)
    runs, timeline, nodes = await asyncio.gather(
        read_runs(settings.kafka, incident),
        read_timeline(settings.kafka, incident),
        read_nodes(settings.kafka, incident.cluster),
    )
    return IncidentDocuments(incident, runs, timeline, nodes, utc_now())


def of_capture(settings: Settings, capture: Path, prefix: str) -> IncidentDocuments:
    """The same, as a replay of a capture decides it.

    Raises:
        BadInput: when the capture is invalid, or has no such incident.
    """
    from faultline.cli.read_topics import pick

    whole = cluster_of_capture(settings, capture)
    return whole.of(pick(whole.incidents, prefix))


async def cluster_of_topics(settings: Settings) -> ClusterDocuments:
    """The documents of every incident of the settings' cluster, as the topics hold them now."""
    from faultline.cli.incident_overview import read_nodes
    from faultline.cli.read_topics import read_incidents, read_runs_of, read_timeline_of

    incidents, runs, timeline, nodes = await asyncio.gather(
        read_incidents(settings.kafka),
        read_runs_of(settings.kafka, settings.cluster),
        read_timeline_of(settings.kafka, settings.cluster),
        read_nodes(settings.kafka, settings.cluster),
    )
    mine = {name: one for name, one in incidents.items() if one.cluster == settings.cluster}
    return ClusterDocuments(settings.cluster, mine, runs, timeline, nodes, utc_now())


def cluster_of_capture(settings: Settings, capture: Path) -> ClusterDocuments:
    """The documents of every incident of a capture, as a replay decides them."""
    from faultline.cli.left_out import tell_left_out
    from faultline.replay.capture import read
    from faultline.replay.replay import AFTERMATH, facts_of, replay_capture
    from streams.correlate import Config

    taken = read(capture)
    decided = replay_capture(taken, responder=settings.responder, config=Config.of(settings.correlator))
    nodes: dict[str, NodeFact] = {}
    for _, key, fact in sorted(facts_of(taken), key=lambda entry: entry[0]):
        cluster, kind, name = key.split("/", 2)
        if cluster != taken.meta.cluster or kind != "node":
            continue
        if isinstance(fact, NodeFact):
            nodes[name] = fact
        else:
            nodes.pop(name, None)
    tell_left_out(taken)
    timeline = sorted([*decided.revisions, *decided.timeline], key=lambda entry: entry.at)
    return ClusterDocuments(
        taken.meta.cluster, decided.incidents, decided.runs, timeline, nodes, taken.meta.end + AFTERMATH
    )
