"""A corner of a real control plane for one test: a namespace, nodes and pods of its own, and a proxy in front of the server."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio import client as kube

from connectors.base import Effect
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.objects import is_ready
from streams.config.connector_settings import KubernetesSettings
from streams.model.run import Target
from tests.contract.faults import FaultProxy
from tests.testbed import workloads
from tests.testbed.audit import Write
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.waiting import eventually

NODES = path_of("v1", "nodes")
REQUEST_TIMEOUT_S = 1.0


@dataclass
class KubeWorld:
    """`cluster` talks to the server directly, as a person would; connectors under test go through `proxy`.

    On an emulated cluster there is no `audit` log and nobody who minds whose a pod is.
    """

    proxy: FaultProxy
    cluster: Cluster
    namespace: str
    token: str | None
    silence: Callable[[str], None]
    control_plane: ControlPlane | None = None
    since: int = 0
    nodes: list[str] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def on(
        cls, kubeconfig: Path, silence: Callable[[str], None], control_plane: ControlPlane | None = None
    ) -> AsyncIterator[KubeWorld]:
        """A fresh corner; its nodes are removed at the end, its namespace stays empty behind."""
        server, tls, token = _read(kubeconfig)
        async with (
            FaultProxy(server, tls=tls) as proxy,
            await Cluster.connect(KubernetesSettings(kubeconfig=kubeconfig)) as cluster,
        ):
            name, since = unique("world"), control_plane.audit.mark() if control_plane else 0
            world = cls(proxy, cluster, name, token, silence, control_plane, since)
            if control_plane is not None:  # the emulated one asks for no namespaces
                await cluster.create(path_of("v1", "namespaces"), {"metadata": {"name": name}})
            yield world
            for node in world.nodes:
                await cluster.delete(f"{NODES}/{node}")

    def through_proxy(self, timeout_s: float = REQUEST_TIMEOUT_S) -> Cluster:
        """A new client as a connector has it, with short patience unless the test has no use for that."""
        configuration = kube.Configuration(host=self.proxy.url)
        if self.token is not None:
            configuration.api_key["BearerToken"] = f"Bearer {self.token}"

        async def load() -> Any:
            return configuration

        return Cluster(load, configuration, timeout_s)

    def effect(self, action: str, target: Target, *, key: str = "key-1", **params: str | bool) -> Effect:
        """An effect of incident `inc-1` unless the key says otherwise: `key-2` is of `inc-2`."""
        incident = "inc-" + key.rpartition("-")[2]
        return Effect(key, action, target, "c1", incident, f"run-{incident}", action, params)

    def taken(self, method: str, path: str) -> list[Object]:
        """The bodies of the requests through the proxy that the server answered with success, seen or not."""
        return [
            json.loads(seen.body)
            for seen in self.proxy.writes
            if seen.served in (200, 201) and seen.method == method and seen.path.partition("?")[0] == path
        ]

    @property
    def real(self) -> ControlPlane:
        """The control plane, in tests that only run on a real one."""
        assert self.control_plane is not None
        return self.control_plane

    def writes(self, **wanted: str | int) -> list[Write]:
        """What the server was asked to change in this world's time, by anybody, by its audit log."""
        return self.real.audit.writes(since=self.since, **wanted)

    async def add_node(self, *, kubelet: bool = False, gpus: int = 8, pool: str | None = None) -> str:
        """Add a node; without `kubelet` it is only an object that turns NotReady by and by."""
        name = unique("node")
        node = workloads.gpu_node(name, pool=pool or self.namespace, gpus=gpus) | {"spec": {}}
        if not kubelet:
            node["metadata"]["annotations"] = {}
        await self.cluster.create(NODES, node)
        self.nodes.append(name)
        if kubelet:
            await eventually(lambda: self.is_ready(name), f"{name} is Ready")
        return name

    async def is_ready(self, node: str) -> bool:
        """True when the node has come up and can be used."""
        return has_come_up(await self.node(node))

    async def node(self, name: str) -> Object:
        """The node as it is now."""
        return await self.cluster.get(f"{NODES}/{name}")

    async def silenced(self, node: str) -> None:
        """Let a node fall silent, as a dead machine does, and wait until the cluster has noticed."""
        self.silence(node)

        async def noticed() -> bool:
            return not is_ready(await self.node(node))

        await eventually(noticed, f"{node} is not ready")

    async def patch_node(self, name: str, patch: Object) -> None:
        """Change a node as a person would: whatever its version."""
        await self.cluster.patch(f"{NODES}/{name}", patch)

    async def add_pod(
        self, node: str, *, gpus: int = 1, controlled: bool = True, **metadata: dict[str, str]
    ) -> str:
        """Add a pod right on a node and wait until it runs; a ConfigMap plays its controller, which brings nothing back."""
        name = unique("pod")
        limits = {"resources": {"limits": {workloads.GPU: str(gpus)}}} if gpus else {}
        pod: Object = {
            "metadata": {"name": name, **metadata},
            "spec": {
                "nodeName": node,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "train", "image": "training:1", **limits}],
            },
            "status": {"phase": "Pending"},
        }
        if controlled:
            pod["metadata"]["ownerReferences"] = [await self.owner("ConfigMap")]
        await self.cluster.create(path_of("v1", "pods", namespace=self.namespace), pod)
        await eventually(lambda: self.runs(name), f"{name} runs")
        return name

    async def owner(self, kind: str) -> Object:
        """An owner reference of a controller: a real ConfigMap, or with another kind a name that nobody serves."""
        if self.control_plane is None:
            return {"apiVersion": "v1", "kind": kind, "name": "owner", "uid": "owner", "controller": True}
        maps = path_of("v1", "configmaps", namespace=self.namespace)
        try:
            found = await self.cluster.get(f"{maps}/owner")
        except NotFound:
            found = await self.cluster.create(maps, {"metadata": {"name": "owner"}})
        return {
            "apiVersion": "v1",
            "kind": kind,
            "name": "owner",
            "uid": found["metadata"]["uid"],
            "controller": True,
        }

    async def runs(self, pod: str) -> bool:
        """True when the pod's phase is Running."""
        path = path_of("v1", "pods", namespace=self.namespace, name=pod)
        return bool((await self.cluster.get(path))["status"].get("phase") == "Running")

    async def pods(self) -> list[Object]:
        """All pods of this world."""
        return await self.cluster.list_all(path_of("v1", "pods", namespace=self.namespace))

    async def all_run(self, count: int) -> list[Object]:
        """Wait until there are `count` pods and every one is Running, and return them."""

        async def running() -> list[Object] | None:
            pods = await self.pods()
            phases = [pod["status"].get("phase") for pod in pods]
            return pods if phases == ["Running"] * count else None

        return await eventually(running, f"{count} pods run in {self.namespace}")


def has_come_up(node: Object) -> bool:
    """True when a node reports Ready and the node controller has taken its taints away."""
    taints = {taint["key"] for taint in node["spec"].get("taints") or []}
    return is_ready(node) and taints.isdisjoint(
        {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    )


def _read(kubeconfig: Path) -> tuple[str, ssl.SSLContext, str | None]:
    """Where the server is, whom it must be certified by, and the user's token."""
    parts = yaml.safe_load(kubeconfig.read_text())
    about, user = parts["clusters"][0]["cluster"], parts["users"][0]["user"]
    return (
        about["server"],
        ssl.create_default_context(cafile=about.get("certificate-authority")),
        user.get("token"),
    )
