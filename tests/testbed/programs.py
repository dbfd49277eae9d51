"""The control plane's programs: with which arguments each starts, and where it says that it is well.

Order, flags and their reasons; ``control_plane`` runs them.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import audit, parts, workloads
from tests.testbed.children import free_port
from tests.testbed.identities import COMPONENTS, Identities

_LOOPBACK = "127.0.0.1"

OPERATED = tuple(kind for kind in workloads.KUBEFLOW if kind != "MPIJob")
"""The kinds whose jobs the training operator runs unless it is told otherwise. Its MPIJob and the MPI operator's share a name,
so one cluster has one of them."""


class Site:
    """What the programs of one control plane share: a folder, ports, users, and the key for service accounts."""

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, Sequence[str]],
        node_grace_s: int,
        operated: Sequence[str] = OPERATED,
    ) -> None:
        self.folder = folder
        self.operated = operated
        self.node_grace_s = node_grace_s
        purposes = ("etcd", "peers", "api", "controllers", "scheduler", "operator", "metrics")
        self.at = {purpose: f"{_LOOPBACK}:{free_port()}" for purpose in purposes}
        self.server = f"https://{self.at['api']}"
        self.identities = Identities(folder, self.server, users)
        self.audit_log = folder / "audit.jsonl"
        self.audit_policy = folder / "audit-policy.json"
        self.key = folder / "service-accounts.key"

    def prepare(self) -> None:
        """Write the files that the API server reads at its start."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.identities.write_tokens()
        self.audit_policy.write_text(json.dumps(audit.policy(COMPONENTS)))
        if not self.key.exists():
            subprocess.run([parts.program("make-key"), self.key], check=True)

    def port(self, purpose: str) -> str:
        """Return a port alone, for programs that take it so."""
        return self.at[purpose].rpartition(":")[2]


@dataclass(frozen=True)
class Program:
    """One program of the build, its arguments, and the address that answers 200 once it is well."""

    name: str
    arguments: tuple[str, ...]
    health: str | None = None


def etcd(site: Site) -> Program:
    """Return the store of all objects."""
    clients, peers = f"http://{site.at['etcd']}", f"http://{site.at['peers']}"
    arguments = (
        "--name=testbed",
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=testbed={peers}",
        # What a crash of the machine would lose was only a test.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return Program("etcd", arguments, f"{clients}/health")


def api_server(site: Site) -> Program:
    """Return the API server with token users, RBAC and the audit log."""
    arguments = (
        f"--etcd-servers=http://{site.at['etcd']}",
        f"--bind-address={_LOOPBACK}",
        f"--advertise-address={_LOOPBACK}",
        f"--secure-port={site.port('api')}",
        # A loopback address is refused as an endpoint of the kubernetes service, and nobody here asks for it.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={site.identities.certificate.parent}",
        f"--service-account-key-file={site.key}",
        f"--service-account-signing-key-file={site.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={site.identities.tokens_csv}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Simulated pods use no tokens and should not wait for accounts.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged",
        f"--audit-policy-file={site.audit_policy}",
        f"--audit-log-path={site.audit_log}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=10000",
    )
    return Program("kube-apiserver", arguments, f"{site.server}/readyz")


def controller_manager(site: Site) -> Program:
    """Return the Job, node lifecycle, disruption, garbage and all other built-in controllers."""
    arguments = (
        f"--kubeconfig={site.identities.kubeconfig('system:kube-controller-manager')}",
        "--leader-elect=false",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={site.port('controllers')}",
        f"--service-account-private-key-file={site.key}",
        f"--node-monitor-grace-period={site.node_grace_s}s",
        "--node-monitor-period=1s",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    )
    return Program("kube-controller-manager", arguments, f"https://{site.at['controllers']}/healthz")


def scheduler(site: Site) -> Program:
    """Return the default scheduler."""
    arguments = (
        f"--kubeconfig={site.identities.kubeconfig('system:kube-scheduler')}",
        "--leader-elect=false",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={site.port('scheduler')}",
    )
    return Program("kube-scheduler", arguments, f"https://{site.at['scheduler']}/healthz")


def kwok(site: Site) -> Program:
    """Return the simulated kubelets; they renew a lease four times in the time after which a node counts as silent."""
    arguments = (
        f"--kubeconfig={site.identities.kubeconfig('testbed:kwok')}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={site.node_grace_s}",
        f"--config={Path(__file__).parent / 'stages.yaml'}",
    )
    return Program("kwok", arguments)


def training_operator(site: Site) -> Program:
    """Return the controllers of the site's kinds; the definitions of those must be there before."""
    arguments = (
        f"--kubeconfig={site.identities.kubeconfig('testbed:training-operator')}",
        *(f"--enable-scheme={kind.lower()}" for kind in site.operated),
        f"--health-probe-bind-address={site.at['operator']}",
        f"--metrics-bind-address={site.at['metrics']}",
        "--zap-log-level=info",
        "--zap-time-encoding=rfc3339",
    )
    return Program("training-operator", arguments, f"http://{site.at['operator']}/readyz")


ORDER: dict[str, Callable[[Site], Program]] = {
    "etcd": etcd,
    "kube-apiserver": api_server,
    "kube-controller-manager": controller_manager,
    "kube-scheduler": scheduler,
    "kwok": kwok,
    "training-operator": training_operator,
}


def answers(url: str) -> bool:
    """Tell whether a program on loopback says it is well; it made its certificate itself, so none is checked."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    https = urllib.request.HTTPSHandler(context=context)
    try:
        # No proxy: the environment's may not know loopback.
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), https).open(
            url, timeout=2
        ) as answer:
            return bool(answer.status == 200)
    except OSError:  # not listening yet, or listening and not ready (HTTPError and URLError are kinds of it)
        return False
