"""Corners of clusters for the tests of the connectors to Kubernetes: of a real one, and of the emulated one that ships."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.connectors.kube_world import KubeWorld
from tests.testbed.control_plane import ControlPlane

BOTH = [
    pytest.param("real", marks=pytest.mark.cluster),
    pytest.param("emulated", marks=[pytest.mark.embedded, pytest.mark.nightly]),
]


@pytest.fixture
async def world(control_plane: ControlPlane) -> AsyncIterator[KubeWorld]:
    """A corner of the real control plane that no other test touches."""
    async with KubeWorld.on(control_plane.kubeconfig(), control_plane.silence, control_plane) as world:
        yield world


@dataclass(frozen=True)
class Emulated:
    """An emulated cluster in a process of its own."""

    kubeconfig: Path
    child: subprocess.Popen[str]

    def silence(self, node: str) -> None:
        """Let a node fall silent, as `ControlPlane.silence` does."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"kubelet {node} silent\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "ok\n"


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulated]:
    """An emulated cluster that lives as long as the run."""
    folder = tmp_path_factory.mktemp("emulated")
    command = [sys.executable, "-m", "sandbox.emulated.cluster", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield Emulated(Path(json.loads(child.stdout.readline())["kubeconfig"]), child)
        child.stdin.close()
        child.wait(timeout=60)


@pytest.fixture(params=BOTH)
async def either_world(request: pytest.FixtureRequest) -> AsyncIterator[KubeWorld]:
    """A corner of the real control plane, and then of the emulated cluster: both keep the same contract."""
    if request.param == "real":
        control_plane = request.getfixturevalue("control_plane")
        on = KubeWorld.on(control_plane.kubeconfig(), control_plane.silence, control_plane)
    else:
        emulated = request.getfixturevalue("emulated")
        on = KubeWorld.on(emulated.kubeconfig, emulated.silence)
    async with on as world:
        yield world
