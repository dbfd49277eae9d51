"""The component that mounts Slurm's token sets what the two processes need, and nothing that the settings do not know."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from faultline.runtime.settings import load
from tests.deploy.manifests import COMPONENT_DIR


@pytest.mark.parametrize("process", ["inventory", "responder"])
def test_the_component_sets_slurmrestd_and_mounts_its_token(
    process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = yaml.safe_load((COMPONENT_DIR / "slurm" / f"{process}.yaml").read_text())
    pod = patch["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    slurm = load(None).slurm
    assert slurm.on
    assert slurm.token_file is not None
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert Path(mount["mountPath"]) == slurm.token_file.parent
    assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
    assert patch["metadata"]["name"] == container["name"] == process


def test_each_patch_is_named_in_the_component() -> None:
    folder = COMPONENT_DIR / "slurm"
    named = {one["path"] for one in yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]}
    assert named == {file.name for file in folder.iterdir()} - {"kustomization.yaml"}
