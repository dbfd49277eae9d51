"""Facts from a recorded watch: the lines of a capture's `kube-objects.jsonl`, through the same code as a live watch.

A line is `{"time": RFC 3339, "type": "ADDED|MODIFIED|DELETED", "object": {…}}`. What exists at the start is ADDED at the
time of the first line; it is taken as one list, so that a pod that stands before its job is not told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.inventory.topology_file import NodePosition
from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput
from streams.model.facts import LinkFact
from streams.model.watch import ObjectChange

_NOT_AS_WRITTEN = (AttributeError, LookupError, TypeError, ValueError, OverflowError)
"""What reading an object may raise that no API server would have written: a capture can be made with a text editor."""


def read_change(line: Any, where: str = "") -> ObjectChange:
    """One decoded line, which stands at `where`.

    Raises:
        BadInput: naming what is missing or wrong.
    """
    if not isinstance(line, dict) or not isinstance(line.get("object"), dict):
        raise BadInput("a line of kube-objects needs `time`, `type` and `object`")
    if (kind := line.get("type")) not in ("ADDED", "MODIFIED", "DELETED"):
        raise BadInput(f"`type` must be ADDED, MODIFIED or DELETED, not {str(kind)[:40]!r}")
    return ObjectChange(parse_rfc3339(str(line.get("time") or "")), kind, line["object"], where)


def facts(
    cluster: str,
    changes: Iterable[ObjectChange],
    links: Iterable[LinkFact] = (),
    places: Mapping[str, NodePosition] | None = None,
    begin: datetime | None = None,
) -> Iterator[tuple[datetime, FactChange]]:
    """The records that the inventory process would have published, each with the time at which it would have.

    Raises:
        BadInput: naming the line of the object that cannot be read.

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
        yield from ((change.at, fact) for fact in _applied(inventory, change))
    if begin is not None and not inventory.settled:
        yield from ((begin, fact) for fact in inventory.settle())


def _applied(inventory: Inventory, change: ObjectChange) -> list[FactChange]:
    try:
        return inventory.apply(change)
    except BadInput as error:
        raise BadInput(f"{change.where}: {error}" if change.where else str(error)) from error
    except _NOT_AS_WRITTEN as error:
        named = " ".join(str(change.object.get(name) or "?")[:100] for name in ("apiVersion", "kind"))
        why = f"an object ({named}) that no API server writes: {type(error).__name__}: {error}"
        raise BadInput(f"{change.where}: {why}" if change.where else why) from error


def _flat(changes: Iterable[ObjectChange]) -> Iterator[ObjectChange]:
    for change in changes:
        if change.object.get("kind") == "List" and isinstance(change.object.get("items"), list):
            for item in change.object["items"]:
                if not isinstance(item, dict):
                    raise BadInput(f"{change.where}: an item of the list is no object")
                yield replace(change, object=item)
        else:
            yield change
