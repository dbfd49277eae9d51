"""A node in the emulated API server, in this process and on a clock of the test's: pods end when the test says so."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from connectors.base import Effect, NoLease, Outcome, Result
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.cordon_ownership import cordon
from connectors.kubernetes.nodes import NodeConnector
from sandbox.emulated.api_server import serving
from sandbox.emulated.store import BUDGETS, NODES, PODS, Kind, Selector, Store
from streams.model.run import Target
from tests.connectors.objects import effect, made, node, pod

NODE = "gpu-07"
NAMESPACE = "team-a"


@dataclass
class Draining:
    """The node `gpu-07`, cordoned for `inc-1`, and a drain of it, called round by round."""

    store: Store
    cluster: Cluster
    now: datetime
    prior: Result
    params: dict[str, Any]
    context: dict[str, Any]

    @property
    def step(self) -> Effect:
        """The effect as the responder would call it now."""
        base = effect("drain_node", Target("Node", NODE))
        return replace(base, params=self.params, prior=self.prior, context=self.context)

    async def round(self) -> Outcome:
        """One call; its result is the next one's `prior`."""
        outcome = await NodeConnector(self.cluster, lambda: self.now).apply(self.step, NoLease())
        self.prior = getattr(outcome, "result", None) or self.prior
        return outcome

    async def look(self) -> Outcome:
        """A lookup, as after a crash."""
        return await NodeConnector(self.cluster, lambda: self.now).lookup(self.step)

    def add(self, one: Object) -> Object:
        """Put a pod there."""
        return self.store.create(PODS, one["metadata"]["namespace"], one)

    def pod(self, name: str, *, volumes: list[Object] | None = None, **metadata: Any) -> Object:
        """A GPU pod of a Job on the node."""
        one = pod(name, **metadata)
        if volumes is not None:
            one["spec"]["volumes"] = volumes
        return self.add(one)

    def service(self, name: str, **metadata: Any) -> Object:
        """A GPU pod of a ReplicaSet on the node."""
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "chat",
            "uid": "rs",
            "controller": True,
        }
        return self.pod(name, ownerReferences=[owner], labels={"app": "chat"}, **metadata)

    def budget(self, name: str, min_available: int) -> None:
        """A budget over all services."""
        spec = {"minAvailable": min_available, "selector": {"matchLabels": {"app": "chat"}}}
        self.store.create(BUDGETS, NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def put(self, kind: Kind, namespace: str | None, name: str, change: Callable[[Object], None]) -> None:
        """Change an object as somebody else does."""
        thing = copy.deepcopy(self.store.get(kind, namespace, name))
        change(thing)
        self.store.put(kind, thing)

    def end(self, name: str) -> None:
        """The kubelet has stopped the pod."""
        self.store.remove(PODS, self.store.get(PODS, NAMESPACE, name))

    def there(self) -> dict[str, str | None]:
        """The pods with the time by which they have to end, if they were asked to."""
        return {
            one["metadata"]["name"]: one["metadata"].get("deletionTimestamp")
            for one in self.store.list(PODS, Selector())
        }

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.now += timedelta(seconds=seconds)


@asynccontextmanager
async def draining(**params: Any) -> AsyncIterator[Draining]:
    """A world in which `drain_node` has these parameters."""
    clock = [datetime(2026, 5, 4, 12, tzinfo=UTC)]
    store = Store(lambda: clock[0])
    async with serving(store) as url, await Cluster.at(url) as cluster:
        world = Draining(store, cluster, clock[0], {}, params, {})
        store.clock = lambda: world.now
        about = effect("cordon_node", Target("Node", NODE))
        store.create(NODES, None, made(node(NODE), cordon(node(NODE), about)))
        yield world
