"""`doctor` on a real API server with service accounts that may do what the manifests give, or less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.checks.cluster_probe import probe_cluster
from faultline.checks.finding import CheckFinding
from faultline.runtime.settings import Settings
from tests.deploy.manifests import objects
from tests.testbed.control_plane import ControlPlane
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

ACCOUNTS = {
    name: f"system:serviceaccount:faultline:{name}" for name in ("inventory", "responder", "detector")
}
POOL = "checked"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The base of the manifests without its deployments, and two nodes of a pool."""
    items = [one for one in objects() if one["kind"] != "Deployment" and one["kind"] != "Job"]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed))
    control_plane.add_nodes(POOL, 2, labels={"faultline.dev/pool": POOL})
    yield control_plane
    control_plane.remove_pool(POOL)


def settings(cluster: ControlPlane, account: str, **sections: Any) -> Settings:
    kubeconfig = cluster.kubeconfig(ACCOUNTS[account])
    return Settings(kubernetes={"kubeconfig": kubeconfig}, **sections)


async def faults(cluster: ControlPlane, account: str, process: str, **sections: Any) -> list[CheckFinding]:
    told = await probe_cluster(settings(cluster, account, **sections), (process,))
    return [finding for finding in told if finding.level == "fault"]


@pytest.mark.parametrize("process", ["inventory", "responder"])
async def test_the_account_of_the_manifests_may_do_all_that_its_process_does(
    installed: ControlPlane, process: str
) -> None:
    async def none_is_missing() -> bool:
        return not await faults(installed, process, process, responder={"mode": "auto"})

    await eventually(none_is_missing, "the authorizer knows the roles")


async def test_each_missing_right_is_named_with_who_lacks_it_and_what_to_apply(
    installed: ControlPlane,
) -> None:
    (told,) = await faults(installed, "detector", "responder", responder={"mode": "auto"})
    assert told.what.startswith(f"{ACCOUNTS['detector']} may not get, list, patch nodes; ")
    assert told.what.endswith(", as responder does")
    assert {"create pods/eviction", "list poddisruptionbudgets.policy"} <= set(
        told.what.removesuffix(", as responder does").split("; ")
    )
    # Never the manifests as they are: those have another cluster's settings, and rights that a shadow installation has not.
    assert "your overlay" in told.remedy
    assert told.command == f"kubectl auth can-i get nodes --as {ACCOUNTS['detector']}"


async def test_in_a_pod_of_one_process_only_its_own_rights_are_looked_at(installed: ControlPlane) -> None:
    every = ("inventory", "responder", "detector")

    async def of(account: str) -> list[str]:
        told = await probe_cluster(settings(installed, account, responder={"mode": "auto"}), every)
        return [finding.what for finding in told if finding.level != "note"]

    async def none_is_missing() -> bool:
        return [await of(account) for account in every] == [[], [], []]

    await eventually(none_is_missing, "the authorizer knows the roles")


async def test_in_shadow_the_responder_is_asked_for_nothing_that_changes_a_thing(
    installed: ControlPlane,
) -> None:
    told = await faults(installed, "detector", "responder", responder={"mode": "shadow"})
    assert any("may not get" in finding.what or "may not list" in finding.what for finding in told)
    assert [one.what for one in told if " patch " in one.what or " create " in one.what] == []


async def test_the_right_for_node_work_is_asked_for_where_it_is_configured(
    installed: ControlPlane, tmp_path: Path
) -> None:
    template = tmp_path / "reset.yaml"
    template.write_text(yaml.safe_dump({}))
    work = {"reset_gpu": template, "namespace": "elsewhere"}
    (finding,) = await faults(installed, "responder", "responder", node_work=work, responder={"mode": "auto"})
    assert "may not create jobs.batch in elsewhere" in finding.what
    assert finding.remedy.startswith("add components/node-work to your overlay")


async def test_a_pool_that_no_node_is_in_and_a_canary_that_does_not_exist_are_found(
    installed: ControlPlane,
) -> None:
    rollout = [
        {
            "pool": POOL,
            "stage": "canary",
            "canary_nodes": ["checked-*", "other-1"],
            "until": "2999-01-01T00:00:00Z",
        },
        {"pool": "nowhere", "stage": "act"},
        {"pool": "*", "stage": "observe"},
    ]
    told = await faults(installed, "inventory", "inventory", responder={"rollout": rollout})
    assert [finding.where for finding in told] == [
        "responder.rollout.0.canary_nodes",
        "responder.rollout.1.pool",
    ]


async def test_hosts_of_the_topology_file_that_are_no_nodes_are_a_warning(
    installed: ControlPlane, tmp_path: Path
) -> None:
    file = tmp_path / "topology.yaml"
    node = sorted(one["metadata"]["name"] for one in installed.get("nodes"))[0]
    ports = {port: {"node": name, "nic": "mlx5_0"} for port, name in (("Eth1", node), ("Eth2", "gone-7"))}
    file.write_text(yaml.safe_dump({"leaf-1": ports}))
    told = await probe_cluster(
        settings(installed, "inventory", inventory={"topology_file": file}), ("inventory",)
    )
    (finding,) = [one for one in told if "topology_file" in one.where]
    assert (finding.level, "gone-7" in finding.what, node in finding.what) == ("warning", True, False)


async def test_credentials_that_are_not_accepted_are_one_fault(
    installed: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(installed.kubeconfig(ACCOUNTS["inventory"]).read_text())
    config["users"][0]["user"] = {"token": "not-a-token"}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    (finding,) = await probe_cluster(Settings(kubernetes={"kubeconfig": file}), ("inventory",))
    assert finding.level == "fault"
    assert "401" in finding.what
