import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.kubernetes.node_work import ACTIONS, read_templates
from faultline.archive.folder import Archive
from faultline.runtime.processes import OPTIONAL, PROCESSES
from faultline.runtime.settings import load
from streams.config.connector_settings import NodeWorkSettings
from streams.model.run import Mode
from tests.deploy.manifests import BASE, COMPONENT_DIR, NODE_WORK, objects

COMPONENTS = {
    name: next(
        one
        for one in yaml.safe_load_all((COMPONENT_DIR / name / f"{name}.yaml").read_text())
        if one["kind"] == "Deployment"
    )
    for name in sorted(OPTIONAL)
}
DEPLOYMENTS = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "Deployment"} | COMPONENTS
VERSION = tomllib.loads((BASE.parents[1] / "pyproject.toml").read_text())["project"]["version"]
ROLES = {o["metadata"]["name"]: o for o in objects() if o["kind"] == "ClusterRole"}


def test_every_file_of_the_base_is_applied() -> None:
    named = set(yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"])
    assert named == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}


def test_there_is_a_deployment_for_every_process() -> None:
    assert {
        name: d["spec"]["template"]["spec"]["containers"][0]["args"] for name, d in DEPLOYMENTS.items()
    } == {name: ["run", name] for name in PROCESSES}


def test_an_optional_process_is_a_component_that_applies_its_deployment() -> None:
    for name in COMPONENTS:
        component = yaml.safe_load((COMPONENT_DIR / name / "kustomization.yaml").read_text())
        assert (component["kind"], component["resources"]) == ("Component", [f"{name}.yaml"])
    assert COMPONENTS.keys() == set(OPTIONAL)


def test_the_component_of_the_archive_sets_an_address_that_the_settings_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (container,) = COMPONENTS["archive"]["spec"]["template"]["spec"]["containers"]
    (url,) = [e["value"] for e in container["env"] if e["name"] == "FAULTLINE_ARCHIVE__URL"]
    monkeypatch.setenv("FAULTLINE_ARCHIVE__URL", url)
    assert load().archive.url == url
    assert Archive.at(url).url == url


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


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_process_that_reads_its_state_back_is_not_killed_for_it(name: str) -> None:
    (container,) = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
    for kind in ("startupProbe", "livenessProbe"):
        # By progress alone: reading goes on for as long as there is something to read.
        assert container[kind]["httpGet"]["path"] == "/live", kind


def test_a_rollout_of_what_keeps_state_has_time_to_read_it() -> None:
    # Three minutes were seen on a busy machine with a changelog of 200,000 records; ten are the default.
    waits = {name: d["spec"].get("progressDeadlineSeconds", 600) for name, d in DEPLOYMENTS.items()}
    assert {name for name, wait in waits.items() if wait >= 3600} == {
        "correlator",
        "responder",
        "chat",
        "notifier",
    }


LABELS = {"name", "instance", "component", "part-of", "version", "managed-by"}


def test_every_object_says_what_it_belongs_to() -> None:
    files = [*BASE.glob("*.yaml"), *COMPONENT_DIR.glob("*/*.yaml")]
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    whole = [one for one in objects if is_whole(one)]
    assert len(whole) > 60
    for one in whole:
        labels = one["metadata"].get("labels", {})
        assert {f"app.kubernetes.io/{label}" for label in LABELS} <= labels.keys(), one
        version = labels["app.kubernetes.io/version"]
        assert version == VERSION, one


def is_whole(one: dict[str, Any]) -> bool:
    """Whether it is an object and no patch of one, and none of kustomize's own."""
    patch = one["kind"] == "Deployment" and "selector" not in one["spec"]
    return not patch and one["kind"] not in ("Component", "Kustomization")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_probe_waits_longer_for_an_answer_than_the_second_of_its_default(name: str) -> None:
    (container,) = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
    probes = [container[kind] for kind in container if kind.endswith("Probe")]
    assert len(probes) >= 2
    assert all(5 <= p["timeoutSeconds"] <= p["periodSeconds"] for p in probes)


def test_only_the_responder_may_change_anything_and_never_delete() -> None:
    verbs = {name: {verb for rule in role["rules"] for verb in rule["verbs"]} for name, role in ROLES.items()}
    assert verbs["faultline-inventory"] == {"list", "watch"}
    assert verbs["faultline-responder"] == {"get", "list", "patch", "create"}
    created = [
        rule["resources"] for rule in ROLES["faultline-responder"]["rules"] if "create" in rule["verbs"]
    ]
    assert created == [["pods/eviction"]]


def test_work_on_nodes_needs_one_right_more_in_a_namespace_of_its_own() -> None:
    role, binding = yaml.safe_load_all((NODE_WORK / "rbac.yaml").read_text())
    assert role["rules"] == [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}]
    assert role["kind"] == "Role"
    assert {o["metadata"]["namespace"] for o in (role, binding)} == {"faultline-node-work"}


def test_the_templates_that_ship_are_what_the_responder_is_told_to_read() -> None:
    patch = yaml.safe_load((NODE_WORK / "responder.yaml").read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    told = {e["name"].removeprefix("FAULTLINE_NODE_WORK__").lower(): e["value"] for e in container["env"]}
    files = {action: NODE_WORK / "templates" / Path(told[action]).name for action in ACTIONS}
    assert set(read_templates(NodeWorkSettings(**files))) == set(ACTIONS)
    generated = yaml.safe_load((NODE_WORK / "kustomization.yaml").read_text())["configMapGenerator"][0]
    assert {NODE_WORK / name for name in generated["files"]} == set(files.values())
    assert {Path(told[action]).parent for action in ACTIONS} == {
        Path(container["volumeMounts"][0]["mountPath"])
    }


def test_a_template_takes_no_more_privileges_than_it_says() -> None:
    pods = {
        file.stem: yaml.safe_load(file.read_text())["spec"]["template"]["spec"]
        for file in (NODE_WORK / "templates").glob("*.yaml")
    }
    assert {name: bool(pod.get("hostPID")) for name, pod in pods.items()} == {
        "reset-gpu": True,
        "reboot-node": True,
        "validate-node": False,
    }
    for pod in pods.values():
        assert pod["automountServiceAccountToken"] is False
        assert pod["containers"][0].get("securityContext", {}).get("privileged", False) is bool(
            pod.get("hostPID")
        )


def test_the_component_for_bmcs_sets_what_the_settings_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = yaml.safe_load((COMPONENT_DIR / "redfish/responder.yaml").read_text())
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    redfish = load().node_work.redfish
    assert redfish.is_set
    assert load().node_work.offers("power_cycle_node")
    (mount,) = container["volumeMounts"]
    assert str(redfish.ca_file).startswith(mount["mountPath"])
    assert redfish.user_file.startswith(mount["mountPath"])
    kustomization = yaml.safe_load((COMPONENT_DIR / "redfish/kustomization.yaml").read_text())
    assert [patch["path"] for patch in kustomization["patches"]] == ["responder.yaml"]
