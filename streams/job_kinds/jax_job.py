"""JAXJob of the training operator."""

from __future__ import annotations

from streams.job_kinds.kubeflow import kubeflow_kind

JAX_JOB = kubeflow_kind("JAXJob", "jaxjobs")
