"""What Slurm on Kubernetes calls its nodes: names of the nodes on which its pods stand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from streams.inventory.cluster_inventory import FactChange
from streams.model.facts import NodeFact
from tests.streams.inventory.objects import Object, node, owner, pod
from tests.streams.inventory.test_cluster_inventory import added, deleted, listed, settled

NODE_SET = owner("NodeSet", "gpu", api="slinky.slurm.net/v1beta1")


def slurmd(number: int = 0, *, on: str | None = "gpu-01", phase: str = "Running") -> Object:
    made = pod(f"slurm-worker-gpu-{number}", owners=[NODE_SET], on=on, phase=phase, namespace="slurm")
    made["spec"]["hostname"] = f"gpu-{number}"
    return made


def aliases(changes: Iterable[FactChange]) -> dict[str, tuple[str, ...]]:
    """Those of the nodes that were told anew."""
    facts = [record.fact for _, record in changes if record is not None]
    return {fact.name: fact.aliases for fact in facts if isinstance(fact, NodeFact)}


def test_a_node_is_called_what_slurm_calls_the_pod_on_it() -> None:
    inventory = settled(node())
    assert aliases(inventory.apply(added(slurmd()))) == {"gpu-01": ("gpu-0", "slurm-worker-gpu-0")}


def test_the_pod_may_be_known_before_its_node() -> None:
    inventory = settled(slurmd())
    assert aliases(inventory.apply(added(node()))) == {"gpu-01": ("gpu-0", "slurm-worker-gpu-0")}


def test_the_name_goes_with_the_pod() -> None:
    inventory = settled(node("gpu-01"), node("gpu-02"), slurmd())
    assert aliases(inventory.apply(deleted(slurmd()))) == {"gpu-01": ()}
    moved = inventory.apply(added(slurmd(on="gpu-02")))
    assert aliases(moved) == {"gpu-02": ("gpu-0", "slurm-worker-gpu-0")}


def test_a_pod_that_has_ended_or_is_missing_in_a_new_list_names_nothing() -> None:
    inventory = settled(node(), slurmd())
    assert aliases(inventory.apply(added(slurmd(phase="Failed")))) == {"gpu-01": ()}
    inventory = settled(node(), slurmd())
    assert aliases(inventory.apply(listed("v1/Pod"))) == {"gpu-01": ()}


def test_a_node_that_is_read_again_keeps_the_name() -> None:
    inventory = settled(node(), slurmd())
    assert aliases(inventory.apply(added(node(labels={"topology.kubernetes.io/rack": "r1"})))) == {
        "gpu-01": ("gpu-0", "slurm-worker-gpu-0")
    }


def test_what_is_no_slurmd_names_no_node() -> None:
    other = pod("gpu-0", owners=[owner("NodeSet", "gpu", api="apps.example.com/v1")])
    inventory = settled(node())
    assert aliases(inventory.apply(added(other))) == {}
    assert aliases(inventory.apply(added(pod("gpu-1")))) == {}


def worker(container: dict[str, object], *, on: str = "gpu-01", namespace: str = "slurm") -> Object:
    """A pod that no operator which is known by name made."""
    made = pod(
        "worker-7",
        owners=[owner("AdvancedStatefulSet", "worker", api="apps.kruise.io/v1beta1")],
        on=on,
        namespace=namespace,
    )
    made["spec"]["containers"] = [{"name": "munge"}, {"name": "main", "image": "reg.example/a:1"} | container]
    return made


@pytest.mark.parametrize(
    "container",
    [
        {"name": "slurmd"},
        {"image": "reg.example:5000/slurm/worker_slurmd:24.11"},
        {"image": "ghcr.io/example/slurmd@sha256:0a"},
        {"command": ["/usr/sbin/slurmd", "-D"]},
        {"command": ["/bin/bash", "-c"], "args": ["exec /usr/sbin/slurmd -D -Z"]},
    ],
)
def test_a_pod_is_a_node_of_slurm_by_what_runs_in_it_whoever_made_it(container: dict[str, object]) -> None:
    inventory = settled(node())
    assert aliases(inventory.apply(added(worker(container)))) == {"gpu-01": ("worker-7",)}


@pytest.mark.parametrize(
    "container",
    [
        {"image": "reg.example/slurmd-exporter:1"},
        {"image": "reg.example/slurmd/metrics:1"},
        {"command": ["tail", "-f", "/var/log/slurmd"]},
        {"name": "slurmctld", "command": ["slurmctld", "-D"]},
    ],
)
def test_what_only_looks_after_slurmd_names_no_node(container: dict[str, object]) -> None:
    assert aliases(settled(node()).apply(added(worker(container)))) == {}


def test_the_name_that_slurmd_is_started_with_is_another_one() -> None:
    made = worker({"command": ["slurmd", "-D", "-N", "dgx-7", "--conf-server", "ctl"]})
    assert aliases(settled(node()).apply(added(made))) == {"gpu-01": ("dgx-7", "worker-7")}


def test_the_operators_label_says_what_slurm_calls_a_pod_without_a_host_name() -> None:
    made = slurmd()
    del made["spec"]["hostname"]
    made["metadata"]["labels"] = {"nodeset.slinky.slurm.net/pod-hostname": "Rack3-07"}
    inventory = settled(node())
    assert aliases(inventory.apply(added(made))) == {"gpu-01": ("rack3-07", "slurm-worker-gpu-0")}
