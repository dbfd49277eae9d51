"""Finds a job at the API server, and the pods that are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from connectors.base import AlreadyDone, Done, Effect, Outcome
from connectors.jobs.resume_check import LISTED
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.objects import controller, is_ready
from connectors.kubernetes.out_of_service import hangs
from streams.job_kinds.kind import JobKind
from streams.model.signal import Attribute

NAMED = 5
"""Pods named in a sentence; a result lists more of them."""


async def path_of_job(cluster: Cluster, kind: JobKind, namespace: str, name: str) -> str:
    """The job's path, in the newest version that the server serves.

    Raises:
        NotFound: it serves none of them.
    """
    return path_of(await _served(cluster, kind), kind.plural, namespace=namespace, name=name)


async def job_of(cluster: Cluster, kind: JobKind, effect: Effect) -> Object:
    """The job that an effect is about.

    Raises:
        NotFound: there is none.
    """
    target = effect.target
    return await cluster.get(await path_of_job(cluster, kind, str(target.namespace), target.name))


async def made_job(cluster: Cluster, kind: JobKind, job: Object, name: str) -> Object:
    """The job of this kind and name that `job` has made.

    Raises:
        NotFound: there is none, or it is somebody else's.
    """
    found = await cluster.get(await path_of_job(cluster, kind, job["metadata"]["namespace"], name))
    if (controller(found) or {}).get("uid") != job["metadata"]["uid"]:
        raise NotFound(f"{kind.name} {name} is not of {job['metadata']['name']}")
    return found


async def pods_of(cluster: Cluster, kind: JobKind, job: Object) -> list[Object]:
    """The pods of a job, those that have ended included."""
    labels = ",".join(f"{key}={value}" for key, value in kind.pod_labels(job).items())
    path = path_of("v1", "pods", namespace=job["metadata"]["namespace"])
    return owned(await cluster.list_all(path, query={"labelSelector": labels}), kind, job)


def owned(pods: Sequence[Object], kind: JobKind, job: Object) -> list[Object]:
    """The pods that this job controls, itself or through its children; labels alone can be written by anybody."""
    uid = job["metadata"]["uid"]

    def is_own(pod: Object) -> bool:
        above = controller(pod) or {}
        return above.get("uid") == uid or above.get("kind") in kind.children

    return [pod for pod in pods if is_own(pod)]


async def closed_nodes(cluster: Cluster, pods: Sequence[Object], incident: str) -> dict[str, Object]:
    """The nodes of these pods that are cordoned for an incident, by name."""
    used = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")}
    # What this incident has closed is unschedulable: of ten thousand nodes a few are.
    query = {"fieldSelector": "spec.unschedulable=true"}
    nodes = await cluster.list_all(path_of("v1", "nodes"), query=query) if used else []
    return {
        str(node["metadata"]["name"]): node
        for node in nodes
        if node["metadata"]["name"] in used and is_held_for(node, incident)
    }


def is_stuck(pod: Object, closed: Mapping[str, Object], now: datetime) -> bool:
    """Whether a pod hangs on a closed node that is dead: it never ends by itself."""
    node = closed.get(str(pod["spec"].get("nodeName")))
    return node is not None and not is_ready(node) and hangs(pod, now)


def stopped_but_stuck(
    stopped: str, left: Sequence[Object], result: Mapping[str, Attribute] | None = None, *, ours: bool
) -> Outcome:
    """The outcome for a job that is stopped but for pods stuck on dead nodes: those never end, so `drain_node` goes on.

    `hanging` names these pods, and `nodes` where they are. `ours`: this effect has stopped the job.
    """
    names = [str(pod["metadata"]["name"]) for pod in left]
    nodes = tuple(sorted({str(pod["spec"].get("nodeName")) for pod in left}))
    full = {**(result or {}), "hanging": tuple(names[:LISTED]), "nodes": nodes}
    text = f"{stopped}; {len(left)} of its pods are stuck on {', '.join(nodes)}, which is dead: {', '.join(names[:NAMED])}"
    return Done(full, text) if ours else AlreadyDone(full, text)


async def _served(cluster: Cluster, kind: JobKind) -> str:
    *newer, last = kind.api_versions
    for version in newer:
        try:
            await cluster.resource(f"{version}/{kind.kind or kind.name}")
        except NotFound:
            continue
        return version
    return last
