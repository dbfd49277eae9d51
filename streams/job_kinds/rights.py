"""Which component of `k8s/components` gives the rights for a kind of job.

The base has those for batch Jobs and PyTorchJobs alone: whoever has no MPIJobs needs no right to patch them.
"""

from __future__ import annotations

from collections.abc import Mapping

IN_THE_BASE = frozenset({("batch", "Job"), ("kubeflow.org", "PyTorchJob")})
"""Kinds, by group, whose rights every installation has."""

_BY_KIND: Mapping[tuple[str, str], str] = {("kubeflow.org", "MPIJob"): "jobs-mpi"}

_BY_GROUP: Mapping[str, str] = {
    "kubeflow.org": "jobs-kubeflow",
    "jobset.x-k8s.io": "jobs-jobset",
    "trainer.kubeflow.org": "jobs-trainer",
    "ray.io": "jobs-ray",
    "leaderworkerset.x-k8s.io": "jobs-lws",
    "disaggregatedset.x-k8s.io": "jobs-lws",
    "batch.volcano.sh": "jobs-volcano",
    "workload.codeflare.dev": "jobs-appwrapper",
    "elastic.iml.github.io": "jobs-dlrover",
    "sagemaker.amazonaws.com": "jobs-hyperpod",
}


def component_of(kind: str) -> str:
    """The component for a kind (`group/version/Kind`); empty where the base has its rights, or nobody here knows the kind."""
    api_version, _, name = kind.rpartition("/")
    group = api_version.rpartition("/")[0]
    if (group, name) in IN_THE_BASE:
        return ""
    return _BY_KIND.get((group, name)) or _BY_GROUP.get(group, "")


def how_to_permit(kind: str) -> str:
    """What an operator applies so that jobs of this kind are watched and can be moved."""
    if component := component_of(kind):
        return f"apply k8s/components/{component}"
    return (
        f"give the service accounts inventory (list, watch) and responder (get, patch) the rights for {kind}"
    )
