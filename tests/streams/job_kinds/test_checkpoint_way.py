"""How a job declares that it can be asked for a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.jobs import job_fact
from streams.job_kinds.checkpoint_way import USUAL_S, CheckpointWay, Declaration, Way, declared, way_of
from tests.streams.inventory.objects import AT, batch_job, pytorch_job

REQUEST, WITHIN = "faultline.dev/checkpoint-request", "faultline.dev/checkpoint-within-s"


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("annotation", CheckpointWay(Way.ANNOTATION)),
        ("http:8080", CheckpointWay(Way.HTTP, 8080, "/")),
        ("http:8080/v1/save", CheckpointWay(Way.HTTP, 8080, "/v1/save")),
        ("signal:USR1", CheckpointWay(Way.SIGNAL, signal="USR1")),
        ("signal:SIGUSR2:trainer", CheckpointWay(Way.SIGNAL, signal="USR2", container="trainer")),
        ("http://169.254.169.254/latest", None),
        ("http:8080/../x?y=1", None),
        ("http:8080@host/x", None),
        ("http:0/x", None),
        ("http:70000/x", None),
        ("signal:KILL", None),
        ("signal:USR1; rm -rf /", None),
        ("Annotation", None),
        ("", None),
        (None, None),
    ],
)
def test_only_what_can_be_done_is_a_way(said: str | None, way: CheckpointWay | None) -> None:
    assert way_of(said) == way


def test_the_object_counts_before_its_pod_templates() -> None:
    template = {"metadata": {"annotations": {REQUEST: "signal:USR1", WITHIN: "30"}}}
    job = pytorch_job()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] |= template
    assert declared(job) == Declaration("signal:USR1", 30)
    job["metadata"]["annotations"] = {REQUEST: "annotation"}
    assert declared(job) == Declaration("annotation")


@pytest.mark.parametrize("said", ["0", "-5", "nan", "inf", "soon", "100000", "120s", ""])
def test_a_time_that_is_none_is_the_usual_one_and_what_was_said_is_kept(said: str) -> None:
    job = batch_job(annotations={REQUEST: "annotation", WITHIN: said})
    assert declared(job) == Declaration("annotation", USUAL_S, said)
    assert job_fact("c1", job, AT).checkpoint_within_unreadable == said


@pytest.mark.parametrize("spec", [None, [], "x", {"template": None}, {"a": [{"metadata": {}, "spec": {}}]}])
def test_a_job_without_a_declaration_has_none(spec: Any) -> None:
    assert declared({"kind": "Job", "metadata": {"name": "a"}, "spec": spec}) == Declaration()


def test_the_inventory_tells_of_it() -> None:
    fact = job_fact("c1", batch_job(annotations={REQUEST: "ftp:21", WITHIN: "45"}), AT)
    assert (fact.checkpoint_by, fact.checkpoint_within_s) == ("ftp:21", 45)
    fact = job_fact("c1", batch_job(), AT)
    assert (fact.checkpoint_by, fact.checkpoint_within_s) == (None, None)
