"""What Kueue's own installation says that matters to a move: its version, and how long it waits for pods to recover.

Both are read where the responder may; else the defaults of the newest version hold. Source: Kueue, "Setup wait for pods ready",
API reference of its Configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.errors import Forbidden, NotFound, Unauthorized
from streams.model.kube_objects import KubeObject, items, part, text, whole

NAMESPACE = "kueue-system"
CONFIG, CONFIG_KEY = "kueue-manager-config", "controller_manager_config.yaml"
MANAGER = "kueue-controller-manager"
RECOVERY_S = 1800.0
"""`waitForPodsReady.recoveryTimeout` where it is not set: on by default since 0.19."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, slots=True)
class KueueSettings:
    """`version` is empty where it is not known; `requeues` is None there, and where Kueue requeues without a limit."""

    version: str = ""
    recovery_s: float = RECOVERY_S
    requeues: int | None = None


async def kueue_settings(cluster: Cluster) -> KueueSettings:
    """Read them; whatever is not to be read keeps its default."""
    config = await _read(cluster, path_of("v1", "configmaps", namespace=NAMESPACE, name=CONFIG))
    manager = await _read(cluster, path_of("apps/v1", "deployments", namespace=NAMESPACE, name=MANAGER))
    return settings_of(text(part(config, "data"), CONFIG_KEY) or "", manager)


def settings_of(config: str, manager: KubeObject) -> KueueSettings:
    """From the text of its configuration and the Deployment of its manager."""
    try:
        said = yaml.safe_load(config)
    except yaml.YAMLError:
        said = None
    waits = part(said if isinstance(said, dict) else {}, "waitForPodsReady")
    return KueueSettings(
        version=_version(manager),
        recovery_s=seconds(str(waits.get("recoveryTimeout") or "")) or RECOVERY_S,
        requeues=whole(part(waits, "requeuingStrategy").get("backoffLimitCount")),
    )


def seconds(duration: str) -> float | None:
    """A duration as Go writes it (`1h30m`, `180s`), in seconds; None where it is none."""
    parts = _PART.findall(duration)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != duration:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _version(manager: KubeObject) -> str:
    """By the tag of the manager's image."""
    for container in items(manager, "spec", "template", "spec", "containers"):
        image, _, tag = str(container.get("image") or "").partition("@")[0].rpartition(":")
        if container.get("name") == "manager" and image and "/" not in tag:
            return tag.removeprefix("v")
    return ""


async def _read(cluster: Cluster, path: str) -> KubeObject:
    try:
        return await cluster.get(path)
    except Unauthorized:
        raise
    except (Forbidden, NotFound):
        return {}
