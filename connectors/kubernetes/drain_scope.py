"""The pods that a drain is about: of the whole node, or those that hold one GPU."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from connectors.base import Effect, Result
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.drain_record import DrainRecord
from connectors.kubernetes.gpu_devices import Device
from connectors.kubernetes.gpu_holders import holders
from connectors.kubernetes.objects import has_ended
from connectors.kubernetes.out_of_service import is_leaving
from connectors.kubernetes.pod_roles import DrainPolicy, Role, asks_for_gpu, role_of
from streams.model.signal import Attribute

WHOLE_NODE = "the whole node is drained: "
ONE_GPU = "only who holds the GPU is moved, what runs on the others goes on: "


@dataclass(frozen=True, slots=True)
class OnNode:
    """The pods of a node that a drain has to remove: still to be evicted, and already terminating."""

    staying: tuple[Object, ...]
    leaving: tuple[Object, ...]

    @property
    def all(self) -> tuple[Object, ...]:
        """Both."""
        return (*self.leaving, *self.staying)

    def of(self, uids: Collection[str]) -> OnNode:
        """Those of them with these uids."""
        return OnNode(
            tuple(pod for pod in self.staying if pod["metadata"]["uid"] in uids),
            tuple(pod for pod in self.leaving if pod["metadata"]["uid"] in uids),
        )

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.staying) + len(self.leaving)


@dataclass(frozen=True, slots=True)
class Scope:
    """The pods that a drain is about. `why` is empty, or says whether that is the whole node or one GPU, and why."""

    pods: OnNode
    why: str = ""
    devices: frozenset[Device] | None = None
    """The GPU as DRA knows it; None where the drain is about the whole node, or that is not known just now."""
    taint: str = ""
    """What became of the taint of the device, where one was wanted."""

    @property
    def result(self) -> Result:
        """What the next round has to know."""
        return {
            **({"scope": self.why} if self.why else {}),
            **({"device_taint": self.taint} if self.taint else {}),
        }

    def emptied(self, node: str) -> str:
        """What is empty once these pods are gone."""
        return (
            f"the GPU of {node} is held by nobody" if self.why.startswith(ONE_GPU) else f"{node} is drained"
        )

    @property
    def told(self) -> list[str]:
        """For people; nothing where nobody asked for one GPU."""
        return [text for text in (self.why, self.taint) if text]


def drained_pods(pods: Sequence[Object], only: Attribute) -> OnNode:
    """Select the pods to drain: never those of the system (`Role.SYSTEM`) or finished ones; with `gpu` GPU pods only."""
    concerned = [pod for pod in pods if _concerned(pod, only)]
    return OnNode(
        staying=tuple(pod for pod in concerned if not is_leaving(pod)),
        leaving=tuple(pod for pod in concerned if is_leaving(pod)),
    )


async def scope_of(
    cluster: Cluster, effect: Effect, node: Object, there: Sequence[Object], policy: DrainPolicy
) -> Scope | str:
    """What the drain is about, or why that is not known yet. It never widens: what the first round found out counts."""
    pods = drained_pods(there, policy.only)
    before = str(effect.prior.get("scope", ""))
    if policy.scope == "node" or before.startswith(WHOLE_NODE):
        return Scope(pods, before)
    found = await holders(cluster, effect, node, there)
    if found.uids is not None:
        return Scope(pods.of(found.uids), before or f"{ONE_GPU}{found.why}", found.devices)
    if before:
        return Scope(pods.of(DrainRecord.of(effect.prior).seen), before)
    return f"{found.why}; looking again" if found.later else Scope(pods, f"{WHOLE_NODE}{found.why}")


def _concerned(pod: Object, only: Attribute) -> bool:
    return role_of(pod) is not Role.SYSTEM and not has_ended(pod) and (only != "gpu" or asks_for_gpu(pod))
