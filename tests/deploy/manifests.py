"""Reads the manifests as `kubectl apply -k` would, and writes kustomizations over them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

BASE = Path(__file__).parents[2] / "k8s" / "base"
COMPONENT_DIR = BASE.parent / "components"
NODE_WORK = COMPONENT_DIR / "node-work"
CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding"}


def objects() -> Iterator[dict[str, Any]]:
    """Every object of the base, ready to be applied."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        for content in yaml.safe_load_all((BASE / name).read_text()):
            if content["kind"] not in CLUSTER_SCOPED:
                content["metadata"]["namespace"] = kustomization["namespace"]
            yield content


def overlay(folder: Path, *components: str, on: Path = BASE) -> Path:
    """Write a kustomization that puts components on the base, or on another overlay; return its folder."""

    def here(path: Path) -> str:
        return os.path.relpath(path, folder.resolve())

    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [here(on)],
        "components": [here(COMPONENT_DIR / name) for name in components],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return folder
