"""What names the service that a job was refused by, and what is the job's own."""

from __future__ import annotations

import orjson
import pytest

from streams.detect import Detector
from streams.model.signal import Signal
from tests.streams.detect.lines import record


def event(reason: str, message: str, kind: str = "Pod") -> list[Signal]:
    about = {"kind": kind, "namespace": "ml", "name": "llm-0", "uid": "u1"}
    source = {"component": "kubelet", "host": "gpu-3"}
    made = {"metadata": {"name": "e1"}, "reason": reason, "message": message, "type": "Warning"}
    value = orjson.dumps({**made, "involvedObject": about, "source": source})
    return list(Detector("c1").detect(record(value.decode(), topic="raw.k8s-events")).signals)


PULL = 'Failed to pull image "reg.example:5000/ml/llm:2": '
REGISTRIES = {
    "unexpected status from HEAD request to https://reg.example:5000/v2/ml/llm/manifests/2: 502 Bad Gateway": "reg.example:5000",
    'failed to do request: Head "https://reg.example/v2/a": dial tcp 10.0.0.9:443: connect: connection refused': "reg.example",
    'Head "https://reg.example/v2/ml/llm/manifests/2": x509: certificate has expired or is not yet valid': "reg.example",
    "rpc error: code = NotFound desc = failed to resolve reference: reg.example/ml/llm:2: not found": None,
    "unexpected status from HEAD request to https://reg.example/v2/ml/llm/manifests/2: 401 Unauthorized": None,
}


@pytest.mark.parametrize("why", REGISTRIES)
def test_a_pull_names_its_registry_only_where_that_does_not_serve(why: str) -> None:
    (signal,) = event("Failed", PULL + why)
    assert signal.attributes["subtype"] == "image_pull"
    assert signal.attributes.get("registry") == REGISTRIES[why]


EXPIRED = 'Get "https://reg.example/v2/": tls: failed to verify certificate: x509: certificate has expired or is not yet valid'


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (EXPIRED, True),
        (f"{EXPIRED}: current time 2026-03-01T12:00:00Z is after 2026-03-01T11:58:00Z", True),
        (f"{EXPIRED}: current time 2026-03-01T12:00:00+01:00 is before 2026-03-02T00:00:00Z", False),
        ('Get "https://reg.example/v2/": x509: certificate signed by unknown authority', False),
    ],
)
def test_a_certificate_has_expired_where_the_clock_of_whoever_asks_is_past_it(why: str, told: bool) -> None:
    (signal,) = event("Failed", PULL + why)
    assert signal.attributes["registry"] == "reg.example"
    assert ("certificate" in signal.attributes) is told


def test_a_pod_of_the_resolver_that_does_not_answer_its_kubelet_tells_of_its_node() -> None:
    (signal,) = event(
        "Unhealthy", 'Readiness probe failed: Get "http://10.4.0.12:8181/ready": context deadline exceeded'
    )
    assert (signal.kind, signal.attributes["subtype"]) == ("unknown", "resolver_unwell")
    assert (signal.entity.node, signal.entity.pod) == ("gpu-3", None)


HOOK = (
    'Error creating: Internal error occurred: failed calling webhook "h.example.io": failed to call webhook: '
)


def test_a_job_whose_pods_a_webhook_keeps_from_being_created_names_it() -> None:
    post = 'Post "https://defaults.platform.svc:443/pods?timeout=10s": no endpoints available for service "defaults"'
    (signal,) = event("FailedCreate", HOOK + post, kind="Job")
    assert signal.entity.key == "job/Job/ml/llm-0"
    named = {name: signal.attributes[name] for name in ("subtype", "webhook", "service")}
    assert named == {"subtype": "create_refused", "webhook": "h.example.io", "service": "defaults"}


@pytest.mark.parametrize(
    "message",
    [
        'Error creating: pods "llm-0" is forbidden: exceeded quota: gpus, requested: 8, used: 64, limited: 64',
        'Error creating: admission webhook "policy.example.io" denied the request: no owner label',
    ],
)
def test_what_a_quota_or_a_policy_refuses_is_its_owners(message: str) -> None:
    assert {s.kind for s in event("FailedCreate", message, kind="Job")} <= {"unknown"}


def test_an_eviction_tells_what_the_node_lacks_and_what_the_pod_used() -> None:
    message = (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 90Gi, available: 40Gi. "
        "Container main was using 12Mi, request is 0, has larger consumption of ephemeral-storage."
    )
    (signal,) = event("Evicted", message)
    told = {name: signal.attributes[name] for name in ("threshold", "left", "used", "resource")}
    assert told == {"threshold": "90Gi", "left": "40Gi", "used": "12Mi", "resource": "ephemeral-storage"}


def test_a_store_that_is_not_found_by_its_name_tells_why() -> None:
    text = (
        "[E1121 07:13:13.100000001 socket.cpp:1023] [c10d] The client socket has failed to connect to any network "
        "address of (llm-0.llm, 29500). The IPv4 network addresses of (llm-0.llm, 29500) cannot be retrieved (gai "
        "error: -3 - Temporary failure in name resolution)."
    )
    found = Detector("c1").detect(record(text, topic="raw.job-logs")).signals
    assert {(s.kind, s.attributes["subtype"]) for s in found} == {
        ("nccl.error", "store"),
        ("job.failed", "name_resolution"),
    }


POST = 'Post "https://defaults.platform.svc:443/pods?timeout=10s": '
REFUSED = f'Internal error occurred: failed calling webhook "h.example.io": failed to call webhook: {POST}'
OWNERS = {
    ("MPIJob", "MPIJobFailed", f"worker pod created failed: {REFUSED}x509: certificate has expired"),
    ("PyTorchJob", "FailedCreatePod", f"Error creating: {REFUSED}context deadline exceeded"),
    ("JobSet", "JobCreationFailed", f'{REFUSED}no endpoints available for service "defaults"'),
    ("Job", "ExecuteAction", f"Failed to create pod llm-0 for Job llm, err {REFUSED}EOF"),
    ("ReplicaSet", "FailedCreate", f"Error creating: {REFUSED}connect: connection refused"),
    ("StatefulSet", "FailedCreate", f"create Pod x-0 in StatefulSet x failed error: {REFUSED}EOF"),
    ("TaskRun", "Failed", f"failed to create task run pod: {REFUSED}EOF. Maybe invalid TaskSpec"),
    ("Experiment", "ReconcileError", f"could not create workers: {REFUSED}EOF"),
}


@pytest.mark.parametrize(("kind", "reason", "message"), sorted(OWNERS))
def test_a_webhook_that_fails_refuses_whatever_the_controller_calls_that(
    kind: str, reason: str, message: str
) -> None:
    (signal,) = event(reason, message, kind=kind)
    assert signal.entity.key == f"job/{kind}/ml/llm-0"
    assert (signal.kind, signal.attributes["subtype"]) == ("job.failed", "create_refused")
    named = {name: signal.attributes[name] for name in ("webhook", "service", "service_namespace")}
    assert named == {"webhook": "h.example.io", "service": "defaults", "service_namespace": "platform"}
    assert ("late" in signal.attributes) is (reason == "FailedCreatePod")


NOT_REFUSED = {
    "a policy": 'could not create workers: admission webhook "h.example.io" denied the request: no owner',
    "a policy that quotes": 'create: admission webhook "h.example.io" denied the request: failed calling webhook "x"',
    "one that may fail": f"Failed calling webhook, failing open h.example.io: {REFUSED}EOF, create",
    "an update": f"could not update status: {REFUSED}EOF",
}


@pytest.mark.parametrize("name", NOT_REFUSED)
def test_a_denial_an_ignored_failure_and_an_update_refuse_no_creation(name: str) -> None:
    found = event("ReconcileError", NOT_REFUSED[name], kind="Experiment")
    assert not [s for s in found if s.kind == "job.failed"]


def test_what_has_no_pods_made_is_refused_none() -> None:
    assert not event("ReconcileError", f"could not create it: {REFUSED}EOF", kind="Certificate")
