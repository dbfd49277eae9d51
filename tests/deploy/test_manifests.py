from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.processes import PROCESSES
from faultline.settings import load
from streams.model.run import Mode
from tests.deploy.manifests import BASE, objects

DEPLOYMENTS = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "Deployment"}
ROLES = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "ClusterRole"}


def test_every_file_of_the_base_is_applied() -> None:
    named = set(yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"])
    assert named == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}


def test_there_is_a_deployment_for_every_process() -> None:
    assert {
        name: d["spec"]["template"]["spec"]["containers"][0]["args"] for name, d in DEPLOYMENTS.items()
    } == {name: ["run", name] for name in PROCESSES}


def test_the_settings_that_ship_are_usable_and_touch_nothing(tmp_path: Path) -> None:
    config = next(o for o in objects() if o["kind"] == "ConfigMap")
    file = tmp_path / "faultline.yaml"
    file.write_text(config["data"]["faultline.yaml"])
    assert load(file).responder.mode is Mode.SHADOW


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_process_runs_without_privileges_and_is_probed(name: str) -> None:
    pod: dict[str, Any] = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert (
        container["livenessProbe"]["httpGet"]["path"],
        container["readinessProbe"]["httpGet"]["path"],
    ) == (
        "/live",
        "/ready",
    )


def test_only_the_responder_may_change_anything_and_never_delete() -> None:
    verbs = {name: {verb for rule in role["rules"] for verb in rule["verbs"]} for name, role in ROLES.items()}
    assert verbs["faultline-inventory"] == {"list", "watch"}
    assert verbs["faultline-responder"] == {"get", "list", "patch", "create"}
    created = [
        rule["resources"] for rule in ROLES["faultline-responder"]["rules"] if "create" in rule["verbs"]
    ]
    assert created == [["pods/eviction"]]
