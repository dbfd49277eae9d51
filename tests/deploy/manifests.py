"""Reads the manifests as `kubectl apply -k` would: resources in order, the namespace put into what has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

BASE = Path(__file__).parents[2] / "k8s" / "base"
NODE_WORK = BASE.parent / "node-work"
FEATURES = BASE.parent / "features"
CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding"}


def objects() -> Iterator[dict[str, Any]]:
    """Every object of the base, ready to be applied."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        for content in yaml.safe_load_all((BASE / name).read_text()):
            if content["kind"] not in CLUSTER_SCOPED:
                content["metadata"]["namespace"] = kustomization["namespace"]
            yield content
