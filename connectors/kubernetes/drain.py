"""Drains a node through the Eviction API, one round of evictions per call. Nothing is ever deleted directly.

Level-triggered: each round lists the pods on the node, so a crash, a lost answer or a new pod needs no stored state. Pods are
evicted by uid, so that a new pod of the same name is not evicted instead. Pods protected by a PodDisruptionBudget stay, and the
outcome names both. A dead node held for this incident is declared out of service once only stuck pods are left on it
(`out_of_service`), so that the cluster force-deletes them.

Source of the rules: Kubernetes, "API-initiated eviction" and `kubectl drain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Waiting,
)
from connectors.kubernetes.annotations import MANAGED, annotations_of, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for, ownership_of, replaced, taken_over
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.eviction import evict
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.objects import controller, has_ended, is_ready, name_of
from connectors.kubernetes.out_of_service import (
    OUT_OF_SERVICE,
    declared,
    given_up_for,
    hangs,
    is_leaving,
    is_out_of_service,
    taken_back,
)
from streams.model.clock import Clock, utc_now
from streams.model.signal import Attribute

MIRROR = "kubernetes.io/config.mirror"
LOOK_AGAIN_S = 2.0
BUDGET_PAUSE_S = 5.0
EVICTIONS_A_ROUND = 20
"""Few enough for a round to end well within the lease."""
NOBODY = "the lack of a controller that would recreate it"
NAMED = 5
"""Pods listed by name in a text; the rest are counted."""


@dataclass(frozen=True, slots=True)
class OnNode:
    """The pods of a node that a drain has to remove: still to be evicted, and already terminating."""

    staying: tuple[Object, ...]
    leaving: tuple[Object, ...]

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.staying) + len(self.leaving)


@dataclass(slots=True)
class EvictionRound:
    """Result of one round of evictions. `blocked` maps a pod to what prevents its eviction."""

    evicted: int = 0
    leaving: int = 0
    blocked: dict[str, str] = field(default_factory=dict)


def drained_pods(pods: Sequence[Object], only: Attribute) -> OnNode:
    """Select the pods to drain: never a DaemonSet's pods, mirror pods or finished ones; with `gpu` GPU pods only."""
    concerned = [pod for pod in pods if _concerned(pod, only)]
    return OnNode(
        staying=tuple(pod for pod in concerned if not is_leaving(pod)),
        leaving=tuple(pod for pod in concerned if is_leaving(pod)),
    )


def may_drain(node: Object, effect: Effect) -> Outcome | None:
    """Why a node must not be drained now, or None. On a schedulable node the evicted pods could be scheduled again."""
    name = node["metadata"]["name"]
    if replaced(node, effect):
        return Refused(f"{name} was replaced: its uid differs from the one in the plan")
    if opted_out(node):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    hold = ownership_of(node)
    if hold is not None and (change := taken_over(node, hold)):
        return Blocked.person(change)
    if not node.get("spec", {}).get("unschedulable"):
        return Refused(f"{name} is not cordoned: evicted pods could be scheduled on it again")
    return None


def give_up(node: Object, effect: Effect) -> GuardedChange | Outcome:
    """Declare a node out of service if it is dead, held for this incident, and has only stuck pods left."""
    name = node["metadata"]["name"]
    if (no := may_drain(node, effect)) is not None:
        return no
    if is_ready(node):
        return Waiting(LOOK_AGAIN_S, f"{name} is ready again, its pods are terminating")
    if not is_held_for(node, effect.incident):
        return Waiting(
            LOOK_AGAIN_S,
            f"{name} is NotReady but not cordoned for this incident; will not set the out-of-service taint",
        )
    result = _result(effect, out_of_service=True)
    if is_out_of_service(node):
        waiting = f"out-of-service taint set on {name}; waiting for its pods to be force-deleted"
        return Waiting(LOOK_AGAIN_S, waiting, result)
    if given_up_for(node) == effect.incident:
        return Blocked.person(f"the taint {OUT_OF_SERVICE} was removed manually from {name}")
    then = f"{name} is dead and its pods are stuck Terminating: set the out-of-service taint, so that they are force-deleted"
    return GuardedChange(declared(node, effect.incident), Waiting(LOOK_AGAIN_S, then, result))


def back_in_service(node: Object, effect: Effect) -> GuardedChange | Outcome:
    """Remove Faultline's out-of-service taint from a node that is ready again."""
    name = node["metadata"]["name"]
    if (no := may_drain(node, effect)) is not None:
        return no
    if given_up_for(node) is None or not is_ready(node):
        return Waiting(0.0, f"{name} is checked again")
    detail = f"{name} is ready again: out-of-service taint removed"
    return GuardedChange(taken_back(node), Waiting(0.0, detail, _result(effect, out_of_service=False)))


async def drain(cluster: Cluster, effect: Effect, lease: LeaseHeld, clock: Clock = utc_now) -> Outcome:
    """One round: evict what may be evicted now and report what is left. Call again until done.

    Raises:
        Fenced: the lease has expired; evictions made before stay.
    """
    done = EvictionRound()

    async def once() -> Outcome:
        only = _only(effect)
        if only not in ("gpu", "all"):
            return Refused(f"drain_node: `only` is {only!r}, known are gpu and all")
        try:
            node = await cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return AlreadyDone(detail=f"{effect.target.name} is no longer part of the cluster")
        if effect.params.get("dead_node", True) not in (True, False):
            return Refused(
                f"drain_node: `dead_node` is {effect.params['dead_node']!r}, known are true and false"
            )
        if (no := may_drain(node, effect)) is not None:
            return no
        if given_up_for(node) is not None and is_ready(node):
            return await _node(cluster, effect, lease, back_in_service)
        there = await _pods_on(cluster, effect.target.name)
        pods = drained_pods(there, only)
        if not pods.count:
            return _over(effect)
        if not is_ready(node) and effect.params.get("dead_node", True) and _all_hang(pods, there, clock()):
            return await _node(cluster, effect, lease, give_up)
        bare = [] if effect.params.get("bare") else [pod for pod in pods.staying if controller(pod) is None]
        done.leaving, done.blocked = 0, {name_of(pod): NOBODY for pod in bare}
        for pod in [pod for pod in pods.staying if pod not in bare][:EVICTIONS_A_ROUND]:
            await _evict(cluster, pod, lease, done)
        return _so_far(effect, pods, done)

    return await attempted(once)


async def find(cluster: Cluster, effect: Effect, clock: Clock = utc_now) -> Outcome:
    """Whether the node is drained (`AlreadyDone`), draining (`Waiting`) or not started (`Absent`)."""

    async def once() -> Outcome:
        try:
            node = await cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return AlreadyDone(detail=f"{effect.target.name} is no longer part of the cluster")
        there = await _pods_on(cluster, effect.target.name)
        pods = drained_pods(there, _only(effect))
        if not pods.count:
            return AlreadyDone(detail=f"nothing left to drain on {effect.target.name}")
        if not is_ready(node) and not is_out_of_service(node) and _all_hang(pods, there, clock()):
            return Absent(f"{_pods(pods.leaving)} stuck Terminating on {effect.target.name}, which is dead")
        if not pods.leaving:
            return Absent(f"{_pods(pods.staying)} on {effect.target.name}")
        return Waiting(LOOK_AGAIN_S, f"{_pods(pods.leaving)} terminating, {len(pods.staying)} to evict")

    return await attempted(once)


async def _node(
    cluster: Cluster,
    effect: Effect,
    lease: LeaseHeld,
    decide: Callable[[Object, Effect], GuardedChange | Outcome],
) -> Outcome:
    """Patch the node, decided on a fresh read of it."""
    path = path_of("v1", "nodes", name=effect.target.name)
    gone = AlreadyDone(detail=f"{effect.target.name} is no longer part of the cluster")
    return await change(cluster, path, lambda node: decide(node, effect), lease, if_gone=gone)


def _all_hang(pods: OnNode, there: Sequence[Object], now: datetime) -> bool:
    """Whether only stuck pods are left. Other terminating pods, drained or not, still have their grace period."""
    return not pods.staying and all(hangs(pod, now) for pod in there if is_leaving(pod))


async def _pods_on(cluster: Cluster, node: str) -> list[Object]:
    return await cluster.list_all(path_of("v1", "pods"), query={"fieldSelector": f"spec.nodeName={node}"})


async def _evict(cluster: Cluster, pod: Object, lease: LeaseHeld, done: EvictionRound) -> None:
    """Request one eviction and record its result. Errors that concern more than this pod are raised."""
    answer = await evict(cluster, pod, lease)
    if answer.blocked:
        done.blocked[name_of(pod)] = answer.blocked
    else:
        done.evicted += answer.granted
        done.leaving += 1


def _so_far(effect: Effect, pods: OnNode, done: EvictionRound) -> Outcome:
    result = _result(effect, done.evicted)
    leaving = len(pods.leaving) + done.leaving
    if done.blocked:
        by = ", ".join(sorted(set(done.blocked.values())))
        reason = f"{by} keeps {_names(sorted(done.blocked))} on {effect.target.name}"
        return Blocked(by, f"{reason}; {leaving} terminating" if leaving else reason, BUDGET_PAUSE_S, result)
    names = _names([name_of(pod) for pod in (*pods.leaving, *pods.staying)])
    return Waiting(
        LOOK_AGAIN_S, f"{leaving} of {pods.count} pods terminating on {effect.target.name}: {names}", result
    )


def _over(effect: Effect) -> Outcome:
    evicted, name = effect.prior.get("evicted"), effect.target.name
    if effect.prior.get("out_of_service"):
        detail = f"{name} is dead and drained; the out-of-service taint stays while it is cordoned"
        return Done(_result(effect), detail)
    if evicted:
        return Done(_result(effect), f"{name} is drained, {evicted} pods evicted")
    return AlreadyDone(detail=f"nothing left to drain on {effect.target.name}")


def _result(effect: Effect, evicted: int = 0, **more: Attribute) -> Result:
    """The result so far, updated."""
    before = effect.prior.get("evicted", 0)
    return {**effect.prior, "evicted": evicted + (before if isinstance(before, int) else 0), **more}


def _only(effect: Effect) -> Attribute:
    """GPU pods only unless the runbook says otherwise: the less destructive reading of an unset parameter."""
    return effect.params.get("only", "gpu")


def _concerned(pod: Object, only: Attribute) -> bool:
    owner = controller(pod)
    if MIRROR in annotations_of(pod) or (owner is not None and owner.get("kind") == "DaemonSet"):
        return False
    return not has_ended(pod) and (only != "gpu" or asks_for_gpu(pod))


def asks_for_gpu(pod: Object) -> bool:
    """By resource name: `nvidia.com/gpu`, MIG profiles `nvidia.com/mig-…`, shared `nvidia.com/gpu.shared`; AMD alike."""
    spec = pod.get("spec", {})
    for container in (*(spec.get("containers") or []), *(spec.get("initContainers") or [])):
        resources: Mapping[str, Mapping[str, str]] = container.get("resources") or {}
        for name in (*(resources.get("limits") or {}), *(resources.get("requests") or {})):
            vendor, _, device = name.partition("/")
            if vendor in ("nvidia.com", "amd.com") and device.startswith(("gpu", "mig-")):
                return True
    return False


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _pods(pods: Sequence[Object]) -> str:
    return f"{len(pods)} pods" if len(pods) != 1 else "1 pod"
