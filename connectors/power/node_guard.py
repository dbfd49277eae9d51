"""What holds before anything is done to the power or the machine of a node, by whatever way it is done."""

from __future__ import annotations

from connectors.base import Effect, Outcome, Refused
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.node_work import Others, may_work, waits_for_others
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.out_of_service import hangs
from connectors.kubernetes.work_results import boot_of
from streams.model.clock import Clock


class NodeGuard:
    """Reads the node of an effect, and says whether work on it may begin."""

    def __init__(self, cluster: Cluster, clock: Clock, others: Others, wait_for_others_s: float) -> None:
        self._cluster = cluster
        self._clock = clock
        self._others = others
        self._wait_for_others_s = wait_for_others_s

    async def node(self, effect: Effect) -> Object | None:
        """The node of the target's name; None where there is none."""
        try:
            return await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return None

    async def keeps_from(self, node: Object, effect: Effect, *, must_boot: bool) -> Outcome | None:
        """What keeps the work from beginning; None where it may. With `must_boot` another boot is what proves it."""
        on = {"fieldSelector": f"spec.nodeName={effect.target.name}"}
        pods = await self._cluster.list_all(path_of("v1", "pods"), query=on)
        if must_boot and not boot_of(node):
            return Refused(f"{effect.target.name} reports no bootID: a power cycle could not be verified")
        # On a dead node those that are stuck do not count: only its kubelet could end them.
        dead = not is_ready(node)
        alive = [pod for pod in pods if not (dead and hangs(pod, self._clock()))]
        if (no := may_work(node, alive, effect, disruptive=True)) is not None:
            return no
        return waits_for_others(self._others(node), effect, self._clock(), self._wait_for_others_s)
