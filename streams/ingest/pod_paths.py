"""The pod that a file of container output belongs to, by the kubelet's names for such files.

`/var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log` and its link `/var/log/containers/POD_NAMESPACE_CONTAINER-<64 hex>.log`; a tag
of Fluent Bit holds the latter with dots for slashes.
"""

from __future__ import annotations

import re

from streams.model.entity import PodRef

_POD_DIRECTORY = re.compile(
    r"/pods/(?P<namespace>[a-z0-9-]{1,63})_(?P<pod>[a-z0-9.-]{1,253})_(?P<uid>[0-9a-f-]{8,64})"
    r"(?:/(?P<container>[a-z0-9.-]{1,63})(?:/|$)|$)"
)
_LINK = re.compile(
    r"[./]containers[./](?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9.-]{1,63})"
    r"-[0-9a-f]{12,64}(?:\.log)?"
)


def pod_of(path: str) -> tuple[PodRef, str | None] | None:
    """The pod and the container whose output the file holds; None for any other file."""
    if "/pods/" in path and (match := _POD_DIRECTORY.search(path)) is not None:
        return PodRef(match["namespace"], match["pod"], match["uid"]), match["container"]
    if "containers" in path and (match := _LINK.search(path)) is not None:
        return PodRef(match["namespace"], match["pod"]), match["container"]
    return None
