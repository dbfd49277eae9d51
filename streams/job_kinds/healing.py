"""When the controllers of kinds that can do so replace what a broken node took, and how soon. Pure, over the job object.

Sources: JobSet, "Failure policy"; PyTorch, "torchrun" (restarts, membership changes); KubeRay, "In-tree autoscaling"; DLRover,
"Fault tolerance". A job that hangs does not fail, so none of these is certain: whoever waits must have a deadline.
"""

from __future__ import annotations

from streams.model.kube_objects import KubeObject, part, whole

RESTART_S = 180.0
"""A failed pod is noticed and the job made anew; an image may have to be pulled."""
AUTOSCALER_S = 300.0
"""An idle autoscaler looks every few seconds; its pods wait for the scheduler."""
RELAUNCH_S = 600.0
"""A master waits for heartbeats to be missed, then relaunches the pod and the processes gather again."""


def by_failure_policy(job: KubeObject) -> float | None:
    """A JobSet restarts as a whole when one of its Jobs has failed, while a restart is left."""
    limit = whole(part(job, "spec", "failurePolicy").get("maxRestarts"))
    used = whole(part(job, "status").get("restarts")) or 0
    return RESTART_S if limit is not None and used < limit else None


def by_elastic_launcher(job: KubeObject) -> float | None:
    """The agents of an elastic job gather again with the nodes that are left, while a restart is left.

    Only where it may run with fewer pods than it has: else it waits for the one that is lost.
    """
    policy = part(job, "spec", "elasticPolicy")
    least, most = whole(policy.get("minReplicas")), whole(policy.get("maxReplicas"))
    restarts = whole(policy.get("maxRestarts"))
    elastic = least is not None and most is not None and least < most
    return RESTART_S if elastic and restarts != 0 else None


def by_autoscaler(job: KubeObject) -> float | None:
    """The autoscaler of a Ray cluster asks for new workers in place of those that are lost."""
    spec = part(job, "spec")
    clusters = (spec, part(spec, "rayClusterSpec"), part(spec, "rayClusterConfig"))
    return AUTOSCALER_S if any(one.get("enableInTreeAutoscaling") is True for one in clusters) else None


def by_master(job: KubeObject) -> float | None:
    """The master of a DLRover job relaunches pods that are lost, whatever the job says."""
    return RELAUNCH_S
