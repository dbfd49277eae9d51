"""When the controllers of kinds that can do so replace what a broken node took, and how soon. Pure, over the job object.

Sources: JobSet, "Failure policy"; PyTorch, "torchrun" (restarts, membership changes); DLRover,
"Fault tolerance". A job that hangs does not fail, so none of these is certain: whoever waits must have a deadline.
"""

from __future__ import annotations

from streams.model.kube_objects import KubeObject, annotations_of, items, part, whole

RESTART_S = 180.0
"""A failed pod is noticed and the job made anew; an image may have to be pulled."""
RELAUNCH_S = 600.0
"""A master waits for heartbeats to be missed, then relaunches the pod and the processes gather again."""
NOT_IN_PLACE = "jobset.sigs.k8s.io/disable-in-place-restart"
"""Annotation of a JobSet whose pods are not restarted in place after all."""


def restarts_used(job: KubeObject) -> int:
    """How many restarts of a JobSet count towards its `maxRestarts`; older versions count all of them."""
    status = part(job, "status")
    counted = whole(status.get("restartsCountTowardsMax"))
    return (whole(status.get("restarts")) if counted is None else counted) or 0


def by_failure_policy(job: KubeObject) -> float | None:
    """A JobSet restarts as a whole when one of its Jobs has failed, while a restart is left.

    Not where a rule may fail it instead: that is final. Nor where its pods are restarted in place, on the node that is bad.
    """
    policy = part(job, "spec", "failurePolicy")
    limit = whole(policy.get("maxRestarts"))
    may_fail = any(rule.get("action") == "FailJobSet" for rule in items(policy, "rules"))
    in_place = policy.get("restartStrategy") == "InPlaceRestart" and NOT_IN_PLACE not in annotations_of(job)
    if limit is None or may_fail or in_place:
        return None
    return RESTART_S if restarts_used(job) < limit else None


def by_elastic_launcher(job: KubeObject) -> float | None:
    """The agents of an elastic job gather again with the nodes that are left, while a restart is left.

    Only where it may run with fewer pods than it has: else it waits for the one that is lost.
    """
    policy = part(job, "spec", "elasticPolicy")
    least, most = whole(policy.get("minReplicas")), whole(policy.get("maxReplicas"))
    restarts = whole(policy.get("maxRestarts"))
    elastic = least is not None and most is not None and least < most
    return RESTART_S if elastic and restarts != 0 else None


def by_master(job: KubeObject) -> float | None:
    """The master of a DLRover job relaunches pods that are lost, whatever the job says."""
    return RELAUNCH_S
