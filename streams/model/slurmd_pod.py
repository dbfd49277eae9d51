"""Pods that are nodes of Slurm, and what Slurm calls them.

Sources: Slinky, slurm-operator, NodeSet (label `pod-hostname`); Nebius Soperator (a container `slurmd`, kruise's StatefulSets);
CoreWeave SUNK ("the name of a Slurm node matches the name of its Kubernetes Pod", a container `slurmd`); slurmd(8), `-N`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streams.model.hostnames import NOBODYS, folded
from streams.model.kube_objects import KubeObject, controller_of, items, labels_of, part, text

DAEMON = "slurmd"
_HOST_NAME = "nodeset.slinky.slurm.net/pod-hostname"
"""The label in which its operator keeps what Slurm calls the pod, also where the pod stands in its host's own network."""
_IMAGE = re.compile(rf"(?:\A|/)(?:[\w.-]*[_-])?{DAEMON}(?:[:@]|\Z)")
"""An image whose name ends so: `slurm_exporter` and `slurmd-metrics` are none."""
_SHELLS = ("sh", "bash", "tini", "dumb-init", "exec", "--", "-c", "env")
_OF_NODE = re.compile(rf"\b{DAEMON}\b[^;&|\n]*?\s-N\s*([A-Za-z][\w.-]{{0,252}})(?=\s|\Z)")


def is_slurmd(pod: KubeObject) -> bool:
    """Whether a pod runs slurmd: by its controller, or by the name, the image or the program of one of its containers."""
    owner = controller_of(pod)
    if owner is not None and owner.get("kind") == "NodeSet" and "slinky" in str(owner.get("apiVersion")):
        return True
    return any(map(runs_slurmd, items(pod, "spec", "containers")))


def runs_slurmd(container: Mapping[str, Any]) -> bool:
    """Whether a container is a slurmd's."""
    if container.get("name") == DAEMON or _IMAGE.search(str(container.get("image") or "")):
        return True
    return _program(container) == DAEMON


def names_in_slurm(pod: KubeObject) -> frozenset[str]:
    """What Slurm may call a pod that runs slurmd, folded: its operator's label, its host name, `slurmd -N`, its own name."""
    own = text(part(pod, "metadata"), "name")
    given = (text(labels_of(pod), _HOST_NAME), text(part(pod, "spec"), "hostname"), own)
    asked = (found[1] for one in items(pod, "spec", "containers") if (found := _OF_NODE.search(_line(one))))
    return frozenset({folded(name) for name in (*given, *asked) if name} - NOBODYS)


def _line(container: Mapping[str, Any]) -> str:
    return " ".join(_words(container))


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "args"):
        given = container.get(key)
        if isinstance(given, list):
            yield from (str(word) for word in given)


def _program(container: Mapping[str, Any]) -> str:
    """What a container starts, without folders, and past the shell that starts it."""
    for word in _line(container).split():
        name = word.rpartition("/")[2]
        if name not in _SHELLS:
            return name
    return ""
