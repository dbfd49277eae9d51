"""Where the jobs of a kind are at the API server."""

from __future__ import annotations

from connectors.kubernetes.client import path_of
from streams.job_kinds.known import KNOWN


def jobs_at(kind: str, namespace: str, name: str | None = None, *, version: str | None = None) -> str:
    """The path of a namespace's jobs of a kind, or of one of them; in the kind's newest version unless another is named."""
    declared = KNOWN[kind]
    return path_of(version or declared.api_versions[0], declared.plural, namespace=namespace, name=name)
