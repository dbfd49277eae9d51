"""Drains a node through the Eviction API, one round of evictions per call. Nothing is ever deleted directly.

Level-triggered: each round lists the pods on the node, so a crash, a lost answer or a new pod needs no stored state. Pods are
evicted by uid, so that a new pod of the same name is not evicted instead, and only as long as the node stays closed: it is read
again before each eviction. What a pod is decides about it (`pod_roles`). What stays is told with what keeps it and since when,
and the result names which pods went and which did not (`drain_record`). A dead node held for this incident is declared out of
service once only stuck pods are left on it (`out_of_service`), so that the cluster force-deletes them.

Source of the rules: Kubernetes, "API-initiated eviction" and `kubectl drain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from connectors.kubernetes.annotations import MANAGED, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for, ownership_of, replaced, taken_over
from connectors.kubernetes.device_taints import taint
from connectors.kubernetes.drain_record import DrainRecord, names
from connectors.kubernetes.drain_scope import OnNode, Scope, scope_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.eviction import evict
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.local_volumes import pinned_volumes
from connectors.kubernetes.objects import is_ready, name_of
from connectors.kubernetes.out_of_service import (
    OUT_OF_SERVICE,
    declared,
    given_up_for,
    hangs,
    is_leaving,
    is_out_of_service,
    taken_back,
)
from connectors.kubernetes.pod_roles import (
    LOCAL,
    RETURNS,
    DrainPolicy,
    holds_up,
    kept_by,
    tolerates_cordon,
)
from connectors.power.power_mark import is_proven_off
from streams.model.clock import Clock, utc_now
from streams.model.signal import Attribute

LOOK_AGAIN_S = 2.0
BUDGET_PAUSE_S = 5.0
EVICTIONS_A_ROUND = 20
"""Few enough for a round to end well within the lease."""


@dataclass(slots=True)
class EvictionRound:
    """Result of one round of evictions. `kept` maps a pod to what keeps it on the node."""

    evicted: int = 0
    leaving: int = 0
    kept: dict[str, str] = field(default_factory=dict)


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
    if effect.params.get("fenced") and not is_proven_off(node, effect.incident):
        return Waiting(
            LOOK_AGAIN_S,
            f"{name} is dead and not proven to be off (power_cycle_node with leave_off); will not set the out-of-service taint",
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
    policy = DrainPolicy.of(effect.params)
    if isinstance(policy, str):
        return Refused(policy)
    done = EvictionRound()

    async def once() -> Outcome:
        try:
            node = await _node(cluster, effect)
        except NotFound:
            return AlreadyDone(detail=f"{effect.target.name} is no longer part of the cluster")
        record = DrainRecord.of(effect.prior)
        if (no := may_drain(node, effect)) is not None:
            return _stopped(no, record)
        if given_up_for(node) is not None and is_ready(node):
            return await _patch(cluster, effect, lease, back_in_service)
        there = await _pods_on(cluster, effect.target.name)
        scope = await scope_of(cluster, effect, node, there, policy)
        if isinstance(scope, str):
            return Waiting(LOOK_AGAIN_S, scope, effect.prior)
        pods = scope.pods
        kept = await _kept(cluster, pods.staying, policy, record)
        tainted = await taint(cluster, effect, lease, scope, policy, kept, clock())
        if tainted.outcome is not None:
            return tainted.outcome
        scope = replace(scope, taint=tainted.told)
        if not pods.count:
            return _over(effect, scope)
        if not is_ready(node) and policy.dead_node and _all_hang(pods, there, clock()):
            return await _patch(cluster, effect, lease, give_up)
        done.leaving, done.kept = 0, kept
        record.saw(pods.all)
        stop = await _evictions(cluster, effect, lease, _next(pods.staying, done, record), done)
        record.evicted += done.evicted
        record.keeps(done.kept, clock())
        if stop is not None:
            return _stopped(stop, record)
        return _so_far(effect, node, scope, done, record, clock())

    return await attempted(once)


async def find(cluster: Cluster, effect: Effect, clock: Clock = utc_now) -> Outcome:
    """Whether the node is drained (`AlreadyDone`), draining (`Waiting`) or not started (`Absent`)."""

    async def once() -> Outcome:
        try:
            node = await _node(cluster, effect)
        except NotFound:
            return AlreadyDone(detail=f"{effect.target.name} is no longer part of the cluster")
        there = await _pods_on(cluster, effect.target.name)
        policy = DrainPolicy.of(effect.params)
        if isinstance(policy, str):
            return Refused(policy)
        scope = await scope_of(cluster, effect, node, there, policy)
        if isinstance(scope, str):
            return Absent(scope)
        pods = scope.pods
        if scope.devices and policy.device_taint != "none":
            return Absent(f"whether the GPU of {effect.target.name} is tainted is seen by the next call")
        if not pods.count:
            return AlreadyDone(_ended(effect, scope), f"nothing left to drain on {effect.target.name}")
        if not is_ready(node) and not is_out_of_service(node) and _all_hang(pods, there, clock()):
            return Absent(f"{_pods(pods.leaving)} stuck Terminating on {effect.target.name}, which is dead")
        if not pods.leaving:
            return Absent(f"{_pods(pods.staying)} on {effect.target.name}")
        return Waiting(LOOK_AGAIN_S, f"{_pods(pods.leaving)} terminating, {len(pods.staying)} to evict")

    return await attempted(once)


async def _node(cluster: Cluster, effect: Effect) -> Object:
    return await cluster.get(path_of("v1", "nodes", name=effect.target.name))


async def _patch(
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


async def _kept(
    cluster: Cluster, staying: Sequence[Object], policy: DrainPolicy, record: DrainRecord
) -> dict[str, str]:
    """What keeps which pods, budgets aside: nothing is asked of the server for them."""
    unknown = [pod for pod in staying if _volumes_matter(pod, policy, record)]
    pinned = await pinned_volumes(cluster, unknown)
    kept: dict[str, str] = {}
    for pod in staying:
        by = kept_by(pod, policy, pinned.get(str(pod["metadata"]["uid"]), ""))
        if not by and record.is_late(pod) and tolerates_cordon(pod):
            by = RETURNS  # evicted again and again, it would come back as often
        if by:
            kept[name_of(pod)] = by
    return kept


def _volumes_matter(pod: Object, policy: DrainPolicy, record: DrainRecord) -> bool:
    """Whether its claims have to be read: once, and again while they keep it."""
    known = str(pod["metadata"]["uid"]) in record.seen
    return policy.local_data != "all" and (not known or record.left.get(name_of(pod), "").startswith(LOCAL))


def _next(staying: Sequence[Object], done: EvictionRound, record: DrainRecord) -> list[Object]:
    """The pods to ask for in this round: those that a budget kept in the last one come after the others."""
    free = [pod for pod in staying if name_of(pod) not in done.kept]
    return sorted(free, key=lambda pod: name_of(pod) in record.left)[:EVICTIONS_A_ROUND]


async def _evictions(
    cluster: Cluster, effect: Effect, lease: LeaseHeld, pods: Sequence[Object], done: EvictionRound
) -> Outcome | None:
    """Request the evictions and record their results; why they stopped, or None.

    Errors that concern more than one pod are raised.
    """
    for number, pod in enumerate(pods):
        if number and (no := may_drain(await _node(cluster, effect), effect)) is not None:
            return no
        answer = await evict(cluster, pod, lease)
        if answer.blocked:
            done.kept[name_of(pod)] = answer.blocked
        else:
            done.evicted += answer.granted
            done.leaving += 1
    return None


def _so_far(
    effect: Effect, node: Object, scope: Scope, done: EvictionRound, record: DrainRecord, now: datetime
) -> Outcome:
    ready, pods = is_ready(node), scope.pods
    waits = {name_of(pod): holds_up(pod, now, node_ready=ready) for pod in pods.leaving}
    result = {**record.result(effect.prior, pods.all, waits), **scope.result}
    leaving, name = len(pods.leaving) + done.leaving, effect.target.name
    gone = len(record.gone(pods.all))
    texts = [f"gone so far: {gone}"] if gone else []
    if stuck := [f"{pod} {why}" for pod, why in sorted(waits.items()) if why.startswith("stuck")]:
        texts.append(names(stuck))
    if done.kept:
        by = ", ".join(sorted(set(done.kept.values())))
        texts = [
            record.kept_text(name),
            *([f"{leaving} terminating"] if leaving else []),
            *texts,
            *scope.told,
        ]
        return Blocked(by, "; ".join(texts), BUDGET_PAUSE_S, result)
    listed = names(sorted(map(name_of, pods.all)))
    texts = [f"{leaving} of {pods.count} pods terminating on {name}: {listed}", *texts, *scope.told]
    return Waiting(LOOK_AGAIN_S, "; ".join(texts), result)


def _stopped(outcome: Outcome, record: DrainRecord) -> Outcome:
    """The outcome that ends a drain in the middle, with what it has done."""
    if not record.evicted or not isinstance(outcome, Refused | Blocked):
        return outcome
    return replace(outcome, reason=f"{outcome.reason}; evicted before that: {record.evicted}")


def _over(effect: Effect, scope: Scope) -> Outcome:
    evicted, name, result = DrainRecord.of(effect.prior).evicted, effect.target.name, _ended(effect, scope)
    told = f"; {'; '.join(scope.told)}" if scope.told else ""
    if effect.prior.get("out_of_service"):
        detail = f"{name} is dead and drained; the out-of-service taint stays while it is cordoned"
        return Done(result, detail)
    if evicted:
        return Done(result, f"{scope.emptied(name)}, {evicted} pods evicted{told}")
    return AlreadyDone(result, f"nothing left to drain on {name}{told}")


def _ended(effect: Effect, scope: Scope) -> Result:
    """The result once no pod is left; empty where nothing was ever seen."""
    record = DrainRecord.of(effect.prior)
    record.left, record.since = {}, {}
    return {**record.result(effect.prior, ()), **scope.result} if effect.prior else {}


def _result(effect: Effect, **more: Attribute) -> Result:
    """The result so far, updated."""
    return {**effect.prior, "evicted": DrainRecord.of(effect.prior).evicted, **more}


def _pods(pods: Sequence[Object]) -> str:
    return f"{len(pods)} pods" if len(pods) != 1 else "1 pod"
