"""Kubernetes Events as a layout of kubernetes-event-exporter writes them: under whatever names its author likes.

Often in a map of their own: `{"details": {"reason", "type", "kind", "name"}}`, `eventReason`, `involved_object_name`,
`object: Node/n1`. An event is told by what every layout keeps: a reason in one word, Normal or Warning, and an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streams.ingest import timestamps
from streams.ingest.fields import fields
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
_WHOLE = ("object", "involvedobject", "resource", "regarding")
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
_WEIGHTS = ("Normal", "Warning")
_KEPT = frozenset({"eventtime", "eventtype", "resourceversion"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the event to `into`; False when the record is of another shape."""
    if not any(
        "eason" in name or (isinstance(part, dict) and "reason" in part) for name, part in record.items()
    ):
        return False
    known = _bare(fields(record))
    reason = _str(known.get("reason"))
    names = ("type", "severity", "level") if "objectname" in known else ("type",)
    weights = (str(known.get(name)).capitalize() for name in names)
    weight = next((weight for weight in weights if weight in _WEIGHTS), None)
    kind, namespace, name = _object_of(known)
    if reason is None or weight is None or not _REASON.match(reason) or name is None:
        return False
    kind = kind or kind_by(reason)
    if not _KIND.match(kind):
        return False
    into.observations.append(
        KubeEvent(
            reason=reason,
            message=_str(known.get("message")) or _str(known.get("note")) or _str(known.get("msg")) or "",
            kind=kind,
            name=name,
            namespace=namespace or "",
            uid=next((uid for name in ("objectuid", "uid") if (uid := _str(known.get(name)))), None),
            type=weight,
            at=next(
                (at for name in _TIMES if (at := timestamps.any_form(known.get(name)))), context.origin.at
            ),
            host=_str(known.get("sourcehost")) or _str(known.get("host")),
            cluster=_str(known.get("clustername")) or _str(known.get("cluster")),
        )
    )
    return True


def _bare(known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without separators and without the layout's own maps; those of the object begin with `object`."""
    bare: dict[str, Any] = {}
    for name, value in known.items():
        plain = name.replace("_", "")
        if plain not in _KEPT:
            inner = next((outer for outer in _MAPS if plain.startswith(outer) and plain != outer), "")
            plain = plain.removeprefix(inner)
            object_ = next((one for one in _OBJECTS if plain.startswith(one) and plain != one), "")
            plain = f"object{plain.removeprefix(object_)}" if object_ else plain
        if plain in ("type", "eventtype") and str(value).capitalize() not in _WEIGHTS:
            continue  # what the layout's author calls such records
        bare.setdefault("type" if plain == "eventtype" else plain, value)
    return bare


def _object_of(known: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    """Kind, namespace and name of what the event is about."""
    kind = _str(known.get("objectkind")) or _str(known.get("kind"))
    if kind == "Event":
        kind = None
    name = _str(known.get("objectname"))
    namespace = _str(known.get("objectnamespace")) or _str(known.get("namespace"))
    whole = next((text for field in _WHOLE if (text := _str(known.get(field)))), None)
    if whole is not None and (match := _OBJECT.match(whole)) is not None:
        kind = kind or match["kind"][0].upper() + match["kind"][1:]
        return kind, match["namespace"] or namespace, name or match["name"]
    return kind, namespace, name or _str(known.get("name")) or (whole if kind else None)


def kind_by(reason: str) -> str:
    """What an event without a kind is about, where its reason says so."""
    return "Node" if reason.startswith("Node") else ""


def _str(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
