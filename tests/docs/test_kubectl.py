"""Blocks of `kubectl` against a real API server: on nodes of their own, or as a dry run where they would install something."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.checkout import checkout, run
from tests.docs.pages import Block, Needs, command_blocks
from tests.testbed import parts
from tests.testbed.control_plane import ControlPlane, unique

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

BLOCKS = [block for block in command_blocks() if block.needs is Needs.CLUSTER]
NAMES = ("NODE", "gpu-07", "gpu-40")
"""Nodes that pages speak of."""
TAINT = {"key": "faultline.dev/incident", "value": "inc-5d55", "effect": "NoSchedule"}


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in BLOCKS])
def test_a_block_of_kubectl_is_taken_by_an_api_server(
    block: Block, control_plane: ControlPlane, tmp_path: Path
) -> None:
    node, text = unique("docs"), block.text
    spec = {"unschedulable": True, "taints": [TAINT]}
    control_plane.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec})
    for name in NAMES:
        text = text.replace(f" {name} ", f" {node} ").replace(f" {name}\n", f" {node}\n")
    # The page says to leave a kind out that is not installed.
    text = text.replace("apply -k", "apply --dry-run=client -k").replace(",pytorchjobs", "")
    own = Path(parts.program("kubectl")).parent
    folder = checkout(tmp_path)
    os.symlink(own / "kubectl", folder / "kubectl")
    run(
        replace(block, text=f'export PATH="$PWD:$PATH"\n{text}'),
        folder,
        KUBECONFIG=str(control_plane.kubeconfig()),
    )
