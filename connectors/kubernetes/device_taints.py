"""The sick GPU tainted as a device of DRA: first without effect, so that the cluster says whom that would evict, then for good.

    DeviceTaintRule   faultline-HASH of effect and device: one per device that is the GPU or a part of it
    label             faultline.dev/incident   for which incident; also the taint's key and value
    annotations       faultline.dev/effect, faultline.dev/node

With `NoSchedule` nothing new gets the device, and the drain evicts who holds it, within budgets. With `NoExecute` the cluster's
own controller deletes besides whoever does not tolerate the taint, past budgets: so it only closes the device as long as the
drain keeps a pod on it, or a pod there asks for more time than its own grace period. The rules stay while the node is cordoned
for the incident, and go with the cordon.

Source: Kubernetes, "Device taints and tolerations"; the condition `EvictionInProgress` of `resource.k8s.io/v1beta2` and later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from connectors.base import Blocked, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import EFFECT, INCIDENT, WORK_NODE, annotations_of, labels_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.drain_scope import Scope
from connectors.kubernetes.errors import AlreadyExists, Conflict, Forbidden, NotFound
from connectors.kubernetes.gpu_devices import Device
from connectors.kubernetes.gpu_holders import RIGHTS, served_version
from connectors.kubernetes.pod_roles import DrainPolicy, grace_s
from streams.model.clock import parse_rfc3339
from streams.model.digest import digest

RULES = "devicetaintrules"
VERSIONS = ("v1", "v1beta2")
"""Earlier ones have neither the effect `None` nor a status."""
MOST = 16
"""Devices of one GPU that are tainted, MIG partitions among them; more have no rule."""
SAYS_WITHIN_S = 20.0
"""How long the cluster has to say whom a rule would evict; its controller may not be running."""
AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Tainted:
    """How far the taints are: `outcome` while the drain must not go on, else None; `told` is for people."""

    outcome: Outcome | None
    told: str = ""


async def taint(
    cluster: Cluster,
    effect: Effect,
    lease: LeaseHeld,
    scope: Scope,
    policy: DrainPolicy,
    kept: Collection[str],
    now: datetime,
) -> Tainted:
    """Bring the rules one step closer to the effect that the runbook wants, where the drain is about one GPU.

    `kept` are pods that the drain leaves there.

    Raises:
        Fenced: the lease has expired.
        FaultlineError: what says something about the request itself.
    """
    if policy.device_taint == "none" or scope.devices is None:
        return Tainted(None, str(effect.prior.get("device_taint", "")))
    spared = kept or any(grace_s(pod) is not None for pod in scope.pods.all)
    wanted = "NoSchedule" if spared else policy.device_taint
    return await _brought_on(cluster, effect, lease, scope.devices, wanted, now)


async def _brought_on(
    cluster: Cluster,
    effect: Effect,
    lease: LeaseHeld,
    devices: Collection[Device],
    wanted: str,
    now: datetime,
) -> Tainted:
    if not devices:
        return Tainted(None, "no device taint: no DRA driver publishes the GPU")
    if len(devices) > MOST:
        return Tainted(None, f"no device taint: the GPU is {len(devices)} devices, limit {MOST}")
    version = await served_version(cluster, RULES, VERSIONS)
    if version is None:
        return Tainted(None, "no device taint: the cluster does not serve DeviceTaintRules with a status")
    try:
        rules = [await _rule(cluster, effect, lease, version, device) for device in sorted(devices)]
    except Forbidden as error:
        return Tainted(None, f"no device taint: not allowed (apply {RIGHTS}): {error}"[:300])
    if wrong := next((rule for rule in rules if isinstance(rule, Refused | Blocked)), None):
        return Tainted(wrong)
    made = [rule for rule in rules if not isinstance(rule, Refused | Blocked)]
    if any(_effect(rule) == "None" and not _says(rule) and _is_fresh(rule, now) for rule in made):
        return Tainted(
            Waiting(AGAIN_S, "the cluster is asked whom a taint of the GPU would evict", effect.prior)
        )
    said = "; ".join(dict.fromkeys(_says(rule) or "nothing within the time" for rule in made))
    told = f"the GPU is tainted as a device; whom NoExecute would evict, the cluster said: {said}"
    if "device_taint" not in effect.prior:
        # Shown, and stored, before anything takes effect.
        return Tainted(
            Waiting(
                AGAIN_S, f"{told}; next it takes effect ({wanted})", {**effect.prior, "device_taint": told}
            )
        )
    for rule in made:
        if _effect(rule) != wanted:
            lease.check()
            about = rule["metadata"]
            lock = {"resourceVersion": about["resourceVersion"], "uid": about["uid"]}
            await cluster.patch(
                path_of(version, RULES, name=about["name"]),
                {"metadata": lock, "spec": {"taint": {"effect": wanted}}},
            )
    return Tainted(None, str(effect.prior["device_taint"]))


async def remove(cluster: Cluster, incident: str, node: str, lease: LeaseHeld) -> None:
    """Delete the rules of this incident on this node, and no other's."""
    for version, rule in await _ours(cluster, incident, node):
        lease.check()
        try:
            await cluster.delete(
                path_of(version, RULES, name=rule["metadata"]["name"]), uid=rule["metadata"]["uid"]
            )
        except (NotFound, Conflict):
            continue  # a person was quicker


async def left_to_remove(cluster: Cluster, incident: str, node: str) -> str:
    """What a person runs to remove the rules of this incident on this node; empty where there are none."""
    found = [str(rule["metadata"]["name"]) for _, rule in await _ours(cluster, incident, node)]
    return f"kubectl delete {RULES} {' '.join(found)}" if found else ""


async def _ours(cluster: Cluster, incident: str, node: str) -> list[tuple[str, Object]]:
    version = await served_version(cluster, RULES, VERSIONS)
    if version is None:
        return []
    try:
        query = {"labelSelector": f"{INCIDENT}={incident}"}
        rules = await cluster.list_all(path_of(version, RULES), query=query)
    except Forbidden:
        return []  # who may not list them could not have made one
    marks = ((rule, annotations_of(rule)) for rule in rules)
    return [(version, rule) for rule, mark in marks if mark.get(WORK_NODE) == node and EFFECT in mark]


def rule_name(effect: Effect, device: Device) -> str:
    """The name of the rule for one device: the same for every attempt of the effect, and for no other effect."""
    return f"faultline-{digest(effect.key, *device, size=8)}"


async def _rule(
    cluster: Cluster, effect: Effect, lease: LeaseHeld, version: str, device: Device
) -> Object | Refused | Blocked:
    """The rule of one device as it is, made without effect where it was never made."""
    name = rule_name(effect, device)
    try:
        found = await cluster.get(path_of(version, RULES, name=name))
    except NotFound:
        if "device_taint" in effect.prior:
            return Blocked.person(f"the DeviceTaintRule {name} was removed manually")
        lease.check()
        try:
            return await cluster.create(path_of(version, RULES), _made(effect, version, name, device))
        except AlreadyExists:
            found = await cluster.get(path_of(version, RULES, name=name))
    if annotations_of(found).get(EFFECT) != effect.key or labels_of(found).get(INCIDENT) != effect.incident:
        return Refused(f"the DeviceTaintRule {name} is there and is not Faultline's")
    return found


def _made(effect: Effect, version: str, name: str, device: Device) -> Object:
    driver, pool, of = device
    return {
        "apiVersion": version,
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": name,
            "labels": {INCIDENT: effect.incident},
            "annotations": {EFFECT: effect.key, WORK_NODE: effect.target.name},
        },
        "spec": {
            "deviceSelector": {"driver": driver, "pool": pool, "device": of},
            "taint": {"key": INCIDENT, "value": effect.incident, "effect": "None"},
        },
    }


def _effect(rule: Object) -> str:
    return str(((rule.get("spec") or {}).get("taint") or {}).get("effect"))


def _says(rule: Object) -> str:
    """What the cluster says about the rule as it is now; empty where it has not said anything yet."""
    generation = rule["metadata"].get("generation")
    for one in (rule.get("status") or {}).get("conditions") or []:
        if (
            one.get("type") == "EvictionInProgress"
            and one.get("observedGeneration", generation) == generation
        ):
            return str(one.get("message") or one.get("reason") or one.get("status"))[:300]
    return ""


def _is_fresh(rule: Object, now: datetime) -> bool:
    made = parse_rfc3339(str(rule["metadata"]["creationTimestamp"]))
    return now - made < timedelta(seconds=SAYS_WITHIN_S)
