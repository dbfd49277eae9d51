"""Which pods of a job are evicted from closed nodes. Pure, over the job, its pods and what was chosen before.

One pod per group where its loss makes the whole group anew, else every pod there. A group that is just being made anew is left
alone until it is whole. One that was not made anew, although a pod of it was replaced `RECREATED_S` ago (its controller is down),
loses its next pod on the closed node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from connectors.kubernetes.client import Object
from streams.job_kinds.leader_worker_set import AFTER_START, GROUP, recreates_groups, restart_policy
from streams.model.clock import parse_rfc3339

Chosen = tuple[tuple[str, str], ...]
"""Pods to be evicted, in the order in which they were chosen: their group and uid."""

RECREATED_S = 60.0
"""A controller that makes groups anew deletes the others within seconds of the first."""


def choose(
    job: Object, pods: Sequence[Object], closed: Collection[str], before: Chosen, now: datetime
) -> Chosen:
    """What was chosen before, and what has to be evicted besides. `closed` are names of nodes."""
    groups: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"]["name"])):
        groups.setdefault(group_of(pod), []).append(pod)
    more: list[tuple[str, str]] = []
    for group, members in sorted(groups.items()):
        known = {uid for of, uid in before if of == group}
        there = [
            pod
            for pod in members
            if pod["spec"].get("nodeName") in closed
            and not _leaves(pod)
            and pod["metadata"]["uid"] not in known
        ]
        if there and not _goes_whole(job, members):
            more += [(group, str(pod["metadata"]["uid"])) for pod in there]
        elif there and not _is_on_its_way(members, known, now):
            more.append((group, str(there[0]["metadata"]["uid"])))
    return (*before, *more)


def group_of(pod: Object) -> str:
    """The group of a pod; one without the label is a group by itself."""
    about = pod["metadata"]
    return str((about.get("labels") or {}).get(GROUP) or about["name"]).replace(",", "").replace(":", "")


def _goes_whole(job: Object, members: Sequence[Object]) -> bool:
    """Whether the loss of one pod makes the group anew as it stands."""
    pending = any((pod.get("status") or {}).get("phase") == "Pending" for pod in members)
    return recreates_groups(job) and not (restart_policy(job) == AFTER_START and pending)


def _is_on_its_way(members: Sequence[Object], known: Collection[str], now: datetime) -> bool:
    """Whether the group is being made anew, for one of its pods was chosen already."""
    if not known:
        return False
    if any(_leaves(pod) or pod["metadata"]["uid"] in known for pod in members):
        return True
    newest = max(parse_rfc3339(str(pod["metadata"]["creationTimestamp"])) for pod in members)
    return now - newest < timedelta(seconds=RECREATED_S)


def _leaves(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
