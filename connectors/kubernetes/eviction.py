"""One eviction through the Eviction API, and what became of it. Source: Kubernetes, "API-initiated eviction"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from connectors.base import LeaseHeld
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Conflict, EvictionBlocked, MaybeApplied, NotFound
from connectors.kubernetes.pod_roles import grace_s
from streams.model.errors import Permanent

_BUDGET_NAMED = re.compile(r"disruption budget (\S+) needs")
_WEBHOOK_NAMED = re.compile(r'admission webhook "([^"]+)" denied')


@dataclass(frozen=True, slots=True)
class Evicted:
    """The answer to one request: `granted`, or `blocked` by what is named. Neither: the pod is gone or has changed just now."""

    granted: bool = False
    blocked: str = ""


async def evict(cluster: Cluster, pod: Object, lease: LeaseHeld) -> Evicted:
    """Ask for the eviction of this very pod: not of another one that has its name by now.

    It gets its own grace period, or the longer one that it asks for to write its checkpoint (`pod_roles.CHECKPOINT_GRACE`).

    Raises:
        Fenced: the lease has expired; nothing was sent.
        FaultlineError: what concerns more than this pod.
    """
    about = pod["metadata"]
    lease.check()
    try:
        await cluster.evict(about["namespace"], about["name"], uid=about["uid"], grace_s=grace_s(pod))
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
    except Permanent as error:
        if "because it is being terminated" in str(error):
            return Evicted()  # its namespace is being deleted, and the pod with it
        if (hook := _WEBHOOK_NAMED.search(str(error))) is None:
            raise
        return Evicted(blocked=f"the admission webhook {hook[1]}")
    return Evicted(granted=True)
