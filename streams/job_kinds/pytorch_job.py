"""PyTorchJob of the training operator."""

from __future__ import annotations

from dataclasses import replace

from streams.job_kinds.healing import by_elastic_launcher
from streams.job_kinds.kubeflow import kubeflow_kind

PYTORCH_JOB = replace(
    kubeflow_kind(
        "PyTorchJob",
        "pytorchjobs",
        notes=("An elastic one that may run with fewer pods is given three minutes to gather again itself.",),
    ),
    heals_within_s=by_elastic_launcher,
)
