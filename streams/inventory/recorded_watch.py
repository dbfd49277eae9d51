"""Facts from a recorded watch: the lines of a capture's `kube-objects.jsonl`, through the same code as a live watch.

A line is `{"time": RFC 3339, "type": "ADDED|MODIFIED|DELETED", "object": {…}}`. What exists at the start is ADDED at the
time of the first line; it is taken as one list, so that a pod that stands before its job is not told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.inventory.topology_file import NodePosition
from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput
from streams.model.facts import LinkFact
from streams.model.watch import ObjectChange


def read_change(line: Any) -> ObjectChange:
    """One decoded line.

    Raises:
        BadInput: naming what is missing or wrong.
    """
    if not isinstance(line, dict) or not isinstance(line.get("object"), dict):
        raise BadInput("a line of kube-objects needs `time`, `type` and `object`")
    if (kind := line.get("type")) not in ("ADDED", "MODIFIED", "DELETED"):
        raise BadInput(f"`type` must be ADDED, MODIFIED or DELETED, not {str(kind)[:40]!r}")
    return ObjectChange(parse_rfc3339(str(line.get("time") or "")), kind, line["object"])


def facts(
    cluster: str,
    changes: Iterable[ObjectChange],
    links: Iterable[LinkFact] = (),
    places: Mapping[str, NodePosition] | None = None,
    begin: datetime | None = None,
) -> Iterator[tuple[datetime, FactChange]]:
    """The records that the inventory process would have published, each with the time at which it would have.

    `changes` in the order of their times. `kubectl get -o json` writes a list object: its items are taken one by one.
    A cluster without Kubernetes has no changes: what is configured of it holds from `begin` on.
    """
    inventory = Inventory(cluster)
    inventory.links(links)
    inventory.places(places or {})
    first = True
    for change in _flat(changes):
        begin, first = (change.at, False) if first or begin is None else (begin, False)
        if not inventory.settled and change.at > begin:
            yield from ((begin, fact) for fact in inventory.settle())
        yield from ((change.at, fact) for fact in inventory.apply(change))
    if begin is not None and not inventory.settled:
        yield from ((begin, fact) for fact in inventory.settle())


def _flat(changes: Iterable[ObjectChange]) -> Iterator[ObjectChange]:
    for change in changes:
        if change.object.get("kind") == "List" and isinstance(change.object.get("items"), list):
            yield from (ObjectChange(change.at, change.type, item) for item in change.object["items"])
        else:
            yield change
