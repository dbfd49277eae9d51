"""What is mounted where: processes watch these folders, and an update must arrive whole and without a restart."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from faultline.runtime.settings import load
from tests.deploy.manifests import BASE, COMPONENT_DIR
from tests.deploy.test_manifests import DEPLOYMENTS


def added(component: str) -> dict[str, list[Any]]:
    """What a component adds to every process, by the list it adds it to."""
    (patch,) = yaml.safe_load((COMPONENT_DIR / component / "kustomization.yaml").read_text())["patches"]
    found: dict[str, list[Any]] = {}
    for change in yaml.safe_load(patch["patch"]):
        if change["op"] == "add" and change["path"].endswith("/-"):
            found.setdefault(PurePosixPath(change["path"]).parent.name, []).append(change["value"])
    return found


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_settings_are_a_whole_folder_that_the_process_is_told_of(name: str) -> None:
    (container,) = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
    assert container["env"][0] == {"name": "FAULTLINE_CONFIG", "value": "/etc/faultline/faultline.yaml"}
    mount = container["volumeMounts"][0]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/faultline", True)


def test_nothing_is_mounted_by_a_sub_path() -> None:
    """The kubelet exchanges a folder's link `..data`; a file that is mounted alone keeps its first content for ever."""
    files = [*BASE.glob("*.yaml"), *COMPONENT_DIR.glob("*/*.yaml")]
    assert [file.name for file in files if "subPath" in file.read_text()] == []


@pytest.mark.parametrize("component", ["runbooks", "catalog"])
def test_a_folder_of_the_sites_own_is_beside_the_settings(component: str) -> None:
    parts = added(component)
    (mount,), (volume,), (variable,) = parts["volumeMounts"], parts["volumes"], parts["env"]
    assert mount["mountPath"] == f"/etc/faultline/{component}"
    assert (mount["name"], volume["configMap"]["name"]) == (volume["name"], f"faultline-{component}")
    assert mount["mountPath"] in variable["value"]


@pytest.mark.parametrize("component", ["runbooks", "git-sync"])
def test_the_variable_for_runbooks_is_one_that_the_settings_take(
    component: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (value,) = [one["value"] for one in added(component)["env"] if one["name"].endswith("RUNBOOK_DIRS")]
    monkeypatch.setenv("FAULTLINE_RESPONDER__RUNBOOK_DIRS", value)
    assert [str(one) for one in load(None).responder.runbook_dirs] == json.loads(value)
