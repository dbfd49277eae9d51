"""The repository of docs/gitops.md, built: kustomize takes what is on the page, and names of ConfigMaps stay the same."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import BASE
from tests.deploy.test_chart import kustomized, objects_of

pytestmark = pytest.mark.cluster

PAGE = (BASE.parents[1] / "docs" / "gitops.md").read_text()


def test_the_repository_of_the_page_builds_and_its_files_are_mounted_by_every_process(tmp_path: Path) -> None:
    folder = tmp_path / "clusters" / "gpu-east-1"
    paths = re.findall(r"^clusters/gpu-east-1/(\S+)$", PAGE, re.MULTILINE)
    contents = {"faultline.yaml": "cluster: gpu-east-1\n", "kustomization.yaml": ""}
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(contents.get(path, f"# {path}\n"))
    text = re.search(r"^```yaml\n# clusters/gpu-east-1/kustomization.yaml\n(.*?)^```$", PAGE, re.M | re.S)
    assert text is not None
    here = os.path.relpath(BASE.parents[1], folder.resolve())
    # Fetching needs a network; a path needs none.
    local = re.sub(r"github\.com/ORGANISATION/faultline//(\S+?)\?ref=v0\.1\.0", rf"{here}/\1", text[1])
    (folder / "kustomization.yaml").write_text(local)

    built = objects_of(kustomized(folder))
    maps = {name: one["data"] for (kind, _, name), one in built.items() if kind == "ConfigMap"}
    assert {name: set(data) for name, data in maps.items()} == {
        "faultline": {"faultline.yaml"},
        "faultline-runbooks": {"our-gpu-reset.yaml"},
        "faultline-catalog": {"lines.nccl.yaml"},
    }
    assert maps["faultline"]["faultline.yaml"] == {"cluster": "gpu-east-1"}
    deployments = [one for (kind, _, _), one in built.items() if kind == "Deployment"]
    assert len(deployments) == 7
    for one in deployments:
        pod = one["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "REGISTRY/faultline:0.1.0"
        mounted = {volume["configMap"]["name"] for volume in pod["volumes"]}
        assert mounted == set(maps)


@pytest.mark.parametrize("kind", ["Application", "Kustomization", "HelmRelease"])
def test_an_example_for_a_carrier_is_whole_and_names_what_is_here(kind: str) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    (one,) = [block for text in blocks if (block := yaml.safe_load(text)).get("kind") == kind]
    assert one["metadata"]["name"].startswith("faultline")
    assert one["spec"]
    if kind == "HelmRelease":
        known = yaml.safe_load((BASE.parent / "chart" / "values.yaml").read_text())
        assert one["spec"]["values"].keys() <= known.keys()
