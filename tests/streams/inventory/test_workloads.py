"""What each pod and job is taken for: training, or one of the many other things that hold GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.cluster_inventory import Inventory
from streams.inventory.workloads import Classifier
from streams.model.codec import decode, encode
from streams.model.facts import FactRecord, JobFact, PodFact
from streams.model.watch import ObjectChange
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
    volcano_job,
)


def told(*shown: Object, classifier: Classifier | None = None) -> dict[str, PodFact | JobFact]:
    """The facts of pods and jobs once all of these were seen, by name."""
    inventory = Inventory("c1", classifier=classifier)
    inventory.settle()
    for obj in shown:
        inventory.apply(ObjectChange(AT, "ADDED", obj))
    facts = [record.fact for record in inventory.facts.values() if record is not None]
    return {
        fact.job.name if isinstance(fact, JobFact) else fact.name: fact
        for fact in facts
        if isinstance(fact, PodFact | JobFact)
    }


def of(*shown: Object, classifier: Classifier | None = None) -> str:
    """The class of the one pod among these, with a `?` when it is a guess."""
    (fact,) = (f for f in told(*shown, classifier=classifier).values() if isinstance(f, PodFact))
    return str(fact.workload) + ("?" if fact.workload_guessed else "")


def run(words: str, gpus: int = 8) -> Object:
    return pod_spec(gpus, args=words.split())


def image(name: str, gpus: int = 1) -> Object:
    return {"containers": [pod_spec(gpus)["containers"][0] | {"image": name}]}


def under(kind: str, name: str = "train", api: str = "batch/v1", **more: Any) -> Object:
    return pod(owners=[owner(kind, name, api=api)], **more)


RAY: Object = {
    "workerGroupSpecs": [{"replicas": 4, "template": {"spec": pod_spec(8)}}],
    "headGroupSpec": {"template": {"spec": pod_spec(0)}},
}
INDEXED = {"completionMode": "Indexed"}
NIGHTLY: dict[str, Any] = {"ownerReferences": [owner("CronJob", "nightly")]}
CASES: dict[str, tuple[tuple[Object, ...], str]] = {
    "a pod of a PyTorchJob": ((pytorch_job(), kubeflow_pod("w", "worker", 0)), "training"),
    "one whose PyTorchJob is not watched": ((kubeflow_pod("w", "worker", 0),), "training"),
    "a JobSet's": ((job_set(), under("JobSet", api="jobset.x-k8s.io/v1alpha2")), "training"),
    "an MPIJob's worker": ((under("MPIJob", api="kubeflow.org/v2beta1"),), "training"),
    "a VolcanoJob's, with GPUs": ((volcano_job(), under("Job", api="batch.volcano.sh/v1alpha1")), "training"),
    "a RayCluster's": (
        (job(kind="RayCluster", api="ray.io/v1", spec=RAY), under("RayCluster", api="ray.io/v1")),
        "training",
    ),
    "a RayCluster that serves": (
        (
            job(kind="RayCluster", api="ray.io/v1", spec=RAY, ownerReferences=[owner("RayService", "chat")]),
            under("RayCluster", api="ray.io/v1"),
        ),
        "inference",
    ),
    "a Job whose pods hold a board each": ((batch_job(), under("Job")), "training?"),
    "a Job of counted pods with one GPU each": ((batch_job(gpus=1, spec=INDEXED), under("Job", spec=pod_spec(1))), "training?"),
    "a Job of uncounted pods with one GPU each": ((batch_job(gpus=1), under("Job", spec=pod_spec(1))), "batch?"),
    "a Job with one GPU": ((batch_job(pods=1, gpus=1), under("Job", spec=pod_spec(1))), "batch?"),
    "a CronJob's": (
        (batch_job(pods=1, gpus=1, **NIGHTLY), under("Job", spec=pod_spec(1))),
        "batch?",
    ),
    "a CronJob's training": ((pytorch_job(**NIGHTLY), kubeflow_pod("w", "worker", 0)), "training"),
    "a Job that starts torchrun": (
        (batch_job(pods=1, gpus=1), under("Job", spec=run("torchrun train.py", 1))),
        "training?",
    ),
    "a notebook": ((under("StatefulSet", "nb", api="apps/v1", labels={"notebook-name": "nb"}),), "notebook"),
    "a notebook by its image": ((pod(spec=image("reg.example/jupyter-pytorch:1")),), "notebook?"),
    "a notebook that JupyterHub made": ((pod(labels={"component": "singleuser-server"}),), "notebook"),
    "a Spark executor": ((pod(labels={"spark-role": "executor"}),), "batch"),
    "a Spark driver's Job": ((under("SparkApplication", api="sparkoperator.k8s.io/v1beta2"),), "batch"),
    "an Argo step": ((under("Workflow", api="argoproj.io/v1alpha1"),), "batch"),
    "a replica that serves": ((under("ReplicaSet", "llm-5d", api="apps/v1"),), "inference?"),
    "a predictor": ((under("ReplicaSet", "p-1", labels={"serving.kserve.io/inferenceservice": "p"}),), "inference"),
    "a LeaderWorkerSet that serves": (
        (under("LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1", spec=run("vllm serve m")),),
        "inference?",
    ),
    "a LeaderWorkerSet": ((under("LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1"),), "inference?"),
    "a LeaderWorkerSet that trains": (
        (under("LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1", spec=run("/opt/bin/torchrun t.py")),),
        "training?",
    ),
    "a LeaderWorkerSet of a training framework's image": (
        (
            under(
                "LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1", spec=image("reg.example/ml/megatron:25.04", 4)
            ),
        ),
        "training?",
    ),
    "one of an image that serves what it trains": (
        (
            under(
                "LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1", spec=image("verlai/verl:vllm0.11", 4)
            ),
        ),
        "inference?",
    ),
    "a shell in a training framework's image": (
        (under("ReplicaSet", "box-5d", api="apps/v1", spec=image("reg.example/ml/megatron:25.04", 8)),),
        "inference?",
    ),
    "a VolcanoJob's, that shows no template": (
        (
            job(api="batch.volcano.sh/v1alpha1", spec={"tasks": [{"name": "worker", "replicas": 18}]}),
            under("Job", api="batch.volcano.sh/v1alpha1"),
        ),
        "training",
    ),
    "a CI runner": ((under("EphemeralRunner", api="actions.github.com/v1alpha1"),), "build"),
    "a pipeline's task": ((under("TaskRun", api="tekton.dev/v1"),), "build"),
    "a daemon of every node": ((under("DaemonSet", "dcgm", api="apps/v1"),), "system"),
    "Slinky's slurmd": ((under("NodeSet", "slurmd", api="slinky.slurm.net/v1alpha1"),), "system"),
    "another operator's slurmd": (
        (under("StatefulSet", "worker", api="apps/v1", spec=run("/usr/sbin/slurmd -D")),),
        "system",
    ),
    "a pod that nobody owns": ((pod(),), "unknown"),
    "a pod of a kind nobody knows": ((under("Flurble", api="flurbles.example/v1"),), "unknown"),
    "a pod that is declared": ((pod(labels={"faultline.dev/workload": "training"}),), "training"),
    "a training job that is declared batch": (
        (pytorch_job(annotations={"faultline.dev/workload": "batch"}), kubeflow_pod("w", "worker", 0)),
        "batch",
    ),
    "a declaration that means nothing": ((pod(labels={"faultline.dev/workload": "lunch"}),), "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backwards", [False, True])
def test_what_holds_gpus_is_known_by_who_made_it(name: str, backwards: bool) -> None:
    shown, expected = CASES[name]
    assert of(*(reversed(shown) if backwards else shown)) == expected


def test_a_site_may_declare_training_by_labels_and_kinds_of_its_own() -> None:
    labels = Classifier(training_labels=("example.com/run",))
    kinds = Classifier(training_kinds=("flurbles.example/v1/Flurble", "apps/v1/StatefulSet"))
    flurble = under("Flurble", api="flurbles.example/v1")
    assert of(pod(labels={"example.com/run": "r1"}), classifier=labels) == "training"
    assert of(flurble, classifier=kinds) == "training"
    assert of(under("StatefulSet", api="apps/v1"), classifier=kinds) == "inference?", "the table knows better"


def test_a_pod_of_a_job_that_is_no_training_has_no_ranks() -> None:
    facts = told(batch_job(pods=2, gpus=1), under("Job", spec=pod_spec(1, env={"RANK": "1"})))
    assert [(type(f).__name__, f.workload) for f in facts.values()] == [
        ("JobFact", "batch"),
        ("PodFact", "batch"),
    ]
    (shown,) = (f for f in facts.values() if isinstance(f, PodFact))
    assert (shown.rank, shown.trains) == (None, False)


def test_a_launcher_without_gpus_is_of_its_jobs_class() -> None:
    launcher = kubeflow_pod("m", "launcher", 0) | {"spec": pod_spec(0)}
    assert of(pytorch_job(), launcher) == "training"


def test_a_fact_of_a_version_that_knew_no_classes_is_about_training() -> None:
    fact = told(pytorch_job(), kubeflow_pod("w", "worker", 0))["w"]
    raw = encode(FactRecord(fact)).replace(b'"workload":"training",', b"")
    assert b"workload" not in raw
    read = decode(FactRecord, raw).fact
    assert isinstance(read, PodFact)
    assert read.trains


def test_when_a_pod_was_made_and_started_is_told() -> None:
    shown = kubeflow_pod("w", "worker", 0, creationTimestamp="2026-03-01T10:58:00Z")
    shown["status"]["containerStatuses"] = [{"state": {"running": {"startedAt": "2026-03-01T11:00:05Z"}}}]
    fact = told(shown)["w"]
    assert isinstance(fact, PodFact)
    assert fact.created_at is not None
    assert fact.started_at is not None
    assert (fact.started_at - fact.created_at).total_seconds() == 125


def state_of(*states: dict[str, object]) -> PodFact:
    shown = kubeflow_pod("w", "worker", 0)
    shown["status"]["containerStatuses"] = [{"state": state} for state in states]
    fact = told(shown)["w"]
    assert isinstance(fact, PodFact)
    return fact


RUNS: dict[str, object] = {"running": {"startedAt": "2026-03-01T11:00:05Z"}}
ENDED: dict[str, object] = {"terminated": {"exitCode": 0, "startedAt": "2026-03-01T11:00:20Z"}}
WAITS: dict[str, object] = {"waiting": {"reason": "ImagePullBackOff"}}
COULD_NOT: dict[str, object] = {
    "terminated": {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z"}
}


@pytest.mark.parametrize(
    ("states", "second"),
    [
        ((RUNS,), 5),
        ((RUNS, ENDED), 20),
        ((ENDED,), 20),
        ((RUNS, WAITS), None),
        ((COULD_NOT,), None),
        ((), None),
    ],
)
def test_a_pod_has_started_when_the_last_of_its_containers_has(
    states: tuple[dict[str, object], ...], second: int | None
) -> None:
    started = state_of(*states).started_at
    assert (started.second if started is not None else None) == second
