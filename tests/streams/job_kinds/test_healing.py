"""Which jobs heal themselves, as their objects say it; and which can be moved, by what, and at what cost."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.jobs import job_fact
from streams.job_kinds import healing
from streams.job_kinds.hyperpod import HYPERPOD_PYTORCH_JOB
from streams.job_kinds.kind import HEALS_WITHIN, Lever
from streams.job_kinds.known import KNOWN
from streams.job_kinds.rights import IN_THE_BASE, component_of, how_to_permit
from tests.streams.inventory.objects import AT


def job(
    kind: str,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    marks: dict[str, str] | None = None,
) -> dict[str, Any]:
    declared = KNOWN[kind]
    return {
        "apiVersion": declared.api_versions[0],
        "kind": declared.kind or kind,
        "metadata": {"name": "train", "namespace": "team-a", "uid": "u-1", "annotations": marks or {}},
        "spec": spec or {},
        "status": status or {},
    }


AW = "workload.codeflare.dev.appwrapper"
GRACES = {f"{AW}/failureGracePeriodDuration": "1m30s", f"{AW}/retryPausePeriodDuration": "10s"}
FORGIVING = {
    "backoffLimit": 2,
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
}
ELASTIC = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4, "maxRestarts": 3}}
RESTARTED: dict[str, Any] = {"failurePolicy": {"maxRestarts": 3}}
MAY_FAIL = {"failurePolicy": {"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]}}
IN_PLACE = {"failurePolicy": {"maxRestarts": 3, "restartStrategy": "InPlaceRestart"}}
RIGID = {"elasticPolicy": {"minReplicas": 4, "maxReplicas": 4}}


@pytest.mark.parametrize(
    ("made", "within_s"),
    [
        (job("Job"), None),
        (job("Job", FORGIVING), 180.0),
        (job("Job", FORGIVING, {"failed": 2}), None),
        (job("Job", FORGIVING | {"podFailurePolicy": {"rules": [{"action": "FailJob"}]}}), None),
        (job("PyTorchJob"), None),
        (job("PyTorchJob", ELASTIC), 180.0),
        (job("PyTorchJob", RIGID), None),
        (job("JobSet", {"failurePolicy": {"maxRestarts": 3}}, {"restarts": 2}), 180.0),
        (job("JobSet", {"failurePolicy": {"maxRestarts": 3}}, {"restarts": 3}), None),
        (job("JobSet", RESTARTED, {"restarts": 9, "restartsCountTowardsMax": 2}), 180.0),
        (job("JobSet", MAY_FAIL), None),
        (job("JobSet", IN_PLACE), None),
        (job("JobSet", IN_PLACE, marks={healing.NOT_IN_PLACE: "true"}), 180.0),
        (job("HyperPodPyTorchJob"), 1800.0),
        (job("ElasticJob"), 600.0),
        (job("AppWrapper"), 360.0),
        (job("AppWrapper", status={"retries": 3}), None),
        (job("AppWrapper", marks=GRACES), 210.0 + 90 + 10),
        (job("AppWrapper", marks={f"{AW}/retryPausePeriodDuration": "soon"}), 360.0),
        (job("AppWrapper", marks={f"{AW}/retryLimit": "0"}), None),
        (job("PyTorchJob", marks={HEALS_WITHIN: "600"}), 600.0),
        (job("HyperPodPyTorchJob", marks={HEALS_WITHIN: "0"}), None),
        (job("PyTorchJob", marks={HEALS_WITHIN: "soon"}), None),
        (job("PyTorchJob", marks={HEALS_WITHIN: "1e9"}), None),
    ],
)
def test_a_job_heals_itself_as_its_kind_its_spec_or_its_owner_says(
    made: dict[str, Any], within_s: float | None
) -> None:
    assert job_fact("c1", made, AT).heals_within_s == within_s


def test_a_hyper_pod_job_has_no_lever_and_counts_its_restarts() -> None:
    spec = {
        "runPolicy": {"restartPolicy": {"maxFullJobRestarts": 5}},
        "replicaSpecs": [{"name": "pods", "replicas": 4}],
    }
    fact = job_fact("c1", job("HyperPodPyTorchJob", spec, {"restartCount": 3}), AT)
    assert (fact.lever, fact.immovable, fact.retries_left) == (None, HYPERPOD_PYTORCH_JOB.no_means, 2)
    assert fact.pods == 4


def test_a_leader_worker_set_is_moved_by_eviction_and_says_what_that_costs() -> None:
    lws = job("LeaderWorkerSet", {"replicas": 3, "leaderWorkerTemplate": {"size": 4}})
    kind = KNOWN["LeaderWorkerSet"]
    fact = job_fact("c1", lws, AT)
    assert (fact.lever, fact.immovable) == (Lever.EVICT, None)
    assert fact.cost is not None
    assert "every pod of a group" in fact.cost
    assert (kind.pods(lws), fact.pods) == (12, 4), "all of it is verified; one group is a world"
    alone = job("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 4, "restartPolicy": "None"}})
    assert "the others wait" in str(job_fact("c1", alone, AT).cost)


def test_every_known_kind_has_a_component_or_is_in_the_base() -> None:
    for kind in KNOWN.values():
        for version in kind.watched_as:
            in_base = (kind.group, kind.kind or kind.name) in IN_THE_BASE
            assert bool(component_of(version)) != in_base, version
    assert how_to_permit("example.com/v1/Training").startswith("give the service accounts")
