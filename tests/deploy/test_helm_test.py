"""`helm test` as the chart renders it, run on a real broker and API server with the account and the settings that its pod has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from streams.kafka import installation, provisioning
from tests.deploy import render
from tests.deploy.manifests import BASE
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import until

pytestmark = [pytest.mark.helm, pytest.mark.cluster, pytest.mark.kafka]

SHADOW = BASE.parent / "overlays" / "shadow" / "values.yaml"


@pytest.mark.parametrize(
    ("mode", "files"), [("shadow", [SHADOW]), ("auto", [])], ids=["shadow without rights", "auto"]
)
def test_a_healthy_installation_passes_and_one_without_topics_fails(
    control_plane: ControlPlane, kafka: Kafka, tmp_path: Path, mode: str, files: list[Path]
) -> None:
    broker = kafka.settings("helm-test")
    values = {
        "cluster": "east-1",
        "mode": mode,
        "kafka": {"bootstrap": broker.bootstrap},
        "settings": {"kafka": broker.model_dump(mode="json", exclude={"bootstrap"}, exclude_unset=True)},
    }
    rendered = [one for one in yaml.safe_load_all(render.template(values, *files)) if one]
    given = [
        one
        for one in rendered
        if one["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    ]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": render.RELEASE}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [space, *given]}
    own = ["--selector", f"app.kubernetes.io/instance={render.RELEASE}"]
    control_plane.kubectl("delete", "clusterroles,clusterrolebindings", "--ignore-not-found", *own)
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed))

    (check,) = (one["spec"] for one in rendered if one["metadata"]["name"] == "check")
    (config,) = (one for one in rendered if "faultline.yaml" in one.get("data", {}))
    file = tmp_path / "faultline.yaml"
    file.write_text(config["data"]["faultline.yaml"])
    account = f"system:serviceaccount:{render.RELEASE}:{check['serviceAccountName']}"
    variables = {
        "FAULTLINE_CONFIG": str(file),
        "FAULTLINE_KUBERNETES__KUBECONFIG": str(control_plane.kubeconfig(account)),
    }

    def helm_test() -> Result:
        return CliRunner().invoke(cli, [*check["containers"][0]["args"], "--output", "json"], env=variables)

    assert helm_test().exit_code == 1, "no topics"
    asyncio.run(provisioning.apply(broker))
    asyncio.run(installation.claim(broker, "east-1", "topics apply on a test machine"))
    until(lambda: helm_test().exit_code == 0, "the authorizer knows the roles")
    told = helm_test().output
    assert "0 faults, 0 unreachable" in told
    # A warning may tell of what is not set, such as tickets in `auto`; never of rights, topics or the broker.
    warnings = [one for one in told.splitlines() if '"record":"warning"' in one]
    assert [one for one in warnings if '"where":"tickets.system' not in one] == []
