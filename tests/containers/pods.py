"""A Pod of the API server as the flags of `podman run`: what a kubelet would set up, and nothing easier.

A field that is not translated is refused, so that a manifest cannot say something that no test heard of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_POD_FIELDS = {
    "containers",
    "securityContext",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "volumes",
    # They say where and when a pod runs, and not what is around its processes.
    "affinity",
    "dnsPolicy",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "nodeName",
    "priorityClassName",
    "preemptionPolicy",
    "priority",
    "restartPolicy",
    "schedulerName",
    "serviceAccount",
    "tolerations",
    "topologySpreadConstraints",
}
_CONTAINER_FIELDS = {
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "name",
    "resources",
    "securityContext",
    "volumeMounts",
    # Asked by the kubelet of these tests.
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    # They change nothing in the container.
    "imagePullPolicy",
    "ports",
    "terminationMessagePath",
    "terminationMessagePolicy",
}
_POD_SECURITY = {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"}
_CONTAINER_SECURITY = {"allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"}
_SIZES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


class NotTranslated(Exception):
    """A manifest says something that these tests do not carry over to a container."""


@dataclass(frozen=True)
class Surroundings:
    """What the kubelet finds besides the pod: ConfigMaps and Secrets of its namespace by name, tokens, the API server.

    `tokens` has the token of each service account that mounts one; `certificate` is the API server's.
    `api_host` is its name there, and `api_host_address` what that name stands for.
    """

    folder: Path
    api_host: str
    api_host_address: str
    api_port: int
    certificate: str
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)


def flags(pod: Object, around: Surroundings) -> list[str]:
    """What comes after `podman run`, image and arguments included.

    Raises:
        NotTranslated: for a field that these tests do not know.
    """
    spec = pod["spec"]
    _only(spec, _POD_FIELDS, "pod")
    (container,) = spec["containers"]
    _only(container, _CONTAINER_FIELDS, "container")
    command = list(container.get("command", ()))
    return [
        f"--hostname={pod['metadata']['name']}",
        *_security(spec.get("securityContext", {}), container.get("securityContext", {})),
        *_limits(container.get("resources", {})),
        *(f"--env={name}={value}" for name, value in _environment(container, around).items()),
        *_mounts(pod, container, around),
        *([f"--entrypoint={command[0]}"] if command else []),
        container["image"],
        *command[1:],
        *container.get("args", ()),
    ]


def memory_limit(pod: Object) -> int:
    """The bytes that the pod's container may use.

    Raises:
        NotTranslated: for a pod without a limit, or a unit that is not known.
    """
    written = pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("memory", "")
    if not (found := re.fullmatch(r"(\d+)([A-Za-z]*)", written)) or found[2] not in _SIZES:
        raise NotTranslated(f"memory limit {written!r}")
    return int(found[1]) * _SIZES[found[2]]


def _only(given: Mapping[str, Any], known: set[str], what: str) -> None:
    if unknown := sorted(name for name in given if name not in known):
        raise NotTranslated(f"{what}: {', '.join(unknown)}")


def _security(pod: Object, container: Object) -> Iterator[str]:
    _only(pod, _POD_SECURITY, "securityContext of the pod")
    _only(container, _CONTAINER_SECURITY, "securityContext of the container")
    user, group = pod.get("runAsUser"), pod.get("runAsGroup")
    if pod.get("runAsNonRoot") and user == 0:
        raise NotTranslated("root, where runAsNonRoot is set: a kubelet would not start it")
    if user is not None:
        yield f"--user={user}" + (f":{group}" if group is not None else "")
    if "fsGroup" in pod:
        yield f"--group-add={pod['fsGroup']}"
    if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":  # which is the engine's own choice
        yield "--security-opt=seccomp=unconfined"
    if container.get("allowPrivilegeEscalation") is False:
        yield "--security-opt=no-new-privileges"
    if container.get("readOnlyRootFilesystem"):
        # Unlike a kubelet, podman would give a writable /tmp, /run and /var/tmp along.
        yield from ("--read-only", "--read-only-tmpfs=false")
    capabilities = container.get("capabilities", {})
    yield from (f"--cap-drop={name}" for name in capabilities.get("drop", ()))
    yield from (f"--cap-add={name}" for name in capabilities.get("add", ()))


def _limits(resources: Object) -> Iterator[str]:
    limits = resources.get("limits", {})
    _only(limits, {"memory"}, "limits")
    if "memory" in limits:
        size = memory_limit({"spec": {"containers": [{"resources": resources}]}})
        yield from (f"--memory={size}", f"--memory-swap={size}")


def _environment(container: Object, around: Surroundings) -> dict[str, str]:
    found = {"KUBERNETES_SERVICE_HOST": around.api_host, "KUBERNETES_SERVICE_PORT": str(around.api_port)}
    for source in container.get("envFrom", ()):
        _only(source, {"secretRef", "configMapRef"}, "envFrom")
        kind, reference = next(iter(source.items()))
        there = around.secrets if kind == "secretRef" else around.config_maps
        if reference["name"] in there or not reference.get("optional"):
            found |= there[reference["name"]]
    for entry in container.get("env", ()):
        _only(entry, {"name", "value"}, "env")
        found[entry["name"]] = entry.get("value", "")
    return found


def _mounts(pod: Object, container: Object, around: Surroundings) -> Iterator[str]:
    spec, folder = pod["spec"], around.folder / pod["metadata"]["name"]
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        _only(mount, {"name", "mountPath", "readOnly"}, "volumeMount")
        volume = volumes[mount["name"]]
        _only(volume, {"name", "configMap", "secret", "emptyDir"}, "volume")
        if "emptyDir" in volume:
            yield f"--tmpfs={mount['mountPath']}:rw,mode=1777"
            continue
        if "configMap" in volume:
            files = around.config_maps[volume["configMap"]["name"]]
        else:
            files = around.secrets[volume["secret"]["secretName"]]
        # The kubelet mounts both read-only whatever the manifest says.
        yield f"--volume={_written(folder / mount['name'], files)}:{mount['mountPath']}:ro"
    token = around.tokens.get(spec.get("serviceAccountName", "default"))
    if token is not None:
        files = {"token": token, "ca.crt": around.certificate, "namespace": pod["metadata"]["namespace"]}
        source = _written(folder / "service-account", files)
        # As the kubelet does it: the token is for the one user who runs here.
        os.chown(source / "token", spec["securityContext"]["runAsUser"], -1)
        (source / "token").chmod(0o600)
        yield f"--volume={source}:{_SERVICE_ACCOUNT}:ro"


def _written(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o644)
    return folder
