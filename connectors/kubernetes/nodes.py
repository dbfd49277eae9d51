"""The connector for nodes: `cordon_node`, `uncordon_node` and `drain_node`.

It keeps no state between calls. The owners of a cordon are recorded on the node itself (`cordon_ownership`), the progress of a
drain is the pods that are still on the node (`drain`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from connectors.base import Absent, AlreadyDone, Blocked, Effect, LeaseHeld, Outcome, Refused
from connectors.kubernetes import cordon_ownership, device_taints, drain
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import Decide, GuardedChange, attempted, change, look
from streams.model.clock import Clock, utc_now


class NodeConnector:
    """Effects on the nodes of one cluster. The target's `name` is the node's; its `uid`, if given, must match."""

    actions = frozenset({"cordon_node", "uncordon_node", "drain_node"})

    def __init__(self, cluster: Cluster, clock: Clock = utc_now, *, slinky: bool = False) -> None:
        self._cluster = cluster
        self._slinky = slinky
        self._clock = clock

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Cordon, uncordon or drain a node.

        cordon_node    `Done` with `prior` and `owners`; `Blocked` by an operator who uncordoned it after Faultline's cordon
        uncordon_node  removes this incident from the owners of the cordon; the last owner makes the node schedulable
        drain_node     params as in `DrainPolicy`, `dead_node` = declare a dead node with stuck pods out of service (default
                       true); `Waiting`, `Blocked` by whom and with which pods, finally `Done`; `gone` and `left` name the pods
        """
        match effect.action:
            case "cordon_node":
                gone = Refused(f"there is no node {effect.target.name}")
                return await self._change(
                    effect,
                    lambda node: cordon_ownership.cordon(node, effect, slinky=self._slinky),
                    lease,
                    gone,
                )
            case "uncordon_node":
                return await self._release(effect, lease, whole_incident=True)
            case "drain_node":
                return await drain.drain(self._cluster, effect, lease, self._clock)
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Read the node's annotations, or for a drain its pods."""
        path, gone = _path(effect), f"there is no node {effect.target.name}"
        match effect.action:
            case "cordon_node":
                find = partial(cordon_ownership.find, effect=effect)
                return await look(self._cluster, path, find, if_gone=Absent(gone))
            case "uncordon_node":

                def released(node: Object) -> Outcome:
                    hold = cordon_ownership.ownership_of(node)
                    held = hold is not None and hold.by_incident(effect.incident)
                    return Absent() if held else AlreadyDone()

                return await look(self._cluster, path, released, if_gone=AlreadyDone(detail=gone))
            case "drain_node":
                return await drain.find(self._cluster, effect, self._clock)
        return _unknown(effect)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Remove a cordon's owner. `Blocked` (by a person) when the node is not as Faultline left it."""
        if effect.action == "cordon_node":
            return await self._release(effect, lease, whole_incident=False)
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _release(self, effect: Effect, lease: LeaseHeld, *, whole_incident: bool) -> Outcome:
        def mine(owner: cordon_ownership.CordonOwner) -> bool:
            return owner.incident == effect.incident if whole_incident else owner.key == effect.key

        gone = AlreadyDone(detail=f"there is no node {effect.target.name}")

        def decide(node: Object) -> GuardedChange | Outcome:
            return cordon_ownership.release(node, effect, mine)

        async def once() -> Outcome:
            try:
                decided = decide(await self._cluster.get(_path(effect)))
            except NotFound:
                decided = gone  # its GPUs' rules would outlive it
            if isinstance(decided, Blocked):
                rest = await device_taints.left_to_remove(self._cluster, effect.incident, effect.target.name)
                told = f"{decided.reason}; its GPU stays tainted as a device, which `{rest}` takes off"
                return replace(decided, reason=told) if rest else decided
            # Before the node opens: until then nothing new can get the device, and a crash in between is repeated.
            await device_taints.remove(self._cluster, effect.incident, effect.target.name, lease)
            if not isinstance(decided, GuardedChange):
                return decided
            return await self._change(effect, decide, lease, gone)

        return await attempted(once)

    async def _change(self, effect: Effect, decide: Decide, lease: LeaseHeld, if_gone: Outcome) -> Outcome:
        return await change(self._cluster, _path(effect), decide, lease, if_gone=if_gone)


def _path(effect: Effect) -> str:
    return path_of("v1", "nodes", name=effect.target.name)


def _unknown(effect: Effect) -> Refused:
    return Refused(f"unknown node action {effect.action}")
