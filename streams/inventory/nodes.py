"""A Node object → its fact."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from streams.inventory.machine import aliases
from streams.inventory.names import NodeLabels, names
from streams.inventory.objects import (
    KubeObject,
    annotations_of,
    condition,
    gpus_in,
    identity,
    is_managed,
    items,
    labels_of,
    part,
    text,
    time,
)
from streams.model.facts import NodeFact

_JOINING = timedelta(minutes=2)
"""A kubelet may register its node, fall silent while it is set up, and come back."""

INCIDENT = "faultline.dev/incident"
"""The annotation in which a cordon says whose it is."""


def node_fact(cluster: str, node: KubeObject, at: datetime, labels: NodeLabels | None = None) -> NodeFact:
    """What the API server says of a node.

    `labels` say where it stands; those that ship when None. `ready` is True only for status `True`: `Unknown` is what a node
    shows that stopped answering.

    Raises:
        BadInput: when the object has no name.
    """
    ready = condition(node, "Ready")
    since = time(ready, "lastTransitionTime")
    taints = sorted(_taint(taint) for taint in items(node, "spec", "taints"))
    where = labels or names().node_labels
    return NodeFact(
        cluster=cluster,
        name=identity(node).name,
        uid=text(part(node, "metadata"), "uid") or "",
        observed_at=at,
        ready=ready.get("status") == "True",
        ready_since=since if ready.get("status") == "True" else None,
        joining=ready.get("status") != "True" and _is_new(node, since),
        unschedulable=part(node, "spec").get("unschedulable") is True,
        gpus=gpus_in(part(node, "status", "capacity"), slices=False),
        gpus_allocatable=gpus_in(part(node, "status", "allocatable"), slices=False),
        pool=_first_label(node, where.pool),
        leaf=_first_label(node, where.leaf),
        rack=_first_label(node, where.rack),
        nvlink_domain=_first_label(node, where.nvlink_domain),
        control_plane=any(label in labels_of(node) for label in names().control_plane_labels),
        managed=is_managed(node),
        protected_by=_protecting(node, where.protected),
        maintenance=_in_maintenance(node),
        addresses=tuple(
            sorted({str(a["address"]) for a in items(node, "status", "addresses") if a.get("address")})
        ),
        aliases=aliases(node, where.host_names),
        taints=tuple(taints),
        owner_incident=text(annotations_of(node), INCIDENT),
        boot_id=text(part(node, "status", "nodeInfo"), "bootID"),
    )


def _is_new(node: KubeObject, since: datetime | None) -> bool:
    """Whether the node has been not Ready since it was made, as each is that joins a cluster."""
    made = time(part(node, "metadata"), "creationTimestamp")
    return made is not None and (since is None or since - made < _JOINING)


def _in_maintenance(node: KubeObject) -> bool:
    table = names()
    said = [labels_of(node).get(name) for name in table.maintenance_labels]
    said += [annotations_of(node).get(name) for name in table.maintenance_annotations]
    if any(value is not None and str(value).lower() not in ("false", "0", "no") for value in said):
        return True
    return any(taint.get("key") in table.maintenance_taints for taint in items(node, "spec", "taints"))


def _protecting(node: KubeObject, candidates: Iterable[str]) -> str | None:
    """The first of `key` or `key=value` that the node carries."""
    for candidate in candidates:
        key, equals, value = candidate.partition("=")
        if key in labels_of(node) and (not equals or str(labels_of(node)[key]) == value):
            return candidate
    return None


def _first_label(node: KubeObject, candidates: Iterable[str]) -> str | None:
    return next((value for name in candidates if (value := text(labels_of(node), name))), None)


def _taint(taint: KubeObject) -> str:
    return f"{taint.get('key', '')}={taint.get('value') or ''}:{taint.get('effect', '')}"
