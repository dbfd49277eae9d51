"""MPIJob: v2beta1 of the MPI operator, v1 of the training operator. Both have the same suspend field, roles and pod label.

In v2beta1 the launcher is a batch Job between the MPIJob and its pod: it restarts as often as `runPolicy.backoffLimit` says, and
counts its own failed pods. Sources: MPI operator, "API reference" (RunPolicy); training-operator v1 API reference.
"""

from __future__ import annotations

from dataclasses import replace

from streams.job_kinds.kind import Proof, Retries
from streams.job_kinds.kubeflow import PROVEN_BY, kubeflow_kind
from streams.model.kube_objects import KubeObject, part, whole

V2 = "kubeflow.org/v2beta1"
LAUNCHER_RETRIES = 6
"""Where the job says nothing: a batch Job's default."""


def _retries(job: KubeObject) -> Retries | None:
    if job.get("apiVersion") != V2:
        return None
    limit = whole(part(job, "spec", "runPolicy").get("backoffLimit"))
    failed = whole(part(job, "status", "replicaStatuses", "Launcher").get("failed")) or 0
    return Retries(failed, LAUNCHER_RETRIES if limit is None else limit)


MPI_JOB = replace(
    kubeflow_kind(
        "MPIJob",
        "mpijobs",
        api_versions=(V2, "kubeflow.org/v1"),
        proof=Proof.SIMULATED,
        proven_by=f"v1 against its own controller, {PROVEN_BY}",
        notes=(
            "Of v2beta1 the launcher's Job is suspended too, and its retries are known; the suspension costs none.",
        ),
    ),
    children=frozenset({"Job"}),
    retries=_retries,
)
