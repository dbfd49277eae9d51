"""Which pods are evicted: one per group where that makes it anew, never a second one while it is on its way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from connectors.jobs.eviction_choice import RECREATED_S, choose, group_of
from streams.job_kinds.leader_worker_set import GROUP
from streams.model.clock import rfc3339
from tests.streams.inventory.objects import AT

CLOSED = {"bad"}


def lws(policy: str | None = None) -> dict[str, Any]:
    template: dict[str, Any] = {"size": 3} | ({"restartPolicy": policy} if policy else {})
    return {"metadata": {"name": "moe"}, "spec": {"leaderWorkerTemplate": template}}


def pod(
    name: str,
    node: str | None = "bad",
    *,
    uid: str = "",
    phase: str = "Running",
    age_s: float = 600,
    leaves: bool = False,
) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "labels": {GROUP: name.split("-")[1]},
        "creationTimestamp": rfc3339(AT - timedelta(seconds=age_s)),
    }
    if leaves:
        about["deletionTimestamp"] = rfc3339(AT)
    return {"metadata": about, "spec": {"nodeName": node}, "status": {"phase": phase}}


def test_one_pod_of_each_group_on_closed_nodes_is_chosen_and_none_of_the_others() -> None:
    pods = [pod("moe-0"), pod("moe-0-1"), pod("moe-1", "good"), pod("moe-1-1"), pod("moe-2", "good")]
    assert choose(lws(), pods, CLOSED, (), AT) == (("0", "uid-moe-0"), ("1", "uid-moe-1-1"))
    assert choose(lws(), pods, set(), (), AT) == ()


@pytest.mark.parametrize("policy", ["None", "Default"])
def test_where_a_lost_pod_is_replaced_alone_every_pod_there_is_chosen(policy: str) -> None:
    pods = [pod("moe-0"), pod("moe-0-1"), pod("moe-0-2", "good")]
    chosen = choose(lws(policy), pods, CLOSED, (), AT)
    assert chosen == (("0", "uid-moe-0"), ("0", "uid-moe-0-1"))
    assert choose(lws(policy), pods, CLOSED, chosen, AT) == chosen


def test_a_group_with_a_pending_pod_is_not_made_anew_after_start_so_all_its_pods_there_are_chosen() -> None:
    running = [pod("moe-0"), pod("moe-0-1"), pod("moe-0-2", "good")]
    assert len(choose(lws("RecreateGroupAfterStart"), running, CLOSED, (), AT)) == 1
    pending = [*running[:2], pod("moe-0-2", None, phase="Pending")]
    assert len(choose(lws("RecreateGroupAfterStart"), pending, CLOSED, (), AT)) == 2
    assert len(choose(lws(), pending, CLOSED, (), AT)) == 1


def test_nothing_more_is_chosen_while_the_group_is_on_its_way() -> None:
    before = (("0", "uid-moe-0"),)
    there = [pod("moe-0"), pod("moe-0-1")]
    assert choose(lws(), there, CLOSED, before, AT) == before, "not evicted yet"
    leaving = [pod("moe-0", leaves=True), pod("moe-0-1")]
    assert choose(lws(), leaving, CLOSED, before, AT) == before
    replaced = [pod("moe-0", "good", uid="new", age_s=5), pod("moe-0-1")]
    assert choose(lws(), replaced, CLOSED, before, AT) == before, "its controller has had no time yet"


def test_a_group_that_its_controller_does_not_make_anew_loses_its_next_pod() -> None:
    before = (("0", "uid-moe-0"),)
    left = [pod("moe-0", "good", uid="new", age_s=RECREATED_S + 1), pod("moe-0-1")]
    assert choose(lws(), left, CLOSED, before, AT) == (*before, ("0", "uid-moe-0-1"))


def test_a_pod_without_the_label_is_a_group_by_itself() -> None:
    bare = pod("moe-0")
    del bare["metadata"]["labels"]
    assert group_of(bare) == "moe-0"
