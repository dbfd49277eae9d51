"""One eviction through the Eviction API, and what became of it. Source: Kubernetes, "API-initiated eviction"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connectors.base import LeaseHeld
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Conflict, EvictionBlocked, MaybeApplied, NotFound

_BUDGET_NAMED = re.compile(r"disruption budget (\S+) needs")


@dataclass(frozen=True, slots=True)
class Evicted:
    """The answer to one request: `granted`, or `blocked` by what is named. Neither: the pod is gone or has changed just now."""

    granted: bool = False
    blocked: str = ""


async def evict(cluster: Cluster, pod: Object, lease: LeaseHeld) -> Evicted:
    """Ask for the eviction of this very pod: not of another one that has its name by now.

    Raises:
        Fenced: the lease has expired; nothing was sent.
        FaultlineError: what concerns more than this pod.
    """
    about = pod["metadata"]
    lease.check()
    try:
        await cluster.evict(about["namespace"], about["name"], uid=about["uid"])
    except EvictionBlocked as error:
        named = _BUDGET_NAMED.search(str(error))
        budget = f"{about['namespace']}/{named[1]}" if named else "of unknown name"
        return Evicted(blocked=f"PodDisruptionBudget {budget}")
    except (NotFound, Conflict):
        return Evicted()  # gone, replaced by a pod of its name, or changed just now: the next round sees it
    except MaybeApplied as error:
        # HTTP 500 with this text: the pod matches several budgets, and was certainly not evicted (API-initiated eviction).
        if "more than one PodDisruptionBudget" not in str(error):
            raise
        return Evicted(blocked="several PodDisruptionBudgets")
    return Evicted(granted=True)
