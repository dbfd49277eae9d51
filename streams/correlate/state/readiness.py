"""Whether a node is ready, as its fact in the inventory tells it."""

from __future__ import annotations

from datetime import timedelta

from streams.correlate.sightings import Sighting
from streams.model.digest import digest
from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.kinds import SignalKind
from streams.model.signal import Severity

API_TIME_STEP = timedelta(seconds=1)


def readiness(fact: NodeFact) -> Sighting:
    """A node's readiness by its fact, as a sighting: events get lost, conditions are read again.

    The API server cuts the time of a transition to the second. Taken literally, a node that became ready in the second in
    which it was seen not ready would have been ready before that, and would count as gone for ever.
    """
    at = fact.observed_at
    if fact.ready and fact.ready_since is not None:
        at = min(at, fact.ready_since + API_TIME_STEP)
    name = digest("readiness", fact.name, fact.uid, fact.ready, at.isoformat(), size=12)
    entity = Entity(fact.cluster, node=fact.name)
    return Sighting(
        name,
        SignalKind.NODE_NOT_READY,
        entity,
        at,
        at,
        fact.observed_at,
        Severity.ERROR,
        fact.ready is False,
        {"source": "node"},
    )
