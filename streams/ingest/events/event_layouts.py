"""Kubernetes Events in custom layouts of kubernetes-event-exporter, with field names of their author's choice.

Often in a map of their own: `{"details": {"reason", "type", "kind", "name"}}`, `eventReason`, `involved_object_name`,
`object: Node/n1`. An Event is recognised by what every layout keeps: a reason in one word, Normal or Warning, and an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.json_documents import string
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import KubeEvent

_REASON = re.compile(r"[A-Z][A-Za-z0-9]{2,127}$")
_KIND = re.compile(r"[A-Z][A-Za-z]{1,63}$")
_OBJECT = re.compile(
    r"(?P<kind>[A-Za-z]{2,63})/(?:(?P<namespace>[a-z0-9-]{1,63})/)?(?P<name>[a-z0-9][a-z0-9.:-]{0,252})$"
)
_MAPS = (
    "details",
    "event",
    "data",
    "payload",
    "kubeevent",
    "kubernetesevent",
    "k8sevent",
    "k8s",
    "kubernetes",
)
_OBJECTS = ("involvedobject", "regarding", "object", "involved", "resource")
_OBJECT_PATHS = ("object", "involvedobject", "resource", "regarding")
_TIMES = (
    "lasttimestamp",
    "lastseen",
    "lasttime",
    "eventtime",
    "timestamp",
    "time",
    "createdat",
    "firsttimestamp",
    "creationtimestamp",
)
_TYPES = ("Normal", "Warning")
_KEPT = frozenset({"eventtime", "eventtype", "resourceversion"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the event to `into`; False for any other format."""
    if not any(
        "eason" in name or (isinstance(part, dict) and "reason" in part) for name, part in record.items()
    ):
        return False
    known = _bare(fields(record))
    reason = string(known.get("reason"))
    names = ("type", "severity", "level") if "objectname" in known else ("type",)
    types = (str(known.get(name)).capitalize() for name in names)
    type_ = next((type_ for type_ in types if type_ in _TYPES), None)
    kind, namespace, name = _object_of(known)
    if reason is None or type_ is None or not _REASON.match(reason) or name is None:
        return False
    kind = kind or kind_by(reason)
    if not _KIND.match(kind):
        return False
    into.observations.append(
        KubeEvent(
            reason=reason,
            message=string(known.get("message"))
            or string(known.get("note"))
            or string(known.get("msg"))
            or "",
            kind=kind,
            name=name,
            namespace=namespace or "",
            uid=next((uid for name in ("objectuid", "uid") if (uid := string(known.get(name)))), None),
            type=type_,
            at=next(
                (at for name in _TIMES if (at := timestamps.any_form(known.get(name)))), context.origin.at
            ),
            host=string(known.get("sourcehost")) or string(known.get("host")),
            cluster=string(known.get("clustername")) or string(known.get("cluster")),
        )
    )
    return True


def _bare(known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without separators and outer maps; those of the object get the prefix `object`."""
    bare: dict[str, Any] = {}
    for name, value in known.items():
        plain = name.replace("_", "")
        if plain not in _KEPT:
            inner = next((outer for outer in _MAPS if plain.startswith(outer) and plain != outer), "")
            plain = plain.removeprefix(inner)
            object_ = next((one for one in _OBJECTS if plain.startswith(one) and plain != one), "")
            plain = f"object{plain.removeprefix(object_)}" if object_ else plain
        if plain in ("type", "eventtype") and str(value).capitalize() not in _TYPES:
            continue  # the layout's own name for such records
        bare.setdefault("type" if plain == "eventtype" else plain, value)
    return bare


def _object_of(known: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Kind, namespace and name of what the event is about."""
    kind = string(known.get("objectkind")) or string(known.get("kind"))
    if kind == "Event":
        kind = None
    name = string(known.get("objectname"))
    namespace = string(known.get("objectnamespace")) or string(known.get("namespace"))
    path = next((text for field in _OBJECT_PATHS if (text := string(known.get(field)))), None)
    if path is not None and (match := _OBJECT.match(path)) is not None:
        kind = kind or match["kind"][0].upper() + match["kind"][1:]
        return kind, match["namespace"] or namespace, name or match["name"]
    return kind, namespace, name or string(known.get("name")) or (path if kind else None)


def kind_by(reason: str) -> str:
    """The kind of the object of an Event without one, where the reason names it."""
    return "Node" if reason.startswith("Node") else ""
