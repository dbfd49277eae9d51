"""What the inventory makes of a real control plane, without the topic in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from connectors.kubernetes.client import Cluster
from connectors.kubernetes.watch import KindWatches
from streams.config.connector_settings import KubernetesSettings
from streams.inventory.cluster_inventory import Inventory
from streams.inventory.cluster_view import ClusterView
from streams.model.watch import KindListed, WatchEvent
from tests.testbed.control_plane import ControlPlane


@asynccontextmanager
async def viewing(control_plane: ControlPlane, kinds: Sequence[str]) -> AsyncIterator[ClusterView]:
    """A view that is kept up to date for a `async with` block."""
    view, inventory, unlisted = ClusterView("c1"), Inventory("c1"), set(kinds)

    async def tell(event: WatchEvent) -> None:
        changes = inventory.apply(event)
        if isinstance(event, KindListed):
            unlisted.discard(event.kind)
            changes += inventory.settle() if not unlisted and not inventory.settled else []
        for key, record in changes:
            if record is None:
                view.forget(key)
            else:
                view.put(record.fact)

    async with await Cluster.connect(KubernetesSettings(kubeconfig=control_plane.kubeconfig())) as cluster:
        task = asyncio.create_task(KindWatches(cluster, kinds).run(tell))
        try:
            yield view
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
