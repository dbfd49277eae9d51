"""When a pod came to its node, and when it was asked to go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from streams.inventory.jobs import Workload
from streams.inventory.pods import pod_fact
from streams.model.clock import rfc3339
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from tests.streams.inventory.objects import AT, pod, seen


def fact(thing: dict[str, Any], at: datetime = AT) -> PodFact:
    return pod_fact("c1", seen(thing), at, work=Workload(WorkloadClass.TRAINING), job=None)


def test_a_pod_came_to_its_node_when_its_kubelet_took_it_whatever_its_condition_says_later() -> None:
    thing = pod()
    thing["status"]["startTime"] = "2026-03-01T09:00:01Z"
    assert fact(thing).scheduled_at == AT.replace(hour=9, second=1)
    del thing["status"]["startTime"]
    assert fact(thing).scheduled_at == AT.replace(hour=11)


GRACE = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (AT + GRACE, AT),  # the API server adds the time to end by itself
        (AT, AT - timedelta(seconds=5)),  # a pod that ended needs none
        (AT - timedelta(hours=1), AT - timedelta(hours=1)),  # it does not go
    ],
)
def test_a_pod_was_asked_to_go_when_a_watch_tells_it_first(said: datetime, asked: datetime) -> None:
    removed = fact(pod(deletionTimestamp=rfc3339(said), deletionGracePeriodSeconds=30)).removed_at
    assert removed == asked
