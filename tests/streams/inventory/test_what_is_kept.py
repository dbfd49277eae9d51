"""What the inventory works out once for many pods holds as long as what it was made of, and not longer."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.inventory.objects import Identity, identity
from streams.inventory.owners import OwnerTable
from streams.inventory.pod_templates import PodTemplates
from streams.model.facts import FactRecord, JobFact, PodFact
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import controller_of
from streams.model.watch import KindListed, ObjectChange
from tests.effort import tries
from tests.streams.inventory.objects import (
    AT,
    Object,
    batch_job,
    job,
    job_set,
    kubeflow_pod,
    owner,
    pod,
    pod_spec,
    pytorch_job,
)

DECLARED = "faultline.dev/workload"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOBSET, TRAINER, WRAPPER = (
    "jobset.x-k8s.io/v1alpha2",
    "trainer.kubeflow.org/v1alpha1",
    "workload.codeflare.dev/v1beta2",
)


def added(inventory: Inventory, *objects: Object) -> list[FactChange]:
    return [change for obj in objects for change in inventory.apply(ObjectChange(AT, "ADDED", obj))]


def deleted(inventory: Inventory, *objects: Object) -> list[FactChange]:
    return [change for obj in objects for change in inventory.apply(ObjectChange(AT, "DELETED", obj))]


def settled(*objects: Object) -> Inventory:
    inventory = Inventory("c1")
    added(inventory, *objects)
    inventory.settle()
    return inventory


def pods(inventory: Inventory) -> dict[str, PodFact]:
    facts = [record.fact for record in inventory.facts.values() if record is not None]
    return {fact.name: fact for fact in facts if isinstance(fact, PodFact)}


def ranks(inventory: Inventory) -> dict[str, int | None]:
    return {name: fact.rank for name, fact in pods(inventory).items()}


WORKERS = (kubeflow_pod("w0", "worker", 0), kubeflow_pod("w1", "worker", 1))


def test_pods_follow_a_job_whose_roles_change() -> None:
    inventory = settled(pytorch_job(), *WORKERS)
    assert ranks(inventory) == {"w0": 8, "w1": 16}
    added(inventory, pytorch_job(master=False))
    assert ranks(inventory) == {"w0": 0, "w1": 8}
    added(inventory, pytorch_job(master=False, spec={"nprocPerNode": "2"}))
    assert ranks(inventory) == {"w0": 0, "w1": 2}


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pods_follow_what_their_job_declares(where: str) -> None:
    inventory = settled(pytorch_job(), *WORKERS)
    metadata: dict[str, Any] = {where: {DECLARED: "inference"}}
    added(inventory, pytorch_job(**metadata))
    assert {fact.workload for fact in pods(inventory).values()} == {WorkloadClass.INFERENCE}
    added(inventory, pytorch_job())
    assert {fact.workload for fact in pods(inventory).values()} == {WorkloadClass.TRAINING}


def test_a_pod_follows_what_it_declares_itself_and_leaves_the_others_of_its_job_alone() -> None:
    counted = [
        pod(f"p{n}", owners=[owner("Job", "train")], labels={COMPLETION_INDEX: str(n)}) for n in range(2)
    ]
    inventory = settled(batch_job(spec={"completionMode": "Indexed"}), *counted)
    assert {fact.workload for fact in pods(inventory).values()} == {WorkloadClass.TRAINING}
    labels = {COMPLETION_INDEX: "1", DECLARED: "batch"}
    added(inventory, pod("p1", owners=[owner("Job", "train")], labels=labels))
    assert {name: fact.workload for name, fact in pods(inventory).items()} == {
        "p0": WorkloadClass.TRAINING,
        "p1": WorkloadClass.BATCH,
    }


def test_pods_of_one_template_part_when_one_of_them_asks_for_something_else() -> None:
    inventory = settled(pod("a"), pod("b"))
    added(inventory, pod("b", spec=pod_spec(4, args=["--nproc_per_node=2"])))
    assert {name: fact.gpus for name, fact in pods(inventory).items()} == {"a": 8, "b": 4}


def test_a_job_that_is_suspended_is_told_and_its_pods_are_not_told_again() -> None:
    inventory = settled(pytorch_job(), *WORKERS)
    changes = added(inventory, pytorch_job(spec={"runPolicy": {"suspend": True}}, status={"failed": 1}))
    assert [key for key, _ in changes] == ["c1/job/PyTorchJob/team-a/train"]
    record = inventory.facts["c1/job/PyTorchJob/team-a/train"]
    assert record is not None
    assert isinstance(record.fact, JobFact)
    assert record.fact.suspended


def test_a_job_that_comes_back_under_its_name_is_another_one() -> None:
    inventory = settled(pytorch_job(uid="first"), kubeflow_pod("w0", "worker", 0))
    again = pytorch_job(master=False, uid="second")
    mine = owner("PyTorchJob", "train", api="kubeflow.org/v1") | {"uid": "second"}
    fresh = kubeflow_pod("w0", "worker", 0)
    fresh["metadata"] |= {"ownerReferences": [mine], "uid": "another"}
    deleted(inventory, pytorch_job(uid="first"))
    added(inventory, again, fresh)
    told = pods(inventory)["w0"]
    assert (told.rank, told.job and told.job.uid) == (0, "second")


def test_owners_before_their_pods_and_pods_before_their_owners() -> None:
    objects = (
        batch_job("part", ownerReferences=[owner("JobSet", "top", api=JOBSET)]),
        job_set("top"),
        pod(
            "p",
            owners=[owner("Job", "part")],
            labels={
                "jobset.sigs.k8s.io/replicatedjob-name": "workers",
                "jobset.sigs.k8s.io/job-index": "1",
                COMPLETION_INDEX: "2",
            },
        ),
    )
    for order in (objects, objects[::-1]):
        told = pods(settled(*order))["p"]
        assert (told.rank, told.job and told.job.kind) == (48, "JobSet")


def test_the_same_list_once_more_tells_nothing_and_a_shorter_one_takes_back() -> None:
    everything = (pytorch_job(), *WORKERS)
    inventory = settled(*everything)
    assert added(inventory, *everything) == []
    assert inventory.apply(KindListed(AT, "v1/Pod", frozenset({("team-a", "w0")}))) == [
        ("c1/pod/team-a/w1", None)
    ]
    assert list(pods(inventory)) == ["w0"]


def test_an_annotation_as_long_as_a_document_does_no_harm() -> None:
    inventory = settled(pod(annotations={"kubectl.kubernetes.io/last-applied-configuration": "x" * 50_000}))
    assert list(pods(inventory)) == ["train-0"]


def test_templates_are_one_object_whatever_is_not_read_and_go_with_the_last_that_holds_them() -> None:
    table = PodTemplates()
    mounts = [{"name": "kube-api-access-7x2kp", "mountPath": "/var/run/secrets"}]
    mounted = pod_spec()
    mounted["containers"][0]["volumeMounts"] = mounts
    first = table.of(pod_spec())
    assert table.of(mounted) is first
    assert table.of(pod_spec(4)) is not first
    assert table.of(pod_spec(env={"NPROC_PER_NODE": "2"})) is not first
    seen = ref(first)
    del first
    gc.collect()
    assert seen() is None


def test_owners_are_one_object_for_all_pods_of_a_job_in_one_namespace() -> None:
    table = OwnerTable()
    first = table.of(WORKERS[0], "team-a")
    assert table.of(WORKERS[1], "team-a") is first
    assert table.of(WORKERS[1], "team-b") is not first
    seen = ref(first)
    del first
    gc.collect()
    assert seen() is None


TEMPLATE = {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "train"}, "spec": {}}
WORLD: dict[Identity, list[Object]] = {}
"""Each object of a small cluster, in all the states in which it may be seen."""


def _states(*objects: Object) -> None:
    for obj in objects:
        WORLD.setdefault(identity(obj), []).append(obj)


_states(
    pytorch_job(),
    pytorch_job(workers=1),
    pytorch_job(master=False, labels={DECLARED: "inference"}),
    pytorch_job(spec={"runPolicy": {"suspend": True}}),
    pytorch_job(master=False, uid="second-train"),
)
_states(
    batch_job("child", spec={"completionMode": "Indexed"}),
    batch_job("child", gpus=0),
    batch_job("child", ownerReferences=[owner("JobSet", "top", api=JOBSET)]),
    batch_job("child", ownerReferences=[owner("CronJob", "nightly")]),
    batch_job("child", pods=1, annotations={"example.com/seen": "1"}, uid="second-child"),
)
_states(
    job_set("top"),
    job("top", kind="JobSet", api=JOBSET, uid="second-top"),
    job_set("top")
    | {
        "metadata": job_set("top")["metadata"]
        | {"ownerReferences": [owner("TrainJob", "top") | {"uid": "uid-trainer"}]}
    },
)
_states(
    job("top", kind="TrainJob", api=TRAINER, uid="uid-trainer", spec={"trainer": {"numNodes": 2}}),
    job(
        "top", kind="TrainJob", api=TRAINER, uid="uid-trainer", ownerReferences=[owner("AppWrapper", "wrap")]
    ),
)
_states(
    job("wrap", kind="AppWrapper", api=WRAPPER, spec={"components": [{"template": TEMPLATE}]}),
    job("wrap", kind="AppWrapper", api=WRAPPER, spec={"components": [{"template": pytorch_job()}]}),
)
_states(
    kubeflow_pod("w", "worker", 1),
    kubeflow_pod("w", "worker", 1, phase="Failed"),
    kubeflow_pod("w", "master", 0, spec=pod_spec(8, env={"RANK": "3"})),
)
for _labels in (
    {},
    {
        COMPLETION_INDEX: "1",
        "jobset.sigs.k8s.io/job-index": "1",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    },
    {COMPLETION_INDEX: "1", "workload.codeflare.dev/appwrapper": "wrap"},
):
    _states(
        pod("c", owners=[owner("Job", "child")], labels=_labels),
        pod("c", owners=[owner("Job", "child") | {"uid": "second-child"}], labels=_labels, spec=pod_spec(0)),
    )
_states(
    pod("alone"),
    pod("alone", spec=pod_spec(0)),
    pod("alone", owners=[owner("ReplicaSet", "web", api="apps/v1")]),
    pod("alone", labels={"app": "jupyter"}),
)
NAMES = sorted(WORLD)
Step = tuple[Identity, int | None]
"""An object and the state in which it is seen; None where it is deleted."""
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), st.integers(0, 5))), min_size=1, max_size=25
)


def _is_left_behind(obj: Object, there: dict[Identity, Object], seen: set[tuple[Identity, str]]) -> bool:
    """Whether an object's owner was there and is not: then Kubernetes deletes it, too."""
    above = controller_of(obj)
    if above is None:
        return False
    who = Identity(above["kind"], obj["metadata"]["namespace"], above["name"])
    now = there.get(who)
    return (who, above["uid"]) in seen and (now is None or now["metadata"]["uid"] != above["uid"])


@settings(max_examples=tries(200))
@given(STEPS, st.integers(0, 25), st.randoms(use_true_random=False))
def test_whatever_happened_what_is_told_is_what_is_told_of_the_objects_that_are_there(
    steps: Sequence[Step], settled_after: int, chance: Any
) -> None:
    inventory, there = Inventory("c1"), dict[Identity, Object]()
    seen: set[tuple[Identity, str]] = set()
    told: dict[str, FactRecord | None] = {}
    for position, (who, state) in enumerate(steps):
        if position == settled_after:
            told.update(inventory.settle())
        if state is None:
            told.update(deleted(inventory, there.pop(who, WORLD[who][0])))
        else:
            there[who] = WORLD[who][state % len(WORLD[who])]
            seen.add((who, there[who]["metadata"]["uid"]))
            told.update(added(inventory, there[who]))
    told.update(inventory.settle())
    while left := [who for who, obj in there.items() if _is_left_behind(obj, there, seen)]:
        for who in left:
            told.update(deleted(inventory, there.pop(who)))
    order = list(there.values())
    chance.shuffle(order)
    expected = settled(*order).facts
    assert {key: record for key, record in told.items() if record is not None} == expected
    # A list that is read again, in another order, says the same.
    chance.shuffle(order)
    assert added(inventory, *order) == []
