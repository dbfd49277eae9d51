"""Annotations, labels and the taint that Faultline writes on objects, and the opt-out that operators write.

Every change carries the incident and the key of the effect, so that a process that knows only the effect can tell what was done,
and operators see it in `kubectl describe`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOMAIN = "faultline.dev"
INCIDENT = f"{DOMAIN}/incident"
"""Annotation: the incident an object is held for, on a node several, separated by commas. Also the key of the taint."""
EFFECT = f"{DOMAIN}/effect"
"""Annotation of a node: the keys of the effects that hold it, in the order of the incidents."""
PRIOR = f"{DOMAIN}/prior"
"""Annotation of a node: `schedulable` or `unschedulable`, as it was before the first incident cordoned it."""
GIVEN_UP = f"{DOMAIN}/out-of-service"
"""Annotation of a node: the incident for which Faultline declared it out of service."""
POWER = f"{DOMAIN}/power"
"""Annotation of a node: what Faultline does, or did last, to its power, and whether it was seen to be off (`power_mark`)."""
RUN = f"{DOMAIN}/run"
"""Annotation of a Job that Faultline created: the run it is part of."""
NODE_WORK = f"{DOMAIN}/node-work"
"""Label of a Job that Faultline created, and of its pod: the action it executes. The inventory leaves both out."""
WORK_NODE = f"{DOMAIN}/node"
"""Annotation of such a Job: the node it works on."""
WORK_BOOT_ID = f"{DOMAIN}/boot-id"
"""Annotation of such a Job: `status.nodeInfo.bootID` of the node when the work was planned."""
MANAGED = f"{DOMAIN}/managed"
"""Label or annotation that operators set to `false` to opt an object out."""
SLINKY_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
"""Annotation of a node, read by slurm-operator when the node is cordoned: why it drains the node of Slurm that runs there."""


def effect_mark(action: str) -> str:
    """The annotation that holds the key of the last effect of one action on an object, e.g. of `suspend_job`."""
    return f"{EFFECT}-{action}"


def annotations_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The annotations of any object; empty where it has none."""
    return dict(thing.get("metadata", {}).get("annotations") or {})


def labels_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The labels of any object; empty where it has none."""
    return dict(thing.get("metadata", {}).get("labels") or {})


def opted_out(thing: Mapping[str, Any]) -> bool:
    """True when this object is opted out."""
    return "false" in (labels_of(thing).get(MANAGED), annotations_of(thing).get(MANAGED))
