"""What keeps a pod from starting: its author's slip, what passes within a second, and what a registry says of itself."""

from __future__ import annotations

import orjson
import pytest

from tests.streams.detect.lines import firm, signals

REF = "reg.example.com/a/b:1"
PULL = f'Failed to pull image "{REF}": rpc error: code = Unknown desc = '


def of_pod(reason: str, message: str) -> list[tuple[str, str, object]]:
    about = {"kind": "Pod", "name": "w-1", "namespace": "ml"}
    times = {"lastTimestamp": "2026-11-21T07:13:13Z", "source": {"component": "kubelet", "host": "gpu-7"}}
    found = signals(
        orjson.dumps(
            {"reason": reason, "message": message, "type": "Warning", "involvedObject": about, **times}
        )
    )
    return [(one.kind, one.severity, one.attributes.get("registry")) for one in firm(found)]


@pytest.mark.parametrize(
    "message",
    [
        'MountVolume.SetUp failed for volume "c" : failed to sync configmap cache: timed out waiting for the condition',
        'MountVolume.SetUp failed for volume "c" : failed to sync secret cache: timed out waiting for the condition',
        'MountVolume.SetUp failed for volume "c" : object "ml"/"cfg" not registered',
    ],
)
def test_what_the_kubelet_has_only_not_read_yet_is_nothing(message: str) -> None:
    assert of_pod("FailedMount", message) == []


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedMount", 'MountVolume.SetUp failed for volume "c" : secret "key" not found'),
        ("Failed", f'{PULL}failed to resolve reference "{REF}": {REF}: not found'),
        ("Failed", f"{PULL}Error response from daemon: pull access denied for b, repository does not exist"),
        ("BackOff", f'Back-off pulling image "{REF}"'),
        ("Failed", "Error: ImagePullBackOff"),
    ],
)
def test_an_authors_slip_informs(reason: str, message: str) -> None:
    assert of_pod(reason, message) == [("job.failed", "info", None)]


@pytest.mark.parametrize(
    ("said", "registry"),
    [
        (
            "unexpected status from HEAD request to https://reg.example.com/v2/a/b/manifests/1: 520 Web Server Error",
            "reg.example.com",
        ),
        (
            "pulling from host 127.0.0.1:65001 failed with status code [manifests 1]: 500 Internal Server Error",
            "reg.example.com",
        ),
        (
            "pulling from host mirror.example.com:5000 failed with status code [manifests 1]: 503 Service Unavailable",
            "mirror.example.com:5000",
        ),
        ("Error response from daemon: received unexpected HTTP status: 502 Bad Gateway", "reg.example.com"),
        ("pulling from host reg.example.com failed with status code [manifests 1]: 401 Unauthorized", None),
    ],
)
def test_a_registry_that_answers_with_an_error_of_its_own_is_named(said: str, registry: str | None) -> None:
    assert of_pod("Failed", PULL + said) == [("job.failed", "warning", registry)]
    assert of_pod("BackOff", f'Back-off pulling image "{REF}": ErrImagePull: {said}') == [
        ("job.failed", "warning", registry)
    ]


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("22013, Non-fatal, Link 44 Minion Link DLREQ interrupt", "info"),
        ("20009, Non-fatal, Link 04 RX Short Error Rate", "info"),
        ("11012, Non-fatal, Link 5 ingress ECC limit", "warning"),
        ("20034, Fatal, Link 30 LTSSM Fault Up", "critical"),
    ],
)
def test_a_link_error_that_the_switch_corrected_informs(line: str, severity: str) -> None:
    (found,) = signals(f"Nov 21 07:13:13 hgx-04 kernel: nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {line}")
    assert found.severity == severity
