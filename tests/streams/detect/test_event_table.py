"""Rows of `kubectl get events`, with and without the columns and the header that other outputs have."""

from __future__ import annotations

import pytest

from tests.streams.detect.lines import signals

PLAIN = "LAST SEEN   TYPE      REASON        OBJECT     MESSAGE\n"
SPACED = "NAMESPACE   LAST SEEN   TYPE      REASON        OBJECT     MESSAGE\n"
MOUNT = (
    'Warning   FailedMount   pod/w-7   MountVolume.SetUp failed for volume "d" : rpc error: code = Internal'
)
EVICTED = "Warning   Evicted   pod/w-8   The node was low on resource: memory."


def keys(text: str) -> list[str]:
    return [signal.entity.key for signal in signals(text)]


@pytest.mark.parametrize(
    ("text", "pods"),
    [
        (f"{PLAIN}41s         {MOUNT}", ["pod//w-7"]),
        (f"41s         {MOUNT}", ["pod//w-7"]),
        (f"2m11s (x3 over 5m)   {MOUNT}", ["pod//w-7"]),
        (f"<unknown>   {MOUNT}", ["pod//w-7"]),
        (MOUNT, ["pod//w-7"]),
        (f"{SPACED}ml   41s   {MOUNT}", ["pod/ml/w-7"]),
        (f"ml   41s (x3 over 5m)   {MOUNT}", ["pod/ml/w-7"]),
        (f"ml   <unknown>   {MOUNT}", ["pod/ml/w-7"]),
        (f"5m   41s   {MOUNT}", ["pod/5m/w-7"]),
        (f"2026-11-21T07:13:13Z 41s   {MOUNT}", ["pod//w-7"]),
        (f"{PLAIN}41s   {MOUNT}\n2m11s   {EVICTED}", ["pod//w-7", "pod//w-8"]),
        (f"{PLAIN.strip()} 41s   {MOUNT} 2m11s   {EVICTED}", ["pod//w-7", "pod//w-8"]),
        (f"41s   {MOUNT} 2m11s   {EVICTED}", ["pod//w-7", "pod//w-8"]),
        (f"ml   41s   {MOUNT} lab   2m11s   {EVICTED}", ["pod/ml/w-7", "pod/lab/w-8"]),
    ],
)
def test_an_age_is_no_namespace(text: str, pods: list[str]) -> None:
    assert keys(text) == pods


def test_a_row_ends_where_the_next_one_begins() -> None:
    first, second = signals(f"ml   41s   {MOUNT} ml   2m11s   {EVICTED}")
    assert "resource" not in first.attributes
    assert second.attributes["resource"] == "memory"


@pytest.mark.parametrize("age", ["29d", "3y10d", "5h12m", "142m"])
def test_a_listing_shows_the_past_as_well(age: str) -> None:
    assert not keys(f"ml   {age}   {MOUNT}")
    assert not keys(
        f"{age}   Warning   SystemOOM   node/gpu-7   System OOM encountered, victim process: python"
    )


def test_wide_output_names_the_node_that_has_no_healthy_gpu() -> None:
    found = signals(
        "ml   41s   Warning   UnexpectedAdmissionError   pod/w-7       kubelet, gpu-9   Allocate failed due to no healthy "
        "devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected   41s   1   w-7.17a"
    )
    assert [(one.kind, one.entity.node) for one in found] == [
        ("gpu.driver", "gpu-9"),
        ("job.failed", "gpu-9"),
    ]


def test_kinds_of_jobs_are_printed_in_lower_case() -> None:
    (found,) = signals("ml   41s   Warning   RayJobFailed   rayjob/tune   RayJob tune failed")
    assert found.entity.key == "job/RayJob/ml/tune"


def test_a_row_that_somebody_quotes_is_none() -> None:
    assert not keys(f'runbook: when kubectl shows "{MOUNT}", wait')
