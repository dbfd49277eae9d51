"""JAXJob of the training operator, from 1.9 on."""

from __future__ import annotations

from streams.job_kinds.kind import Proof
from streams.job_kinds.kubeflow import PROVEN_BY, kubeflow_kind

JAX_JOB = kubeflow_kind(
    "JAXJob",
    "jaxjobs",
    proof=Proof.DOCUMENTED,
    proven_by=f"unknown to {PROVEN_BY}, which the others are proven by",
)
