"""Kinds of objects that an operator brings along, without the operator: the server keeps their fields, whatever they are."""

from __future__ import annotations

from pathlib import Path

from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.work_object_templates import ObjectTemplate
from tests.testbed.waiting import eventually

LEADER_WORKER_SETS = Path(__file__).parent / "crds" / "leaderworkerset.yaml"
NAMESPACED = {"Certification", "Machine", "SelfNodeRemediation", "FenceAgentsRemediation"}


async def serve(cluster: Cluster, template: ObjectTemplate) -> None:
    """Have the server take objects of a template's kind, and wait until it does."""
    group, _, version = template.object["apiVersion"].partition("/")
    if not version:
        return
    kind, plural = template.object["kind"], template.rights[0].resources[0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served: Object = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    served["subresources"] = {"status": {}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if kind in NAMESPACED else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [served],
        },
    }
    if group.endswith(".k8s.io"):  # a name that the Kubernetes community has to approve
        definition["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}  # type: ignore[index]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    try:
        await cluster.create(path, definition)
    except AlreadyExists:
        pass

    async def is_served() -> bool:
        try:
            resource = await cluster.resource(template.kind)
            await cluster.list_all(resource.path())
        except NotFound:
            return False
        return True

    await eventually(is_served, f"{template.kind} is served")
