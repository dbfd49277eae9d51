"""Nodes and pods as a watch of the API server shows them: what their status says, as the Events that would have said it.

The k8sobjects receiver, Fluentd's and Vector's watchers send whole objects, by themselves or as `{"type": "MODIFIED", "object":
{…}}`. A node's conditions are taken for announcements of them, dated when they changed; of pods only those that failed count.
Shape: Kubernetes API, core/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from streams.ingest import timestamps
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import KubeEvent

HINTS = (rb'"lastHeartbeatTime"\s{0,2}:', rb'"phase"\s{0,2}:\s{0,2}"Failed"')
"""Bytes (RE2) of objects that may say something."""

SEEN = "ConditionSeen"
"""The reason of a node's condition that nobody announced: it stands in every version of the object."""

_GOOD_WHEN_TRUE = re.compile(
    r"(?i)(?<!un)(?<!not)(?:installed|(?<!in)active|enabled|available|ok|up|running|present|succeeded|passed|initialized|"
    r"configured|schedulable|allocatable|complete[d]?|detected|supported|match(?:es|ed)?|valid|loaded|connected|registered|synced)$"
)
"""How a condition is named whose `True` is no fault."""
_FAULT = re.compile(
    r"(?i)error|fault|fail|problem|throttl|violat|degrad|corrupt|overheat|slowdown|xid|lost|deadlock|lockup"
)
"""Words that make it one all the same: `XidErrorsDetected`."""

_JOINING = timedelta(minutes=2)
"""A node that has just joined is not ready yet."""

_MAX_LISTED = 64


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add what the object says to `into`; False when the record is of another shape."""
    inner = record.get("object")
    whole = inner if isinstance(inner, dict) else record
    status, metadata = whole.get("status"), whole.get("metadata")
    kind = whole.get("kind")
    if kind not in ("Node", "Pod") or not isinstance(status, dict) or not isinstance(metadata, dict):
        return False
    name = metadata.get("name")
    if not isinstance(name, str) or not name or record.get("type") == "DELETED":
        return True
    if kind == "Node":
        into.observations += _conditions(name, timestamps.any_form(metadata.get("creationTimestamp")), status)
    elif (failed := _failed(whole, metadata, status)) is not None:
        into.observations.append(failed)
    return True


def _conditions(node: str, created: datetime | None, status: JsonObject) -> Iterator[KubeEvent]:
    listed = status.get("conditions")
    for condition in listed[:_MAX_LISTED] if isinstance(listed, list) else ():
        if not isinstance(condition, dict):
            continue
        type_, state = str(condition.get("type")), str(condition.get("status"))
        if state == "True" and _GOOD_WHEN_TRUE.search(type_) and not _FAULT.search(type_):
            continue
        at = timestamps.any_form(condition.get("lastTransitionTime"))
        if created is not None and at is not None and at - created < _JOINING:
            continue
        reason, said = _text(condition, "reason"), _text(condition, "message")
        message = f"Node condition {type_} is now: {state}, reason: {reason}, message: {said}"
        yield KubeEvent(SEEN, message, "Node", node, at=at)


def _failed(pod: JsonObject, metadata: JsonObject, status: JsonObject) -> KubeEvent | None:
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace")
    ended = max(_ended(status), key=lambda one: str(one.get("finishedAt")), default=None)
    if status.get("phase") != "Failed" or not namespace or metadata.get("deletionTimestamp"):
        return None  # containers of a pod that is deleted are told to end, and few do so with a zero
    reason = _text(status, "reason")
    said = _text(status, "message")
    at = timestamps.any_form(status.get("startTime"))
    if ended is not None:
        reason = reason or ("OOMKilled" if ended.get("reason") == "OOMKilled" else "")
        said = said or f"container exited with code {ended.get('exitCode')}"
        at = timestamps.any_form(ended.get("finishedAt")) or at
    spec = pod.get("spec")
    return KubeEvent(
        reason or "PodFailed",
        said,
        "Pod",
        name,
        namespace,
        uid=_text(metadata, "uid") or None,
        type="Warning",
        at=at,
        host=(_text(spec, "nodeName") if isinstance(spec, dict) else "") or None,
    )


def _ended(status: JsonObject) -> Iterator[dict[str, Any]]:
    """How those of the pod's containers ended that did not end well."""
    for listed in (status.get("initContainerStatuses"), status.get("containerStatuses")):
        for container in listed[:_MAX_LISTED] if isinstance(listed, list) else ():
            state = container.get("state") if isinstance(container, dict) else None
            ended = state.get("terminated") if isinstance(state, dict) else None
            if isinstance(ended, dict) and ended.get("exitCode") != 0:
                yield ended


def _text(record: JsonObject, name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
