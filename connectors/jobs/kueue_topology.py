"""When Kueue itself replaces one node of a job, and how that is seen. Pure, over Workloads, pods and nodes.

Under topology-aware scheduling Kueue has assigned each pod of a Workload to a node. Where the pods of one node are gone and
nothing can be scheduled there, it puts the node into `status.unhealthyNodes`, looks for another, and the list is empty again; the
rest of the job keeps its place and its quota. It does not do that for a second node at once (it evicts the Workload:
NodeFailures), nor for Workloads of one pod. Source: Kueue, "Topology Aware Scheduling", "Hot
swap support".

    annotation  faultline.dev/replaces   of the Workload: key of the effect, the node, and until when Kueue has to replace it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from connectors.jobs.kueue_settings import KueueSettings
from connectors.jobs.kueue_workload import is_active, is_admitted
from connectors.kubernetes.annotations import DOMAIN, annotations_of
from connectors.kubernetes.client import Object
from streams.model.clock import parse_rfc3339, rfc3339
from streams.model.errors import BadInput
from streams.model.kube_objects import KubeObject, items, part, text, whole

REPLACES = f"{DOMAIN}/replaces"
HOSTNAME = "kubernetes.io/hostname"
LONGEST_S = 300.0
"""How long Kueue is given to replace a node; then the job goes back to its queue, within the same step."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that Kueue is to replace for an effect, until a deadline."""

    key: str
    node: str
    until: datetime

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.key} {self.node} {rfc3339(self.until)}"


def replacement_of(workload: Object) -> Replacement | None:
    """The last one; None where there is none, or somebody has changed the annotation."""
    match annotations_of(workload).get(REPLACES, "").split():
        case [key, node, until]:
            with suppress(BadInput):
                return Replacement(key, node, parse_rfc3339(until))
    return None


def within_s(settings: KueueSettings) -> float:
    """How long Kueue is given: well inside of its own patience, after which it evicts the Workload."""
    return min(LONGEST_S, settings.recovery_s / 2)


def why_not(
    workload: Object, pods: Sequence[Object], closed: Mapping[str, Object], settings: KueueSettings
) -> str:
    """Why Kueue would not replace the closed node of this Workload; empty where it would."""
    there = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") in closed}
    if not is_active(workload) or not is_admitted(workload):
        return "it is not admitted"
    if not assigned_nodes(workload):
        return "Kueue has not assigned its pods to nodes"
    if sum(whole(one.get("count")) or 0 for one in items(workload, "spec", "podSets")) < 2:
        return "it has one pod"
    if len(there | set(unhealthy_nodes(workload))) != 1 or not there:
        return "it does not lose exactly one node"
    requeued = whole(part(workload, "status", "requeueState").get("count")) or 0
    if settings.requeues is not None and requeued >= settings.requeues:
        return f"it was requeued {requeued} times, and Kueue would deactivate it if that came too late"
    return ""


def unhealthy_nodes(workload: Object) -> list[str]:
    """The nodes for which Kueue looks for others."""
    return [str(one.get("name")) for one in items(workload, "status", "unhealthyNodes")]


def assigned_nodes(workload: Object) -> set[str]:
    """The nodes to which Kueue has assigned its pods; empty without a topology whose lowest level is the node."""
    found: set[str] = set()
    for one in items(workload, "status", "admission", "podSetAssignments"):
        assignment = part(one, "topologyAssignment")
        levels = assignment.get("levels")
        if isinstance(levels, list) and levels and levels[-1] == HOSTNAME:
            found |= set(_named(assignment))
    return found


def _named(assignment: KubeObject) -> Iterator[str]:
    """The names of the lowest level: of v1beta1 a list of domains, since v1beta2 slices with what they share written once."""
    for domain in items(assignment, "domains"):
        values = domain.get("values")
        if isinstance(values, list) and values:
            yield str(values[-1])
    for piece in items(assignment, "slices"):
        lowest = [*items(piece, "valuesPerLevel")][-1:]
        for level in lowest:
            each = part(level, "individual")
            roots = each.get("roots")
            prefix, suffix = text(each, "prefix") or "", text(each, "suffix") or ""
            if isinstance(roots, list):
                yield from (f"{prefix}{root}{suffix}" for root in roots)
            elif (universal := text(level, "universal")) is not None:
                yield universal
