"""An installation by the manifests: the Pods that the real controllers make of them, each run in a container.

The API server admits the pods as it would any, by the namespace's pod security; what they may do there is what the manifests'
roles allow to their service accounts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.containers import broker
from tests.containers.kubelet import Judgement, Kubelet
from tests.containers.pods import Surroundings, flags
from tests.deploy.manifests import BASE
from tests.testbed import forwarding
from tests.testbed.children import Child, free_port
from tests.testbed.control_plane import ControlPlane
from tests.testbed.engine import Engine
from tests.testbed.waiting import until

NAMESPACE = "faultline"
KAFKA = "kafka-bootstrap.kafka"
"""What the ConfigMap that ships calls the broker."""
API_SERVER = "kubernetes.default.svc"
"""One of the names in the API server's certificate."""
NETWORK = "faultline-pods"
MAKES_PODS = ("deployments", "jobs")


class Installed:
    """The manifests on one API server, and the containers of their pods."""

    def __init__(self, engine: Engine, control_plane: ControlPlane, folder: Path) -> None:
        self.engine = engine
        self.control_plane = control_plane
        self.kubelet = Kubelet()
        self.bootstrap = ""
        self._folder = folder
        self._secret: dict[str, str] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._around: Surroundings | None = None
        self._forwarder: Child | None = None

    @classmethod
    @contextmanager
    def running(
        cls, engine: Engine, control_plane: ControlPlane, folder: Path, secret: Mapping[str, str]
    ) -> Iterator[Self]:
        """`kubectl apply -k k8s/base`, a broker, and a Secret of settings; `start` the pods then."""
        installed = cls(engine, control_plane, folder)
        gateway = installed._make_network()
        try:
            installed.bootstrap = broker.start(engine, NETWORK, KAFKA)
            installed.apply(BASE)
            installed._give_secret(secret)
            installed._around = installed._surroundings(gateway)
            installed.kubelet.start()
            yield installed
        finally:
            if installed.kubelet.is_working:
                installed.kubelet.stop()
            installed._leave()

    def apply(self, folder: Path) -> None:
        """Apply a kustomization as the README says."""
        self.control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))

    def pods(self, component: str) -> list[dict[str, Any]]:
        """The Pods that the API server holds for a Deployment or Job, without those that are to go."""
        selector = f"app.kubernetes.io/component={component}"
        found = self.control_plane.get("pods", "--namespace", NAMESPACE, "--selector", selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def made_pods(self, component: str) -> list[dict[str, Any]]:
        """The Pods of a Deployment or Job, once its controller has made as many as it is to."""
        return until(
            lambda: pods if len(pods := self.pods(component)) == self._wanted(component) else None,
            f"the pods of {component} are admitted",
        )

    def start(self, pod: dict[str, Any]) -> str:
        """Run a pod's container as a kubelet would, have its probes asked, and return its name."""
        assert self._around is not None
        name: str = pod["metadata"]["name"]
        around = [f"--network={NETWORK}", f"--add-host={API_SERVER}:{self._around.api_host_address}"]
        self.engine.podman("run", "--detach", f"--name={name}", *around, *flags(pod, self._around))
        address = self.engine.inspect(name)["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        self._pods[name] = pod
        self.kubelet.watch(name, pod["spec"]["containers"][0], address)
        return name

    def run_to_its_end(self, pod: dict[str, Any]) -> int:
        """Run a Job's pod and return its exit code."""
        return int(self.engine.podman("wait", self.start(pod)))

    def end(self, name: str) -> int:
        """Delete a pod as a kubelet does: SIGTERM, SIGKILL when the grace period is over. Return the exit code."""
        self.kubelet.forget(name)
        grace_s = self._pods[name]["spec"]["terminationGracePeriodSeconds"]
        self.engine.podman("stop", "--time", str(grace_s), name)
        return int(self.engine.inspect(name)["State"]["ExitCode"])

    def start_again(self, name: str) -> str:
        """Run a pod's container anew, as one that had ended."""
        self.engine.podman("rm", name)
        return self.start(self._pods[name])

    def peak_memory(self, name: str) -> int:
        """The most bytes that a container's processes have held at once, without the files they have read."""
        pid = self.engine.inspect(name)["State"]["Pid"]
        status = Path(f"/proc/{pid}/status").read_text()
        (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak) * 1024

    def wait_until_ready(self, *names: str) -> None:
        """Wait until the kubelet has found them ready; one that ends or would be restarted fails at once."""

        def all_ready() -> bool:
            self.complain(*names)
            return all(self.kubelet.judgement(name).ready for name in names)

        until(all_ready, f"{', '.join(names)} are ready", timeout_s=240)

    def complain(self, *names: str) -> None:
        """Fail, with its log, for a container that is not running or that a kubelet would restart."""
        for name in names:
            state, judgement = self.engine.inspect(name)["State"], self.judgement(name)
            assert state["Running"], f"{name} ended with {state['ExitCode']}:\n{self.engine.logs(name)}"
            assert not judgement.restarts, f"{name}: {judgement.restarts}\n{self.engine.logs(name)}"

    def judgement(self, name: str) -> Judgement:
        """What the kubelet thinks of a container."""
        return self.kubelet.judgement(name)

    def _wanted(self, component: str) -> int:
        for kind in MAKES_PODS:
            for made in self.control_plane.get(kind, "--namespace", NAMESPACE):
                if made["metadata"]["labels"]["app.kubernetes.io/component"] == component:
                    return int(made["spec"].get("replicas", 1))
        raise LookupError(component)

    def _make_network(self) -> str:
        self.engine.podman("network", "create", NETWORK)
        (network,) = json.loads(self.engine.podman("network", "inspect", NETWORK))
        return str(network["subnets"][0]["gateway"])

    def _give_secret(self, content: Mapping[str, str]) -> None:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "faultline-secrets", "namespace": NAMESPACE},
            "stringData": dict(content),
        }
        self.control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(secret))
        self._secret = dict(content)

    def _surroundings(self, gateway: str) -> Surroundings:
        """The ConfigMaps as the API server holds them, a token for each account that mounts one, and the way to the server."""
        port = free_port()
        self._forwarder = forwarding.start(
            f"{gateway}:{port}",
            self.control_plane.server.removeprefix("https://"),
            self._folder / "forwarding.log",
        )
        config_maps = {
            found["metadata"]["name"]: found.get("data", {})
            for found in self.control_plane.get("configmaps", "--namespace", NAMESPACE)
        }
        accounts = self.control_plane.get("serviceaccounts", "--namespace", NAMESPACE)
        tokens = {
            name: self.control_plane.kubectl("create", "token", name, "--namespace", NAMESPACE).strip()
            for name in (
                a["metadata"]["name"] for a in accounts if a.get("automountServiceAccountToken", True)
            )
        }
        return Surroundings(
            folder=self._folder / "pods",
            api_host=API_SERVER,
            api_host_address=gateway,
            api_port=port,
            certificate=self.control_plane.certificate.read_text(),
            config_maps=config_maps,
            secrets={"faultline-secrets": self._secret},
            tokens=tokens,
        )

    def refresh(self) -> None:
        """Look at the ConfigMaps again, after another kustomization was applied."""
        assert self._around is not None
        if self._forwarder is not None:
            self._forwarder.stop()
        self._around = self._surroundings(self._around.api_host_address)

    def _leave(self) -> None:
        if self._forwarder is not None:
            self._forwarder.stop()
        self.engine.clear()
        for kind in MAKES_PODS:
            self.control_plane.kubectl("delete", kind, "--all", "--namespace", NAMESPACE, "--wait=false")
