"""What a Node object announces, as sightings: that the node goes, and that the notice was taken back."""

from __future__ import annotations

from datetime import datetime

from streams.correlate.sightings import Sighting
from streams.correlate.state.rows import Groups
from streams.model.clock import rfc3339
from streams.model.digest import digest
from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.kinds import SignalKind
from streams.model.node_notice import NOT_BEFORE, UNREAD, WITHIN_S, NodeNotice
from streams.model.signal import Attribute, Severity

NODE_OBJECT = "node"
"""The `source` of what the API server says of a node: nobody but its cloud and its operators can write that."""

_GROUP = f"{SignalKind.NODE_MAINTENANCE}|object|"


def notices_of(fact: NodeFact, seen: Groups) -> list[tuple[str, Sighting]]:
    """What a fact says of notices, each with the group that it is kept in: the one on it, and the end of those that are not."""
    notice = fact.notice
    found = []
    if notice is not None:
        group = f"{_GROUP}{notice.subtype}|True"
        over = seen.get(f"{_GROUP}{notice.subtype}|False", ())
        taken_back = max((s.at for s in over if s.at < fact.observed_at), default=None)
        found.append((group, _sighting(fact, notice, taken_back)))
    for key in seen:
        subtype, _, firing = key.removeprefix(_GROUP).partition("|")
        if key.startswith(_GROUP) and firing == "True" and (notice is None or notice.subtype != subtype):
            found.append((f"{_GROUP}{subtype}|False", _over(fact, subtype)))
    return found


def _sighting(fact: NodeFact, notice: NodeNotice, taken_back: datetime | None) -> Sighting:
    attributes: dict[str, Attribute] = {
        "subtype": notice.subtype,
        "source": NODE_OBJECT,
        "mark": notice.mark,
        "by": notice.by,
    }
    if notice.not_before is not None:
        attributes[NOT_BEFORE] = rfc3339(notice.not_before)
    if notice.within_s is not None:
        attributes[WITHIN_S] = notice.within_s
    if notice.unread is not None:
        attributes[UNREAD] = notice.unread
    # One notice is one sighting, however often its node is read; one that was taken back and is made again is another.
    since = taken_back.isoformat() if taken_back is not None else ""
    words = (
        fact.name,
        fact.uid,
        notice.mark,
        notice.subtype,
        str(attributes.get(NOT_BEFORE, attributes.get(UNREAD, ""))),
        since,
    )
    return _at(fact, digest("notice", *words, size=12), firing=True, attributes=attributes)


def _over(fact: NodeFact, subtype: str) -> Sighting:
    name = digest("no notice", fact.name, fact.uid, subtype, fact.observed_at.isoformat(), size=12)
    return _at(fact, name, firing=False, attributes={"subtype": subtype, "source": NODE_OBJECT})


def _at(fact: NodeFact, name: str, *, firing: bool, attributes: dict[str, Attribute]) -> Sighting:
    at, entity = fact.observed_at, Entity(fact.cluster, node=fact.name)
    kind = SignalKind.NODE_MAINTENANCE
    return Sighting(name, kind, entity, at, at, at, Severity.ERROR, firing, attributes)
