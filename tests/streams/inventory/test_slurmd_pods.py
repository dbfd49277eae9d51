"""What Slurm on Kubernetes calls its nodes: names of the nodes on which its pods stand."""

from __future__ import annotations

from collections.abc import Iterable

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


def test_the_operators_label_says_what_slurm_calls_a_pod_without_a_host_name() -> None:
    made = slurmd()
    del made["spec"]["hostname"]
    made["metadata"]["labels"] = {"nodeset.slinky.slurm.net/pod-hostname": "Rack3-07"}
    inventory = settled(node())
    assert aliases(inventory.apply(added(made))) == {"gpu-01": ("rack3-07", "slurm-worker-gpu-0")}
