"""What names the machine behind a Node object, besides the node's name and its addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from streams.inventory.names import names
from streams.inventory.objects import KubeObject, annotations_of, labels_of, part, text
from streams.model.hostnames import NOBODYS, folded

_TELLING = re.compile(r"(?=.*[a-z])[a-z0-9][\w.:-]{3,252}")
"""A name that can stand by itself. The number of a machine in its scale set cannot."""


def aliases(node: KubeObject, labels: Iterable[str] = ()) -> tuple[str, ...]:
    """Host names, the cloud's id of it, system UUID, machine id and serial number; folded and sorted.

    `labels` are a site's own labels and annotations with names of the machine. Of a provider's id (`aws:///eu-west-1a/i-0abc`,
    `gce://project/zone/name`) the whole and what stands last.
    """
    own = folded(text(part(node, "metadata"), "name") or "")
    found = {folded(name) for name in _told(node, labels)}
    return tuple(sorted(name for name in found - NOBODYS - {own} if len(name) <= 253))


def _told(node: KubeObject, labels: Iterable[str]) -> Iterator[str]:
    info = part(node, "status", "nodeInfo")
    yield from filter(None, (text(info, "systemUUID"), text(info, "machineID")))
    if provider := text(part(node, "spec"), "providerID"):
        yield provider
        last = provider.rstrip("/").rpartition("/")[2]
        if _TELLING.fullmatch(last.lower()):
            yield last
    for said in (labels_of(node), annotations_of(node)):
        for name in (*names().host_names, *labels):
            for one in re.split(r"[,\s]+", str(said.get(name) or "")):
                yield one.rpartition("/")[2]
