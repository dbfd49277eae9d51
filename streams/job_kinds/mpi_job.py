"""MPIJob: v2beta1 of the MPI operator, v1 of the training operator. Both have the same suspend field, roles and pod label.

In v2beta1 the launcher is a batch Job between the MPIJob and its pod.
"""

from __future__ import annotations

from dataclasses import replace

from streams.job_kinds.kubeflow import kubeflow_kind

MPI_JOB = replace(
    kubeflow_kind("MPIJob", "mpijobs", api_versions=("kubeflow.org/v2beta1", "kubeflow.org/v1")),
    children=frozenset({"Job"}),
)
