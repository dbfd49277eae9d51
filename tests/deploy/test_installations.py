"""Every overlay, every component and the chart on a real API server: taken as they are, admitted, and without rights to spare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import tests.testbed
from connectors.base import Done, Effect, NoLease, Refused
from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.config.connector_settings import KubernetesSettings
from streams.model.run import Target
from tests.deploy import render, strimzi
from tests.deploy.manifests import BASE, COMPONENT_DIR, overlay
from tests.deploy.test_chart import kustomized
from tests.testbed.control_plane import ControlPlane, KubectlFailed, unique
from tests.testbed.waiting import eventually, until
from tests.tiers import sample

pytestmark = [pytest.mark.cluster, pytest.mark.helm]

OPERATORS = Path(tests.testbed.__file__).parent / "crds" / "operators.yaml"
OVERLAYS = sorted(path.parent.name for path in (BASE.parent / "overlays").glob("*/kustomization.yaml"))
EVERYTHING = {
    "jobs": {path.parent.name.removeprefix("jobs-"): True for path in COMPONENT_DIR.glob("jobs-*/rbac.yaml")},
    "runbooks": {"existingConfigMap": "faultline-runbooks"},
    "catalog": {"existingConfigMap": "faultline-catalog"},
    "priorityClassName": "system-cluster-critical",
    **{
        name: {"enabled": True}
        for name in (
            "gpuDrain",
            "podExec",
            "nodeWork",
            "diagnostics",
            "templates",
            "redfish",
            "slurm",
            "archive",
            "keda",
            "podMonitor",
            "prometheusRules",
            "dashboards",
            "serviceMonitor",
        )
    },
}
"""Every switch of the chart."""
FOUND_AGAIN = (
    "deployments,jobs,services,configmaps,secrets,serviceaccounts,roles,rolebindings,poddisruptionbudgets,resourcequotas,"
    "networkpolicies,scaledobjects,podmonitors,servicemonitors,prometheusrules"
)
CLUSTER_WIDE = "clusterroles,clusterrolebindings,namespaces"


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A server that knows the operators' kinds; what is installed goes again, for its pods would take other tests' nodes."""
    control_plane.define(OPERATORS)
    beside = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": strimzi.NAMESPACE}}
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(beside))
    yield control_plane
    for kind in ("deployments", "jobs", "poddisruptionbudgets", "resourcequotas"):
        control_plane.kubectl("delete", kind, "--all", "--namespace", "faultline", "--wait=false")


def apply(cluster: ControlPlane, folder: Path) -> None:
    """Apply a kustomization as docs/install.md says: a topics Job of another one is in the way, for no Job can be changed."""
    of_topics = ["--selector", "app.kubernetes.io/component=topics"]
    cluster.kubectl("delete", "job", "--namespace", "faultline", "--ignore-not-found", *of_topics)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--validate=strict", "-k", str(folder))


def pods_of(objects: str, namespace: str) -> list[dict[str, Any]]:
    """A pod for each template, as a controller would make it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"of-{one['metadata']['name']}",
                "namespace": namespace,
                "labels": one["spec"]["template"]["metadata"]["labels"],
            },
            "spec": one["spec"]["template"]["spec"],
        }
        for one in yaml.safe_load_all(objects)
        if one and one["kind"] in ("Deployment", "Job")
    ]


def admits(cluster: ControlPlane, objects: str, namespace: str = "faultline") -> int:
    """Have the server admit a pod of each template, by the namespace's Pod Security; return how many there are."""
    pods = pods_of(objects, namespace)
    items = {"apiVersion": "v1", "kind": "List", "items": pods}
    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(items))
    return len(pods)


@pytest.mark.parametrize("name", sample(["base", *OVERLAYS], "shadow"))
def test_an_overlay_is_taken_as_it_is_and_its_pods_are_admitted(cluster: ControlPlane, name: str) -> None:
    folder = BASE if name == "base" else BASE.parent / "overlays" / name
    apply(cluster, folder)
    enforced = cluster.get("namespace", "faultline")["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"
    assert admits(cluster, kustomized(folder)) >= 7


def test_pod_security_is_really_enforced(cluster: ControlPlane) -> None:
    apply(cluster, BASE)
    loosened = kustomized(BASE).replace("runAsNonRoot: true", "runAsNonRoot: false")
    with pytest.raises(KubectlFailed, match="violates PodSecurity"):
        admits(cluster, loosened)


@pytest.mark.nightly
def test_all_components_together_are_taken_and_their_pods_admitted(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    there = {path.parent.name for path in COMPONENT_DIR.glob("*/kustomization.yaml")}
    # It takes the place of runbooks and catalog, and sets the same variables.
    folder = overlay(tmp_path, *sorted(there - {"git-sync"}))
    apply(cluster, folder)
    assert admits(cluster, kustomized(folder)) >= 8
    for kind in ("scaledobjects", "podmonitors", "servicemonitors", "resourcequotas"):
        assert cluster.get(kind, "--namespace", "faultline"), kind
        cluster.kubectl("delete", kind, "--all", "--namespace", "faultline")


@pytest.mark.nightly
def test_a_sidecar_that_carries_a_repository_is_admitted(cluster: ControlPlane, tmp_path: Path) -> None:
    folder = overlay(tmp_path, "git-sync")
    apply(cluster, folder)
    assert admits(cluster, kustomized(folder)) >= 7


def left_over(cluster: ControlPlane, release: str) -> list[str]:
    """What is labelled as a release's, of every kind that the chart can render."""
    selector = f"app.kubernetes.io/instance={release}"
    found = cluster.kubectl(
        "get", FOUND_AGAIN, "--all-namespaces", "--selector", selector, "-o", "name"
    ).split()
    return found + cluster.kubectl("get", CLUSTER_WIDE, "--selector", selector, "-o", "name").split()


def test_the_chart_is_upgraded_rolled_back_and_uninstalled_without_a_trace(cluster: ControlPlane) -> None:
    release = unique("chart")
    cluster.kubectl("create", "namespace", release)
    cluster.kubectl("label", "namespace", release, "pod-security.kubernetes.io/enforce=restricted")
    kubeconfig = cluster.kubeconfig()

    def helm(verb: str, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        given = ["--values=-"] if values is not None else []
        stdin = json.dumps(values) if values is not None else None
        return render.helm(
            verb, release, *arguments, *given, f"--namespace={release}", stdin=stdin, kubeconfig=kubeconfig
        )

    def state() -> tuple[str, list[str]]:
        (config,) = (
            one
            for one in cluster.get("configmaps", "--namespace", release)
            if one["metadata"]["name"] == "faultline"
        )
        return config["data"]["faultline.yaml"], sorted(left_over(cluster, release))

    told = helm("install", str(render.CHART), values={"cluster": "east-1"})
    assert "in mode shadow: everything is decided and recorded, and nothing is touched" in told
    assert f"helm test {release}" in told
    first = state()
    assert (
        admits(
            cluster,
            render.helm("get", "manifest", release, f"--namespace={release}", kubeconfig=kubeconfig),
            release,
        )
        == 8
    )

    more = {
        **EVERYTHING,
        "cluster": "east-1",
        "mode": "approve",
        "nodeWork": {"enabled": True, "namespace": f"{release}-work"},
    }
    helm("upgrade", str(render.CHART), values=more)
    second = state()
    assert "mode: approve" in second[0]
    assert len(second[1]) > len(first[1]) + 30
    # Another variable is another Job: a Job cannot be changed, and a chart that tried would never be upgraded again.
    helm(
        "upgrade", str(render.CHART), values={"cluster": "east-1", "extraEnv": [{"name": "A", "value": "b"}]}
    )
    jobs = cluster.get("jobs", "--namespace", release)
    assert [one["metadata"]["name"] for one in jobs if "deletionTimestamp" not in one["metadata"]] != [
        name.rpartition("/")[2] for name in first[1] if name.startswith("job.batch")
    ]

    helm("rollback", "1")
    until(lambda: state() == first, "everything is as it was after the installation")
    helm("uninstall")
    until(lambda: left_over(cluster, release) == [], "nothing of the release is left")
    cluster.kubectl("delete", "namespace", release, "--wait=false")


def test_nothing_of_the_chart_can_delete_a_topic() -> None:
    for values in ({}, EVERYTHING):
        rendered = [one for one in yaml.safe_load_all(render.template(values)) if one]
        assert "KafkaTopic" not in {one["kind"] for one in rendered}
        commands = {
            tuple(container["args"])
            for one in rendered
            if one["kind"] == "Job"
            for container in one["spec"]["template"]["spec"]["containers"]
        }
        assert commands == {("topics", "apply")}
        hooks = {one["metadata"].get("annotations", {}).get("helm.sh/hook") for one in rendered}
        assert hooks == {None, "test"}


@pytest.mark.parametrize(
    ("name", "may_act"), [("shadow", False), ("production", True)], ids=["shadow", "production"]
)
async def test_each_process_does_its_work_with_its_own_account_and_no_other(
    cluster: ControlPlane, name: str, may_act: bool
) -> None:
    folder = BASE.parent / "overlays" / name
    rights = [
        one
        for one in yaml.safe_load_all(kustomized(folder))
        if one["kind"] in ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    ]
    # What a component gave to the account stays when it is taken out of an overlay (docs/install.md).
    own = ["--selector", "app.kubernetes.io/instance=faultline"]
    cluster.kubectl("delete", "clusterroles,clusterrolebindings", "--ignore-not-found", *own)
    items = {"apiVersion": "v1", "kind": "List", "items": rights}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(items))
    pool = unique("own")
    (node,) = cluster.add_nodes(pool, 1)
    cordon = Effect("e-1", "cordon_node", Target("Node", node), "c1", "inc-1", "run-1", "cordon")

    async def as_account(account: str) -> Cluster:
        user = f"system:serviceaccount:faultline:{account}"
        return await Cluster.connect(KubernetesSettings(kubeconfig=cluster.kubeconfig(user)))

    async with await as_account("inventory") as inventory:

        async def sees() -> bool:
            found = await inventory.list_all(path_of("v1", "nodes"))
            return node in [one["metadata"]["name"] for one in found]

        await eventually(sees, "the inventory lists nodes")
        assert isinstance(await NodeConnector(inventory).apply(cordon, NoLease()), Refused)
    async with await as_account("responder") as responder:

        async def as_it_should() -> bool:
            outcome = await NodeConnector(responder).apply(cordon, NoLease())
            return isinstance(outcome, Done) if may_act else isinstance(outcome, Refused)

        await eventually(as_it_should, "the authorizer knows what the overlay gives")
    assert bool(cluster.get(f"node/{node}")["spec"].get("unschedulable")) is may_act
    async with await as_account("detector") as detector:
        assert isinstance(await NodeConnector(detector).apply(cordon, NoLease()), Refused)
    cluster.remove_pool(pool)
