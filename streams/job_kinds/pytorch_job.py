"""PyTorchJob of the training operator."""

from __future__ import annotations

from streams.job_kinds.kubeflow import kubeflow_kind

PYTORCH_JOB = kubeflow_kind("PyTorchJob", "pytorchjobs")
