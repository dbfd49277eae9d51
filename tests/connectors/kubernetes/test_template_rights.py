"""The responder's own user on a real API server: refused without the rights of the feature, and told which; at work with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from connectors.base import NoLease, Outcome, Refused, Waiting
from connectors.kubernetes.client import Cluster
from connectors.kubernetes.node_work_objects import TemplatedObjects
from streams.config.connector_settings import KubernetesSettings, NodeWorkSettings
from tests.connectors.kube_world import KubeWorld
from tests.connectors.kubernetes.test_node_work_objects_on_a_cluster import SHIPPED, closed
from tests.deploy.manifests import COMPONENT_DIR, objects, overlay
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

RESPONDER = "system:serviceaccount:faultline:responder"


async def test_the_responder_is_refused_with_the_missing_rights_and_works_once_it_has_them(
    world: KubeWorld,
) -> None:
    base = [one for one in objects() if one["kind"] != "Deployment"]
    listed = {"apiVersion": "v1", "kind": "List", "items": base}
    world.real.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed))
    effect = await closed(world, SHIPPED["nvsentinel-reboot"])
    rights = COMPONENT_DIR / "templates" / "rbac.yaml"
    settings = KubernetesSettings(kubeconfig=world.real.kubeconfig(RESPONDER))
    async with await Cluster.connect(settings) as cluster:
        connector = TemplatedObjects(cluster, NodeWorkSettings(namespace=world.namespace), SHIPPED)
        refused = await connector.apply(effect, NoLease())
        assert isinstance(refused, Refused)
        assert "get, create rebootnodes (k8s/components/templates)" in refused.reason
        world.real.kubectl("apply", "--server-side", "-f", str(rights))
        try:

            async def heard() -> Outcome | None:
                outcome = await connector.apply(effect, NoLease())
                return None if isinstance(outcome, Refused) else outcome

            assert isinstance(await eventually(heard, "the authorizer has heard of the rights"), Waiting)
        finally:
            world.real.kubectl("delete", "-f", str(rights))


async def test_the_components_fit_on_top_of_work_on_nodes(world: KubeWorld, tmp_path: Path) -> None:
    folder = overlay(tmp_path, "node-work", "templates", "diagnostics")
    built = list(yaml.safe_load_all(world.real.kubectl("kustomize", str(folder))))
    (responder,) = (b for b in built if b["kind"] == "Deployment" and b["metadata"]["name"] == "responder")
    (container,) = responder["spec"]["template"]["spec"]["containers"]
    told = {variable["name"] for variable in container["env"]}
    assert {"FAULTLINE_NODE_WORK__DIAGNOSTICS", "FAULTLINE_NODE_WORK__OBJECT_TEMPLATES"} <= told
    assert "FAULTLINE_NODE_WORK__VALIDATE_NODE" not in told
