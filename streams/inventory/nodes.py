"""A Node object → its fact."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from streams.inventory.names import NodeLabels, names
from streams.inventory.node_notices import node_notice
from streams.inventory.node_work import node_work
from streams.inventory.objects import gpus_in, identity, is_managed
from streams.inventory.parts import shared_parts
from streams.model.facts import NodeFact
from streams.model.hostnames import NOBODYS, folded
from streams.model.kube_objects import (
    KubeObject,
    annotations_of,
    condition,
    items,
    labels_of,
    part,
    text,
    time,
)

_JOINING = timedelta(minutes=2)
"""A kubelet may register its node, stop reporting during setup, and come back."""

_DISTINCT = re.compile(r"(?=.*[a-z])[a-z0-9][\w.:-]{3,252}")
"""A name that identifies a machine by itself. Its number in a scale set does not."""

_NUMBER = re.compile(r"(?=.*\d)[a-z0-9][a-z0-9-]{4,62}")
"""A serial number or a service tag. What is shorter may be anybody's name in a log."""

_SCALE_SET = re.compile(r"(?i)/virtualMachineScaleSets/([\w.-]{1,128})/virtualMachines/(\d{1,6})$")
"""A machine of an Azure scale set, which Azure itself calls `SET_NUMBER`."""

INCIDENT = "faultline.dev/incident"
"""The annotation that names the incident a node is cordoned for."""


def node_fact(cluster: str, node: KubeObject, at: datetime, labels: NodeLabels | None = None) -> NodeFact:
    """What the API server says of a node.

    `labels` tell its location; the shipped table when None. `ready` is True only for status `True`: a node that stopped
    reporting shows `Unknown`.

    Raises:
        BadInput: when the object has no name.
    """
    ready = condition(node, "Ready")
    since = time(ready, "lastTransitionTime")
    taints = sorted(_taint(taint) for taint in items(node, "spec", "taints"))
    where = labels or names().node_labels
    name = identity(node).name
    shared = shared_parts(name, labels_of(node), where.parts)
    work = node_work(node, where.work)
    return NodeFact(
        cluster=cluster,
        name=name,
        uid=text(part(node, "metadata"), "uid") or "",
        observed_at=at,
        ready=ready.get("status") == "True",
        ready_since=since if ready.get("status") == "True" else None,
        joining=ready.get("status") != "True" and _is_new(node, since),
        created_at=time(part(node, "metadata"), "creationTimestamp"),
        unschedulable=part(node, "spec").get("unschedulable") is True,
        gpus=gpus_in(part(node, "status", "capacity"), slices=False),
        gpus_allocatable=gpus_in(part(node, "status", "allocatable"), slices=False),
        pool=_first_label(node, where.pool),
        leaf=_first_label(node, where.leaf),
        rack=_first_label(node, where.rack),
        nvlink_domain=_first_label(node, where.nvlink_domain),
        parts=shared.parts or None,
        guessed_parts=shared.guessed or None,
        control_plane=any(label in labels_of(node) for label in names().control_plane_labels),
        spot=True if _first_of(node, names().spot_labels) is not None else None,
        managed=is_managed(node),
        protected_by=_first_of(node, where.protected),
        maintenance=work is not None,
        work=work,
        notice=node_notice(node, at),
        addresses=tuple(
            sorted({str(a["address"]) for a in items(node, "status", "addresses") if a.get("address")})
        ),
        aliases=_aliases(node, where.host_names),
        taints=tuple(taints),
        owner_incident=text(annotations_of(node), INCIDENT),
        boot_id=text(part(node, "status", "nodeInfo"), "bootID"),
        kernel=text(part(node, "status", "nodeInfo"), "kernelVersion"),
        gpu_layout=_gpu_layout(node),
    )


def _gpu_layout(node: KubeObject) -> str | None:
    """How its GPUs are handed out, by its labels, and whether any is handed out as MIG instances; None where nothing says so."""
    known = labels_of(node)
    found = []
    for candidate in names().gpu_layout_labels:
        key, equals, value = candidate.partition("=")
        if key in known and (not equals or str(known[key]) == value):
            found.append(f"{key.rpartition('/')[2]}={known[key]}")
    capacity = part(node, "status", "capacity")
    if gpus_in(capacity, slices=True) > gpus_in(capacity, slices=False):
        found.append("slices")
    return ",".join(found) or None


def _is_new(node: KubeObject, since: datetime | None) -> bool:
    """Whether the node has been NotReady since it was created, like every node that joins a cluster."""
    made = time(part(node, "metadata"), "creationTimestamp")
    return made is not None and (since is None or since - made < _JOINING)


def _first_of(node: KubeObject, candidates: Iterable[str]) -> str | None:
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


def _aliases(node: KubeObject, labels: Iterable[str]) -> tuple[str, ...]:
    """Other names of the machine: host names, cloud id, system UUID, machine id and serial number; folded and sorted.

    `labels` are a site's own labels and annotations with names. A provider id (`aws:///eu-west-1a/i-0abc`,
    `gce://project/zone/name`) counts as a whole and by its last part.
    """
    own = folded(text(part(node, "metadata"), "name") or "")
    found = {folded(name) for name in _machine_names(node, labels)}
    return tuple(sorted(name for name in found - NOBODYS - {own} if len(name) <= 253))


def _machine_names(node: KubeObject, labels: Iterable[str]) -> Iterator[str]:
    info = part(node, "status", "nodeInfo")
    yield from filter(None, (text(info, "systemUUID"), text(info, "machineID")))
    if provider := text(part(node, "spec"), "providerID"):
        yield provider
        last = provider.rstrip("/").rpartition("/")[2]
        if _DISTINCT.fullmatch(last.lower()):
            yield last
        elif (member := _SCALE_SET.search(provider)) is not None:
            yield f"{member[1]}_{member[2]}"
    for written in (labels_of(node), annotations_of(node)):
        for name in (*names().host_names, *labels):
            for one in re.split(r"[,\s]+", str(written.get(name) or "")):
                yield one.rpartition("/")[2]
        for key, value in written.items():
            if _is_number_of_host(key) and _NUMBER.fullmatch(str(value).lower()):
                yield str(value)


@lru_cache(4096)
def _is_number_of_host(key: str) -> bool:
    """Whether a label's key names the serial number of the machine; all nodes bear the same few dozen."""
    return re.sub("[-_.]", "", key.rpartition("/")[2].lower()) in names().host_numbers
