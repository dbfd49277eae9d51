"""Pods stuck Terminating on a dead node, and releasing them with the out-of-service taint.

Pure decisions over Node and Pod objects as the API server shows them.

Only a kubelet can confirm that a deleted pod has ended. If it is dead, the pod stays Terminating for ever, and a controller
that reuses the pod name never creates the next one. Kubernetes resolves this with a taint:

    taint       node.kubernetes.io/out-of-service=nodeshutdown:NoSchedule
    annotation  faultline.dev/out-of-service   the incident for which Faultline added it

While a node has it *and* is not Ready, the pod garbage collector of kube-controller-manager removes what is Terminating there.
Sources: Kubernetes, "Non-graceful node shutdown handling"; podgc `gcTerminating`.
Design decision: docs/decisions/006-what-a-dead-node-keeps.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from connectors.kubernetes.annotations import GIVEN_UP, annotations_of
from connectors.kubernetes.client import Object
from streams.model.clock import parse_rfc3339

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoSchedule"}
"""As Faultline adds it. `NoExecute` would free the same pods and evict everything else from the node besides."""
OVERDUE_S = 5.0
"""Allowance for clock skew: a pod counts as stuck this long after the end of its grace period."""


def is_leaving(pod: Object) -> bool:
    """True once the pod is Terminating."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def hangs(pod: Object, now: datetime) -> bool:
    """True for a pod that is Terminating past its grace period: `deletionTimestamp` is when that ends, not when it started."""
    ends = pod["metadata"].get("deletionTimestamp")
    return bool(ends) and now >= parse_rfc3339(str(ends)) + timedelta(seconds=OVERDUE_S)


def given_up_for(node: Object) -> str | None:
    """The incident for which Faultline declared the node out of service; None when it did not."""
    return annotations_of(node).get(GIVEN_UP)


def is_out_of_service(node: Object) -> bool:
    """True when the node has the taint, whoever added it."""
    return any(taint.get("key") == OUT_OF_SERVICE for taint in _taints(node))


def declared(node: Object, incident: str) -> Object:
    """The patch that declares a node out of service."""
    return {
        "metadata": {"annotations": {GIVEN_UP: incident}},
        "spec": {"taints": [*_taints(node), dict(TAINT)]},
    }


def taken_back(node: Object) -> Object:
    """The patch that reverts Faultline's declaration. A taint that differs from what it wrote belongs to someone else."""
    return {
        "metadata": {"annotations": {GIVEN_UP: None}},
        "spec": {"taints": without_declaration(_taints(node)) or None},
    }


def without_declaration(taints: list[Object]) -> list[Object]:
    """The taints but for Faultline's declaration."""
    return [taint for taint in taints if {key: taint.get(key) for key in TAINT} != TAINT]


def _taints(node: Object) -> list[Object]:
    return list(node.get("spec", {}).get("taints") or [])
