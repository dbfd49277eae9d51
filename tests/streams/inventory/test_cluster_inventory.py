"""What the inventory says when, from events in; and that the other side reads the same out of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.inventory.names import NodeLabels, names
from streams.inventory.recorded_watch import facts, read_change
from streams.inventory.topology_file import read_topology
from streams.model.entity import JobRef
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord, LinkFact, NodeFact, PodFact
from streams.model.watch import KindListed, ObjectChange
from tests.effort import tries
from tests.streams.inventory.objects import (
    AT,
    Object,
    batch_job,
    job,
    kubeflow_pod,
    node,
    owner,
    pod,
    pod_spec,
    pytorch_job,
)

TRAIN = JobRef("PyTorchJob", "team-a", "train")
CPU = pod_spec(0)


def added(obj: Object) -> ObjectChange:
    return ObjectChange(AT, "ADDED", obj)


def deleted(obj: Object) -> ObjectChange:
    return ObjectChange(AT, "DELETED", obj)


def listed(kind: str, *names: tuple[str, str]) -> KindListed:
    return KindListed(AT, kind, frozenset(names))


def settled(*objects: Object) -> Inventory:
    inventory = Inventory("c1")
    for obj in objects:
        inventory.apply(added(obj))
    inventory.settle()
    return inventory


def keys(changes: Iterable[FactChange]) -> list[str]:
    return [("" if record else "-") + key for key, record in changes]


def pod_of(changes: Iterable[FactChange]) -> PodFact:
    (fact,) = [record.fact for _, record in changes if record and isinstance(record.fact, PodFact)]
    return fact


def test_nothing_is_said_before_all_kinds_are_listed_and_then_everything_once() -> None:
    inventory = Inventory("c1")
    assert inventory.apply(added(kubeflow_pod("w0", "worker", 0))) == []
    assert inventory.apply(added(pytorch_job())) == []
    changes = inventory.settle()
    assert keys(changes) == ["c1/pod/team-a/w0", "c1/job/PyTorchJob/team-a/train"]
    assert (pod_of(changes).rank, pod_of(changes).ranks) == (8, 8)
    assert inventory.settle() == []


def test_a_heartbeat_is_no_news_and_a_fault_is() -> None:
    inventory = settled(node())
    beat = node()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-03-01T12:00:00Z"
    beat["metadata"]["resourceVersion"] = "8"
    assert inventory.apply(ObjectChange(AT + timedelta(minutes=1), "MODIFIED", beat)) == []
    assert keys(inventory.apply(added(node(ready="Unknown")))) == ["c1/node/gpu-01"]


def test_a_deleted_object_leaves_a_tombstone_once() -> None:
    inventory = settled(node(), pod())
    assert keys(inventory.apply(deleted(pod()))) == ["-c1/pod/team-a/train-0"]
    assert inventory.apply(deleted(pod())) == []


def test_what_a_new_list_does_not_name_is_gone() -> None:
    inventory = settled(node("a"), node("b"), pod("x"), pytorch_job())
    assert keys(inventory.apply(listed("v1/Node", ("", "b")))) == ["-c1/node/a"]
    assert keys(inventory.apply(listed("v1/Pod"))) == ["-c1/pod/team-a/x"]
    assert keys(inventory.apply(listed("kubeflow.org/v1/PyTorchJob"))) == ["-c1/job/PyTorchJob/team-a/train"]


def test_a_kind_that_is_not_served_says_nothing_about_its_objects() -> None:
    inventory = settled(pytorch_job())
    assert inventory.apply(KindListed(AT, "kubeflow.org/v1/PyTorchJob", None)) == []


def test_facts_of_objects_that_vanished_while_nobody_watched_become_tombstones() -> None:
    before = settled(node("a"), node("b"), batch_job(gpus=8))
    inventory = Inventory("c1")
    inventory.adopt(before.facts)
    inventory.apply(ObjectChange(AT + timedelta(hours=1), "ADDED", node("b")))
    inventory.apply(listed("v1/Node", ("", "b")))
    assert keys(inventory.settle()) == ["-c1/node/a"], "b is unchanged, jobs have not been listed"
    assert keys(inventory.apply(listed("batch/v1/Job"))) == ["-c1/job/Job/team-a/train"]


@pytest.mark.parametrize(
    ("shown", "published"),
    [
        (pod(), True),
        (pod(spec=CPU), False),
        (pod(spec=CPU, owners=[owner("Job", "plain")]), False),
        (pod(spec=CPU, owners=[owner("Job", "gpus")]), True),
        (pod(spec=CPU, owners=[owner("PyTorchJob", "train", api="kubeflow.org/v1")]), True),
        (pod(spec=CPU, owners=[owner("ReplicaSet", "web", api="apps/v1")]), False),
        (pod(spec=pod_spec(2), owners=[owner("ReplicaSet", "llm", api="apps/v1")]), True),
    ],
)
def test_only_pods_with_gpus_or_of_a_training_job_are_told(shown: Object, published: bool) -> None:
    inventory = settled(batch_job("plain", gpus=0), batch_job("gpus"), pytorch_job())
    assert bool(inventory.apply(added(shown))) is published


def test_a_job_that_comes_after_its_pods_gives_them_their_ranks() -> None:
    inventory = settled(kubeflow_pod("w0", "worker", 0))
    changes = inventory.apply(added(pytorch_job()))
    assert keys(changes) == ["c1/job/PyTorchJob/team-a/train", "c1/pod/team-a/w0"]
    assert pod_of(changes).rank == 8


def test_a_job_below_another_is_not_told_as_a_job_of_its_own() -> None:
    child = batch_job("child", ownerReferences=[owner("JobSet", "top", api="jobset.x-k8s.io/v1alpha2")])
    inventory = settled()
    assert inventory.apply(added(child)) == []
    changes = inventory.apply(added(pod(owners=[owner("Job", "child")])))
    assert pod_of(changes).job == JobRef("JobSet", "team-a", "top", "uid-top")


WRAPPER = "workload.codeflare.dev/v1beta2"
TRAINER = "trainer.kubeflow.org/v1alpha1"


def wrapped_training() -> tuple[Object, Object, Object, Object, Object]:
    """An AppWrapper, its TrainJob, that one's JobSet, a Job of it, and a pod of that."""
    template = {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "train"}, "spec": {}}
    wrapper = job("wrap", kind="AppWrapper", api=WRAPPER, spec={"components": [{"template": template}]})
    train = job("train", kind="TrainJob", api=TRAINER, spec={}, ownerReferences=[owner("AppWrapper", "wrap")])
    nodes = {"parallelism": 2, "completions": 2, "template": {"spec": pod_spec(8)}}
    replicated = [{"name": "node", "replicas": 1, "template": {"spec": nodes}}]
    made = job(
        "train",
        kind="JobSet",
        api="jobset.x-k8s.io/v1alpha2",
        spec={"replicatedJobs": replicated},
        ownerReferences=[owner("TrainJob", "train", api=TRAINER)],
    )
    part = batch_job("train-node-0", ownerReferences=[owner("JobSet", "train")])
    labels = {
        "workload.codeflare.dev/appwrapper": "wrap",
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "1",
    }
    return wrapper, train, made, part, pod("p", owners=[owner("Job", "train-node-0")], labels=labels)


def test_the_top_most_of_many_owners_is_the_job_and_the_only_one() -> None:
    *owners, last = wrapped_training()
    inventory = settled()
    told = [key for one in owners for key in keys(inventory.apply(added(one)))]
    assert told == ["c1/job/AppWrapper/team-a/wrap"]
    shown = pod_of(inventory.apply(added(last)))
    assert shown.job == JobRef("AppWrapper", "team-a", "wrap", "uid-wrap")
    assert (shown.rank, shown.ranks) == (8, 8), "by the JobSet, which says what the pods are"


def test_without_the_job_set_ranks_below_a_train_job_are_not_guessed() -> None:
    wrapper, train, _, part, last = wrapped_training()
    inventory = settled(wrapper, train, part)
    shown = pod_of(inventory.apply(added(last)))
    assert shown.job == JobRef("AppWrapper", "team-a", "wrap")
    assert shown.rank is None


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew under its name"])
def test_a_part_of_a_job_that_is_gone_leaves_its_pods_their_job(anew: bool) -> None:
    """Controllers restart a job by deleting its parts; for a while their pods are still there, and end."""
    top = owner("JobSet", "top", api="jobset.x-k8s.io/v1alpha2")
    child = batch_job("child", uid="uid-child", ownerReferences=[top])
    inventory = settled(child, pod(owners=[owner("Job", "child")]))
    inventory.apply(added(batch_job("child", uid="uid-2", ownerReferences=[top])) if anew else deleted(child))
    changes = inventory.apply(added(pod(owners=[owner("Job", "child")], phase="Failed")))
    assert pod_of(changes).job == JobRef("JobSet", "team-a", "top", "uid-top")
    inventory.apply(deleted(pod(owners=[owner("Job", "child")])))
    changes = inventory.apply(added(pod(owners=[owner("Job", "child")])))
    assert pod_of(changes).job == JobRef("Job", "team-a", "child", "uid-child"), "forgotten with its last pod"


def test_a_pod_that_starts_under_an_old_name_is_news() -> None:
    inventory = settled(pod())
    again = pod(on="gpu-02")
    again["metadata"]["uid"] = "another"
    assert pod_of(inventory.apply(added(again))).uid == "another"


def test_cabling_is_replaced_as_a_whole() -> None:
    old = "leaf-1: {Ethernet0: {node: a, nic: mlx5_0}, Ethernet4: {node: b, nic: mlx5_0}}"
    new = "leaf-1: {Ethernet0: {node: a, nic: mlx5_0}, Ethernet8: {switch: spine-1, port: Ethernet1}}"
    inventory = settled()
    inventory.links(read_topology("c1", old, AT).links)
    changes = inventory.links(read_topology("c1", new, AT + timedelta(hours=1)).links)
    assert sorted(keys(changes)) == ["-c1/link/leaf-1/Ethernet4", "c1/link/leaf-1/Ethernet8"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "mapping of switches"),
        ("leaf-1: [1]", "leaf-1: must be a mapping"),
        ("leaf-1: {E0: {node: a, switch: b}}", "leaf-1: E0: .*either"),
        ("leaf-1: {E0: {nic: mlx5_0}}", "leaf-1: E0: .*either"),
        ("leaf-1: {E0: {node: a, colour: red}}", "leaf-1: E0: "),
        ("{", "not YAML"),
        ("nodes: [1]", "nodes: must be a mapping"),
        ("nodes: {gpu-01: {lief: leaf-1}}", "nodes: gpu-01: lief"),
    ],
)
def test_wrong_cabling_is_named(content: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_topology("c1", content, AT)


def test_a_cabling_file_says_where_nodes_stand_and_counts_for_more_than_labels() -> None:
    content = """
leaf-1: {Ethernet0: {node: gpu-01, nic: mlx5_0}}
nodes:
  gpu-01: {leaf: leaf-1, rack: r7, rails: {mlx5_0: leaf-1, mlx5_1: leaf-2}}
"""
    told = read_topology("c1", content, AT)
    assert [link.key for link in told.links] == ["c1/link/leaf-1/Ethernet0"]
    inventory = Inventory("c1")
    inventory.places(told.places)
    inventory.apply(
        added(
            node(
                labels={"network.topology.nvidia.com/leaf": "elsewhere", "faultline.dev/nvlink-domain": "d4"}
            )
        )
    )
    fact = facts_of(inventory)["c1/node/gpu-01"]
    assert isinstance(fact, NodeFact)
    assert (fact.leaf, fact.rack, fact.nvlink_domain) == ("leaf-1", "r7", "d4")
    assert fact.rails == {"mlx5_0": "leaf-1", "mlx5_1": "leaf-2"}


def test_a_sites_own_labels_come_before_those_that_ship() -> None:
    labels = names().node_labels.after(NodeLabels(leaf=("example.com/topology-rack",)))
    inventory = Inventory("c1", labels)
    inventory.apply(added(node(labels={"example.com/topology-rack": "l9", "faultline.dev/leaf": "l1"})))
    fact = facts_of(inventory)["c1/node/gpu-01"]
    assert isinstance(fact, NodeFact)
    assert fact.leaf == "l9"


def test_hosts_that_lldp_names_otherwise_are_found_unless_it_is_not_sure_which() -> None:
    inventory = Inventory("c1")
    told = {"E0": "gpu-01.dc1.example.com", "E4": "gpu-02", "E8": "gpu-03", "E12": "stranger"}
    inventory.links(LinkFact("c1", "leaf-1", port, AT, node=name) for port, name in told.items())
    for name in ("gpu-01", "gpu-02.a.example.com", "gpu-03.a.example.com", "gpu-03.b.example.com"):
        inventory.apply(added(node(name)))
    found = {f.port: f.node for f in facts_of(inventory).values() if isinstance(f, LinkFact)}
    assert found == {"E0": "gpu-01", "E4": "gpu-02.a.example.com", "E8": "gpu-03", "E12": "stranger"}


def test_a_cabling_file_may_call_a_node_by_another_of_its_names() -> None:
    inventory = Inventory("c1")
    inventory.places(read_topology("c1", "nodes: {i-0abc12345: {rack: r7}, GPU-02: {rack: r8}}", AT).places)
    inventory.links(
        [
            LinkFact("c1", "leaf-1", "E0", AT, node="10.0.0.9"),
            LinkFact("c1", "leaf-1", "E4", AT, node="GPU-02"),
        ]
    )
    for name, provider, address in (
        ("gpu-01", "aws:///eu-1a/i-0abc12345", "10.0.0.8"),
        ("gpu-02", "", "10.0.0.9"),
    ):
        shown = node(name, labels={})
        shown["spec"]["providerID"] = provider
        shown["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
        inventory.apply(added(shown))
    found = list(facts_of(inventory).values())
    assert {f.name: f.rack for f in found if isinstance(f, NodeFact)} == {"gpu-01": "r7", "gpu-02": "r8"}
    assert {f.port: f.node for f in found if isinstance(f, LinkFact)} == {"E0": "gpu-02", "E4": "gpu-02"}


def facts_of(inventory: Inventory) -> dict[str, Fact]:
    return {key: record.fact for key, record in inventory.settle() if record is not None}


def test_a_recorded_watch_gives_the_facts_of_a_live_one() -> None:
    later = AT + timedelta(minutes=3)
    everything = {"kind": "List", "items": [kubeflow_pod("w0", "worker", 0), pytorch_job()]}
    lines: list[dict[str, Any]] = [
        {"time": "2026-03-01T12:00:00Z", "type": "ADDED", "object": node()},
        {"time": "2026-03-01T12:00:00Z", "type": "ADDED", "object": everything},
        {"time": "2026-03-01T12:03:00Z", "type": "DELETED", "object": kubeflow_pod("w0", "worker", 0)},
    ]
    told = list(facts("c1", (read_change(line) for line in lines)))
    assert [(at, *keys([change])) for at, change in told] == [
        (AT, "c1/node/gpu-01"),
        (AT, "c1/pod/team-a/w0"),
        (AT, "c1/job/PyTorchJob/team-a/train"),
        (later, "-c1/pod/team-a/w0"),
    ]
    assert pod_of([told[1][1]]).rank == 8


@pytest.mark.parametrize(
    "line",
    [
        None,
        {"type": "ADDED"},
        {"time": "x", "type": "ADDED", "object": {}},
        {"type": "BOOKMARK", "object": {}},
    ],
)
def test_a_line_that_is_no_change_is_refused(line: object) -> None:
    with pytest.raises(BadInput):
        read_change(line)


OBJECTS = [
    node("a"),
    node("b"),
    pytorch_job(),
    batch_job("child", ownerReferences=[owner("JobSet", "top")]),
    kubeflow_pod("m", "master", 0),
    kubeflow_pod("w", "worker", 0, spec=CPU),
    pod("c", owners=[owner("Job", "child")], spec=CPU),
    pod("alone"),
]


@settings(max_examples=tries(60))
@given(st.permutations(OBJECTS), st.integers(0, len(OBJECTS)))
def test_the_same_objects_give_the_same_facts_in_any_order(order: list[Object], settled_after: int) -> None:
    inventory = Inventory("c1")
    told: dict[str, FactRecord | None] = {}
    for position, obj in enumerate(order):
        if position == settled_after:
            told.update(inventory.settle())
        told.update(inventory.apply(added(obj)))
    told.update(inventory.settle())
    expected = settled(*OBJECTS).facts
    assert {key: record for key, record in told.items() if record} == expected


def test_a_job_that_works_on_a_node_for_faultline_is_nobodys_training_job() -> None:
    label = {"faultline.dev/node-work": "validate_node"}
    job = batch_job("check", pods=1, labels=label)
    worker = pod("check-0", owners=[owner("Job", "check")], labels=label)
    assert settled(job, worker, pytorch_job()).facts.keys() == settled(pytorch_job()).facts.keys()
    inventory = settled(node(), job, worker)
    assert [inventory.apply(deleted(thing)) for thing in (worker, job)] == [[], []]


def test_nodes_that_do_not_bear_the_selector_are_nodes_of_another_installation() -> None:
    north: dict[str, Any] = {"labels": {"example.com/domain": "north", "gpu": ""}}
    inventory = Inventory("c1", selector=("example.com/domain=north", "gpu"))
    for obj in (
        node("gpu-01", **north),
        node("gpu-02"),
        node("gpu-03", labels={"example.com/domain": "south", "gpu": ""}),
    ):
        inventory.apply(added(obj))
    inventory.apply(added(pod("train-0")))
    assert [key for key in keys(inventory.settle()) if "/node/" in key] == ["c1/node/gpu-01"]
    # It goes to another domain: nobody here may act on what is remembered of it.
    assert keys(inventory.apply(added(node("gpu-01", labels={"example.com/domain": "south"})))) == [
        "-c1/node/gpu-01"
    ]
    assert keys(inventory.apply(added(node("gpu-02", **north)))) == ["c1/node/gpu-02"]
