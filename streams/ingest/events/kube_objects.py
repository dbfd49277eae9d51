"""Nodes and pods from a watch of the API server, read as the Events their status stands for.

The k8sobjects receiver, Fluentd's and Vector's watchers send whole objects, by themselves or as `{"type": "MODIFIED", "object":
{…}}`. A node's conditions count as announcements, dated when they changed; of pods only failed ones count. Shape: Kubernetes API,
core/v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import yaml

from streams.config.yaml_tables import LOADER
from streams.ingest import timestamps
from streams.ingest.json_documents import string
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import KubeEvent

HINTS = (
    rb'"lastHeartbeatTime"\s{0,2}:',
    rb'"phase"\s{0,2}:\s{0,2}"Failed"',
    rb"\blastHeartbeatTime: ",
    rb"\bphase: Failed\b",
)
"""Bytes (RE2) of objects that may be of interest."""

SEEN = "ConditionSeen"
"""The reason of a condition that was not announced but is part of every version of the object."""

_GOOD_WHEN_TRUE = re.compile(
    r"(?i)(?<!un)(?<!not)(?:installed|(?<!in)active|enabled|available|ok|up|running|present|succeeded|passed|initialized|"
    r"configured|schedulable|allocatable|complete[d]?|detected|supported|match(?:es|ed)?|valid|loaded|connected|registered|synced)$"
)
"""Names of conditions whose `True` is healthy."""
_FAULT = re.compile(
    r"(?i)error|fault|fail|problem|throttl|violat|degrad|corrupt|overheat|slowdown|xid|lost|deadlock|lockup"
)
"""Words of which one makes `True` a fault all the same: `XidErrorsDetected`."""

_JOINING = timedelta(minutes=2)
"""After its creation a node is not ready for this long."""

_MAX_LISTED = 64


_YAML = re.compile(
    r"(?:---\s{1,4})?(?:apiVersion: [\w./-]{1,64}\s{1,4}(?:kind|items): ?|kind: (?:Node|Pod|List)\s)"
)
_MAX_YAML = 256 * 1024


def is_yaml(text: str) -> bool:
    """True for objects as `kubectl get -o yaml` prints them."""
    return text.startswith(("apiVersion:", "kind:", "---")) and _YAML.match(text) is not None


def documents(text: str) -> list[JsonObject]:
    """The objects in a YAML text, none when it is broken or too long to be read as a whole."""
    if len(text) > _MAX_YAML:
        return []
    try:
        parsed = [one for one in yaml.load_all(text, LOADER) if isinstance(one, dict)]
    except (yaml.YAMLError, RecursionError, ValueError):
        return []
    listed = [one for whole in parsed if isinstance(items := whole.get("items"), list) for one in items]
    return [one for one in (*parsed, *listed) if isinstance(one, dict) and one.get("kind") in ("Node", "Pod")]


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the Events of the object to `into`; False for any other format."""
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
        if isinstance(condition, dict) and (seen := condition_of(node, condition, created)) is not None:
            yield seen


def condition_of(node: str, condition: JsonObject, created: datetime | None = None) -> KubeEvent | None:
    """The Event that a condition of a node stands for; None for one that is well, or of a node that has just joined."""
    type_, state = str(condition.get("type")), str(condition.get("status"))
    if state == "True" and _GOOD_WHEN_TRUE.search(type_) and not _FAULT.search(type_):
        return None
    at = timestamps.any_form(condition.get("lastTransitionTime"))
    if created is not None and at is not None and at - created < _JOINING:
        return None
    reason, detail = string(condition.get("reason")) or "", string(condition.get("message")) or ""
    message = f"Node condition {type_} is now: {state}, reason: {reason}, message: {detail}"
    return KubeEvent(SEEN, message, "Node", node, at=at)


def _failed(pod: JsonObject, metadata: JsonObject, status: JsonObject) -> KubeEvent | None:
    name, namespace = string(metadata.get("name")) or "", string(metadata.get("namespace")) or ""
    ended = max(_ended(status), key=lambda one: str(one.get("finishedAt")), default=None)
    if status.get("phase") != "Failed" or not namespace or metadata.get("deletionTimestamp"):
        return None  # containers of a deleted pod get SIGTERM, and few exit with zero
    reason = string(status.get("reason")) or ""
    detail = string(status.get("message")) or ""
    at = timestamps.any_form(status.get("startTime"))
    if ended is not None:
        reason = reason or ("OOMKilled" if ended.get("reason") == "OOMKilled" else "")
        detail = detail or f"container exited with code {ended.get('exitCode')}"
        at = timestamps.any_form(ended.get("finishedAt")) or at
    spec = pod.get("spec")
    return KubeEvent(
        reason or "PodFailed",
        detail,
        "Pod",
        name,
        namespace,
        uid=string(metadata.get("uid")),
        type="Warning",
        at=at,
        host=string(spec.get("nodeName")) if isinstance(spec, dict) else None,
    )


def _ended(status: JsonObject) -> Iterator[dict[str, Any]]:
    """The terminated states of the pod's containers that failed."""
    for listed in (status.get("initContainerStatuses"), status.get("containerStatuses")):
        for container in listed[:_MAX_LISTED] if isinstance(listed, list) else ():
            state = container.get("state") if isinstance(container, dict) else None
            ended = state.get("terminated") if isinstance(state, dict) else None
            if isinstance(ended, dict) and ended.get("exitCode") != 0:
                yield ended
