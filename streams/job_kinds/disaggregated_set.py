"""DisaggregatedSet, of disaggregatedset.x-k8s.io: LeaderWorkerSets that serve one model together. Observed only.

Source: LeaderWorkerSet, "DisaggregatedSet".
"""

from __future__ import annotations

from streams.job_kinds.kind import JobKind, by_name

DISAGGREGATED_SET = JobKind(
    name="DisaggregatedSet",
    api_versions=("disaggregatedset.x-k8s.io/v1", "disaggregatedset.x-k8s.io/v1alpha1"),
    plural="disaggregatedsets",
    pod_labels=by_name("disaggregatedset.x-k8s.io/name"),
    children=frozenset({"LeaderWorkerSet", "StatefulSet"}),
    no_lever="it serves and is not suspended: the drain evicts its pods on the closed node, and its sets make their groups anew",
    notes=("It is never acted on as a whole: the drain of the node moves its groups.",),
)
