"""What ships for shippers is taken by a real API server, with Pod Security as their namespace asks for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.testbed import parts
from tests.testbed.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SHIPPERS = Path(__file__).parents[2] / "k8s/shippers"
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: faultline-shippers
resources: [../fluent-bit]
components: [../kmsg]
"""


def kubectl(control_plane: ControlPlane, *words: str | Path) -> str:
    command = [parts.program("kubectl"), f"--kubeconfig={control_plane.kubeconfig()}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_daemon_set_and_the_exporters_are_taken(control_plane: ControlPlane, tmp_path: Path) -> None:
    for name in ("username", "password", "ca.crt"):
        (tmp_path / name).write_text("not a real one")
    kubectl(control_plane, "apply", "-f", SHIPPERS / "fluent-bit/namespace.yaml")
    files = [f"--from-file={tmp_path / name}" for name in ("username", "password", "ca.crt")]
    secret = ("create", "secret", "generic", "shippers-kafka", *files)
    kubectl(control_plane, "-n", "faultline-shippers", *secret)
    said = kubectl(control_plane, "apply", "-k", SHIPPERS / "fluent-bit")
    assert "daemonset.apps/fluent-bit created" in said
    assert "Warning" not in said
    for folder in ("prometheus-kafka-adapter/adapter.yaml", "kubernetes-event-exporter/exporter.yaml"):
        said = kubectl(control_plane, "apply", "-f", SHIPPERS / folder)
        assert "Warning" not in said
    rights = "get,list,watch"
    user = "system:serviceaccount:faultline-shippers:kubernetes-event-exporter"
    for verb in rights.split(","):
        assert kubectl(control_plane, "auth", "can-i", verb, "events", f"--as={user}").strip() == "yes"


def test_the_component_for_kmsg_adds_its_device_and_one_capability(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    folder = tmp_path / "shippers"
    subprocess.run(["cp", "-r", SHIPPERS, folder], check=True)
    (folder / "own").mkdir()
    (folder / "own/kustomization.yaml").write_text(OVERLAY)
    rendered = kubectl(control_plane, "kustomize", folder / "own")
    assert 'squat.ai/kmsg: "1"' in rendered
    assert "- SYSLOG" in rendered
    assert "privileged: false" in rendered
    assert "name: kmsg" in rendered
    assert "name: systemd" not in rendered
