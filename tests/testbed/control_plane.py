"""A real Kubernetes control plane with simulated kubelets: etcd, API server, controllers, scheduler, KWOK.

Training jobs run through the real Job controller and the real training operator; only the kubelet is
simulated, and ``stages.yaml`` says what it does. In a script::

    with ControlPlane.running() as control_plane:
        nodes = control_plane.add_nodes("train", 4)
        async with control_plane.kube_client() as api:
            await kubernetes.aio.client.CoreV1Api(api).list_node()
"""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.testbed import audit, parts, programs, workloads
from tests.testbed.children import Child, ChildFailed
from tests.testbed.identities import ADMIN
from tests.testbed.waiting import until

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient

_SERVICE_ACCOUNT = "system:serviceaccount:"
_NEVER_S = 10 * 365 * 24 * 3600


class KubectlFailed(Exception):
    """``kubectl`` ended with an error; the message is what it said."""


class ControlPlane:
    """One control plane with its data, logs and kubeconfig files in ``folder``.

    ``users`` adds static users (name → groups) beside ``admin``. ``node_grace_s`` is how long a silent node
    counts as healthy; a kubelet renews its lease four times in it. ``operated`` are the kinds of the training
    operator, which is there for those alone.
    """

    def __init__(
        self,
        folder: Path,
        *,
        users: Mapping[str, Sequence[str]] | None = None,
        node_grace_s: int = 20,
        operated: Sequence[str] = programs.OPERATED,
    ) -> None:
        self._site = programs.Site(folder, users or {}, node_grace_s, operated)
        self._children: dict[str, Child] = {}
        self.server = self._site.server
        self.audit = audit.AuditLog(self._site.audit_log)

    @classmethod
    @contextmanager
    def running(
        cls,
        folder: Path | None = None,
        *,
        users: Mapping[str, Sequence[str]] | None = None,
        node_grace_s: int = 20,
        operated: Sequence[str] = programs.OPERATED,
    ) -> Iterator[ControlPlane]:
        """Run a control plane for a ``with`` block, in a folder of its own unless one is given."""
        with tempfile.TemporaryDirectory(prefix="faultline-kubernetes-") as own:
            control_plane = cls(
                folder or Path(own), users=users, node_grace_s=node_grace_s, operated=operated
            )
            try:
                control_plane.start()
                yield control_plane
            finally:
                control_plane.stop()

    # Its programs

    def start(self) -> None:
        """Start everything and return once all of it answers."""
        self.prepare()
        for name in programs.ORDER:
            self.start_component(name)

    def prepare(self) -> None:
        """Write what the programs read at their start, for whoever starts only some of them."""
        self._site.prepare()

    def stop(self) -> None:
        """End everything, the last first."""
        for name in reversed(programs.ORDER):
            if name in self._children:
                self._children.pop(name).stop(grace_s=3)

    def start_component(self, name: str) -> None:
        """Start one program (``kube-apiserver``, …) on its own port and data, and wait until it answers."""
        if name == "training-operator":
            definitions = parts.part("training-operator").folder / "crds"
            self.define(*(definitions / f"kubeflow.org_{kind.lower()}s.yaml" for kind in self._site.operated))
        self._launch(programs.ORDER[name](self._site))

    def component(self, name: str) -> Child:
        """Return one running program, to kill or freeze it."""
        if name not in self._children:
            raise ChildFailed(f"{name} is not running")
        return self._children[name]

    # Its users

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Return a kubeconfig file for a static user or for ``system:serviceaccount:NAMESPACE:NAME``.

        A service account must exist; it gets a token of the kind that its pods would get, good for 24 hours.
        """
        if self._site.identities.is_static(user):
            return self._site.identities.kubeconfig(user)
        if not user.startswith(_SERVICE_ACCOUNT):
            raise KeyError(f"no such user: {user}")
        namespace, name = user.removeprefix(_SERVICE_ACCOUNT).split(":")
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "24h").strip()
        return self._site.identities.kubeconfig(user, token)

    @property
    def certificate(self) -> Path:
        """The certificate by which clients know the API server; it stands for `kubernetes.default.svc` too."""
        return self._site.identities.certificate

    @asynccontextmanager
    async def kube_client(self, user: str = ADMIN) -> AsyncIterator[ApiClient]:
        """Yield a client of the official library that acts as ``user``."""
        from kubernetes.aio import client, config

        configuration = client.Configuration()
        await config.load_kube_config(
            config_file=str(self.kubeconfig(user)), client_configuration=configuration, persist_config=False
        )
        async with client.ApiClient(configuration) as api:
            yield api

    def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str | None = None) -> str:
        """Run ``kubectl`` as ``user`` and return its output; raises ``KubectlFailed`` with what it said."""
        command = [str(parts.program("kubectl")), f"--kubeconfig={self.kubeconfig(user)}", *arguments]
        result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def define(self, *definitions: Path) -> None:
        """Apply CustomResourceDefinitions from files and wait until the server takes objects of their kinds."""
        files = [argument for file in definitions for argument in ("-f", str(file))]
        for name in self.kubectl("apply", "--server-side", *files, "-o", "name").split():

            def is_served(name: str = name) -> bool:
                definition = self.get(name)
                conditions = definition.get("status", {}).get("conditions") or []
                established = any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
                return established and self._answers(definition["spec"])

            until(is_served, f"{name} is served")

    def _answers(self, definition: dict[str, Any]) -> bool:
        """Whether objects of a kind can be listed: the server says that it is established a moment before it serves it."""
        try:
            for version in definition["versions"]:
                path = (
                    f"/apis/{definition['group']}/{version['name']}/{definition['names']['plural']}?limit=1"
                )
                if version["served"]:
                    self.kubectl("get", "--raw", path)
        except KubectlFailed as failed:
            if "could not find" not in str(failed):
                raise
            return False
        return True

    def create(self, *objects: dict[str, Any], user: str = ADMIN) -> None:
        """Create objects given as plain dictionaries."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("create", "-f", "-", user=user, stdin=json.dumps(everything))

    def get(self, *arguments: str) -> Any:
        """Return what ``kubectl get …`` finds: one object for a name, else a list of them."""
        found = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found["items"] if found["kind"] == "List" else found

    # Its nodes

    def add_nodes(
        self, pool: str, count: int, *, gpus: int = 8, labels: Mapping[str, str] | None = None
    ) -> list[str]:
        """Add ``count`` nodes ``POOL-0`` … with GPUs, wait until they are Ready, and return their names.

        The pool is a label too, and the builders in ``workloads`` place their pods by it: a test that adds a
        pool under a name of its own shares the control plane with others and not its nodes.
        """
        names = [f"{pool}-{number}" for number in range(count)]
        self.create(
            *(workloads.gpu_node(name, pool=pool, gpus=gpus, labels=dict(labels or {})) for name in names)
        )

        def are_ready() -> bool:
            nodes = self.get("nodes", "--selector", f"{workloads.POOL}={pool}")
            return {node["metadata"]["name"] for node in nodes if workloads.is_ready(node)}.issuperset(names)

        # Not `kubectl wait`: it asks for one node after another, five a second, and hundreds are too many for it.
        until(are_ready, f"{count} nodes of the pool {pool} are Ready", timeout_s=120)
        return names

    def remove_pool(self, pool: str) -> None:
        """Remove a pool's nodes; pods on them go as they do when machines are returned."""
        self.kubectl("delete", "nodes", "--selector", f"{workloads.POOL}={pool}", "--wait=false")

    def annotate(self, kind: str, name: str, *changes: str, namespace: str = "default") -> None:
        """Set (``KEY=VALUE``) or drop (``KEY-``) annotations of the testbed's own, e.g. ``outcome=crash``."""
        prefixed = (f"testbed.faultline.dev/{change}" for change in changes)
        self.kubectl("annotate", "--overwrite", "--namespace", namespace, kind, name, *prefixed)

    def silence(self, node: str) -> None:
        """Let a node fall silent, as a dead or cut-off machine does.

        Its kubelet renews no lease, so the node turns Unknown after ``node_grace_s``; it starts nothing, and
        pods deleted from it stay Terminating. Done by holding its lease in another name, so that KWOK leaves the node
        alone; its pods are told to hang as well, for KWOK has been seen to end one in spite of that.
        """
        lease = {
            "holderIdentity": "silenced",
            "leaseDurationSeconds": _NEVER_S,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        patch = json.dumps({"spec": lease})
        self.kubectl(
            "patch", "lease", node, "--namespace", "kube-node-lease", "--type=merge", "--patch", patch
        )
        self._annotate_pods_on(node, "on-delete=hang")

    def revive(self, node: str) -> None:
        """End a node's silence; it turns Ready and catches up."""
        self._annotate_pods_on(node, "on-delete-")
        self.kubectl("delete", "lease", node, "--namespace", "kube-node-lease")

    def _annotate_pods_on(self, node: str, change: str) -> None:
        for pod in self.get("pods", "--all-namespaces", "--field-selector", f"spec.nodeName={node}"):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            try:
                self.annotate("pod", name, change, namespace=namespace)
            except KubectlFailed as failure:
                if "(NotFound)" not in str(failure):  # one that is gone meanwhile needs to be told nothing
                    raise

    def _launch(self, program: programs.Program) -> None:
        child = Child(
            program.name,
            [parts.program(program.name), *program.arguments],
            log=self._site.folder / "logs" / f"{program.name}.log",
            cwd=self._site.folder,
        )
        self._children[program.name] = child
        if health := program.health:
            child.wait_until(lambda: programs.answers(health), "answers")


def unique(prefix: str) -> str:
    """Return a name that no other test uses, good for pools, namespaces and topics."""
    return f"{prefix}-{secrets.token_hex(3)}"
