"""When Kueue replaces a node of a job itself, for how long it is given the chance, and what its installation says of that."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from connectors.jobs.kueue_settings import KueueSettings, seconds, settings_of
from connectors.jobs.kueue_topology import (
    HOSTNAME,
    REPLACES,
    Replacement,
    assigned_nodes,
    replacement_of,
    why_not,
    within_s,
)
from connectors.kubernetes.client import Object
from tests.connectors.objects import merged, pod

PODS = [pod("train-0", "bad"), pod("train-1", "good")]
SETTINGS = KueueSettings()


def assigned(*nodes: str, level: str = HOSTNAME) -> Object:
    slices = [
        {
            "domainCount": len(nodes),
            "valuesPerLevel": [{"universal": "rack-1"}, {"individual": {"roots": [*nodes]}}],
        }
    ]
    return {"levels": ["rack", level], "slices": slices}


def workload(*, count: int = 2, topology: Object | None = None, **status: object) -> Object:
    sets = [{"name": "main", "topologyAssignment": assigned("bad", "good") if topology is None else topology}]
    said = {"conditions": [{"type": "Admitted", "status": "True"}], "admission": {"podSetAssignments": sets}}
    return {
        "metadata": {"name": "job-train", "namespace": "team-a"},
        "spec": {"podSets": [{"name": "main", "count": count}]},
        "status": said | status,
    }


def test_one_closed_node_of_an_assigned_job_is_replaced() -> None:
    assert why_not(workload(), PODS, {"bad": {}}, SETTINGS) == ""


@pytest.mark.parametrize(
    ("workload_", "closed", "why"),
    [
        (workload(topology={}), ["bad"], "has not assigned"),
        (workload(topology=assigned("block-1", level="block")), ["bad"], "has not assigned"),
        (workload(count=1), ["bad"], "one pod"),
        (workload(), ["bad", "good"], "exactly one node"),
        (workload(), [], "exactly one node"),
        (workload(unhealthyNodes=[{"name": "good"}]), ["bad"], "exactly one node"),
        (workload(admission=None), ["bad"], "not admitted"),
        (merged(workload(), {"spec": {"active": False}}), ["bad"], "not admitted"),
        (workload(requeueState={"count": 3}), ["bad"], "requeued 3 times"),
    ],
)
def test_else_the_job_goes_back_to_its_queue(workload_: Object, closed: list[str], why: str) -> None:
    settings = KueueSettings(requeues=3)
    assert why in why_not(workload_, PODS, {key: {} for key in closed}, settings)
    assert why


def test_a_retry_that_is_left_may_be_risked() -> None:
    assert why_not(workload(requeueState={"count": 2}), PODS, {"bad": {}}, KueueSettings(requeues=3)) == ""


def test_assignments_are_read_as_every_version_writes_them() -> None:
    domains = {
        "levels": ["rack", HOSTNAME],
        "domains": [{"values": ["r1", "n1"], "count": 1}, {"values": ["r1", "n2"]}],
    }
    assert assigned_nodes(workload(topology=domains)) == {"n1", "n2"}
    each = {"individual": {"prefix": "gpu-", "suffix": ".east", "roots": ["1", "2"]}}
    assert assigned_nodes(
        workload(topology={"levels": [HOSTNAME], "slices": [{"valuesPerLevel": [each]}]})
    ) == {
        "gpu-1.east",
        "gpu-2.east",
    }
    universal = {"levels": [HOSTNAME], "slices": [{"valuesPerLevel": [{"universal": "n1"}]}]}
    assert assigned_nodes(workload(topology=universal)) == {"n1"}


def test_what_was_begun_is_remembered_and_nonsense_is_nothing() -> None:
    begun = Replacement("key-1", "bad", datetime(2026, 3, 1, tzinfo=UTC))
    noted = merged(workload(), {"metadata": {"annotations": {REPLACES: str(begun)}}})
    assert replacement_of(noted) == begun
    assert replacement_of(merged(workload(), {"metadata": {"annotations": {REPLACES: "nonsense"}}})) is None


CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
waitForPodsReady:
  recoveryTimeout: 3m
  requeuingStrategy: {backoffLimitCount: 5}
"""


def test_our_deadline_lies_inside_of_kueues_patience() -> None:
    image = {
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "manager", "image": "reg.example:5000/kueue:v0.19.2@sha256:ab"}]
                }
            }
        }
    }
    settings = settings_of(CONFIG, image)
    assert settings == KueueSettings("0.19.2", 180.0, 5)
    assert within_s(settings) == 90.0
    assert within_s(KueueSettings()) == 300.0


@pytest.mark.parametrize(
    "config", ["", "[", "- a", "waitForPodsReady: 3", "waitForPodsReady: {recoveryTimeout: soon}"]
)
def test_what_cannot_be_read_of_kueue_keeps_its_default(config: str) -> None:
    assert settings_of(config, {}) == KueueSettings()


@pytest.mark.parametrize(
    ("text", "value"), [("30m", 1800.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("5", None), ("", None)]
)
def test_durations(text: str, value: float | None) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("written", ["", "key node", "key node soon", "key node 2026-03-03T03:04:12"])
def test_an_annotation_that_somebody_has_changed_is_no_replacement(written: str) -> None:
    assert replacement_of({"metadata": {"annotations": {REPLACES: written}}}) is None
