"""The connector for nodes: `cordon_node`, `uncordon_node` and `drain_node`.

It remembers nothing between calls. Whose a node is stands on the node itself (`ownership`), how far a drain has come is
what is still on the node (`draining`).
"""

from __future__ import annotations

from connectors.base import Absent, AlreadyDone, Effect, LeaseHeld, Outcome, Refused
from connectors.kubernetes import cordon_ownership, drain
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.guarded_patch import GuardedChange, change, look
from streams.model.clock import Clock, utc_now


class NodeConnector:
    """Effects on the nodes of one cluster. The target's `name` is the node's; its `uid`, if given, must still be its."""

    def __init__(self, cluster: Cluster, clock: Clock = utc_now) -> None:
        self._cluster = cluster
        self._clock = clock

    @property
    def actions(self) -> frozenset[str]:
        """What it can do to a node."""
        return frozenset({"cordon_node", "uncordon_node", "drain_node"})

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Close, release or empty a node.

        cordon_node    `Done` with `prior` and `owners`; `Blocked` by a person who opened it after Faultline closed it
        uncordon_node  takes this incident's hold away, whichever effect put it there; the node opens with the last one
        drain_node     params `only` = `gpu` (default) or `all`, `bare` = evict also what no controller would bring back,
                       `dead_node` = declare a dead node out of service whose pods hang (default true);
                       `Waiting`, `Blocked` with budget and pods, at last `Done`
        """
        match effect.action:
            case "cordon_node":
                return await self._cordon(effect, lease)
            case "uncordon_node":
                return await self._release(effect, lease, whole_incident=True)
            case "drain_node":
                return await drain.drain(self._cluster, effect, lease, self._clock)
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Read the node's marks, or for a drain its pods."""
        path, gone = _path(effect), f"there is no node {effect.target.name}"
        match effect.action:
            case "cordon_node":
                return await look(
                    self._cluster,
                    path,
                    lambda node: cordon_ownership.find(node, effect),
                    if_gone=Absent(gone),
                )
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
        """Take a cordon's hold away. `Blocked` (by a person) when the node is not as Faultline left it."""
        if effect.action == "cordon_node":
            return await self._release(effect, lease, whole_incident=False)
        return Refused(f"{effect.action} cannot be taken back")

    async def close(self) -> None:
        """Let go of connections."""
        await self._cluster.close()

    async def _cordon(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        gone = Refused(f"there is no node {effect.target.name}")

        def decide(node: Object) -> GuardedChange | Outcome:
            return cordon_ownership.cordon(node, effect)

        return await change(self._cluster, _path(effect), decide, lease, if_gone=gone)

    async def _release(self, effect: Effect, lease: LeaseHeld, *, whole_incident: bool) -> Outcome:
        def mine(owner: cordon_ownership.CordonOwner) -> bool:
            return owner.incident == effect.incident if whole_incident else owner.key == effect.key

        def decide(node: Object) -> GuardedChange | Outcome:
            return cordon_ownership.release(node, effect, mine)

        gone = AlreadyDone(detail=f"there is no node {effect.target.name}")
        return await change(self._cluster, _path(effect), decide, lease, if_gone=gone)


def _path(effect: Effect) -> str:
    return path_of("v1", "nodes", name=effect.target.name)


def _unknown(effect: Effect) -> Refused:
    return Refused(f"nodes know no action {effect.action}")
