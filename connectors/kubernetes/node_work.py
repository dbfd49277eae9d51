"""The connector for work that has to run on the node itself: `reset_gpu`, `reboot_node` and `validate_node`.

Each is a Job from the operator's template, pinned to the node and created at most once (`work_templates`); its result is read
from the Job, and for a reboot from the node (`work_results`). Only actions with a template are offered. Nothing is undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from connectors.base import Absent, Blocked, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import MANAGED, NODE_WORK, labels_of, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for, ownership_of, replaced, taken_over
from connectors.kubernetes.drain import asks_for_gpu
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.objects import has_ended, name_of
from connectors.kubernetes.work_results import LOOK_AGAIN_S, boot_of, is_of, judged, judged_reboot, result_of
from connectors.kubernetes.work_templates import Template, bound, job_name, read_template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import Clock, utc_now
from streams.model.message import some

ACTIONS = ("reset_gpu", "reboot_node", "validate_node")
DISRUPTIVE = frozenset({"reset_gpu", "reboot_node"})
"""Actions that end the processes on a node's GPUs."""

PODS_PAUSE_S = 10.0
"""When to check again for pods that still use the GPUs."""
NAMED = 5


class NodeWork:
    """Work on the nodes of one cluster. The target's `name` is the node's; its `uid`, if given, must match."""

    def __init__(
        self,
        cluster: Cluster,
        settings: NodeWorkSettings,
        templates: Mapping[str, Template],
        clock: Clock = utc_now,
    ) -> None:
        self._cluster = cluster
        self._namespace = settings.namespace
        self._templates = templates
        self._clock = clock

    @property
    def actions(self) -> frozenset[str]:
        """The actions that the operator has written a template for."""
        return frozenset(self._templates)

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Create the Job, or check it: `Waiting`, finally `Done`, or `Refused` with its pod's termination message.

        `Blocked` by an operator who uncordoned the node or deleted the Job, or by pods that still use the node's GPUs.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        template = self._templates.get(effect.action)
        if template is None:
            return Refused(f"there is no template for {effect.action} (node_work.{effect.action})")

        async def once() -> Outcome:
            job = await self._job(effect)
            if job is not None:
                return await self._judged(job, effect)
            if effect.prior.get("job"):
                return Blocked.person(f"someone deleted the Job {effect.prior['job']}")
            return await self._create(template, effect, lease)

        return await attempted(once)

    async def lookup(self, effect: Effect) -> Outcome:
        """Look for the Job by its name. A failed one is `Waiting`: `apply` reports why."""

        async def once() -> Outcome:
            job = await self._job(effect)
            if job is None:
                return Absent(f"there is no Job {self._namespace}/{job_name(effect)}")
            found = await self._judged(job, effect)
            return Waiting(0.0, found.reason, result_of(job)) if isinstance(found, Refused) else found

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Always `Refused`."""
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _job(self, effect: Effect) -> Object | None:
        try:
            return await self._cluster.get(self._path(job_name(effect)))
        except NotFound:
            return None

    async def _create(self, template: Template, effect: Effect, lease: LeaseHeld) -> Outcome:
        try:
            node = await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return Refused(f"there is no node {effect.target.name}")
        on = {"fieldSelector": f"spec.nodeName={effect.target.name}"}
        pods = await self._cluster.list_all(path_of("v1", "pods"), query=on)
        if (no := may_work(node, pods, effect)) is not None:
            return no
        job = bound(template, effect, self._namespace, boot_of(node))
        lease.check()
        try:
            await self._cluster.create(self._path(), job)
        except AlreadyExists:
            return Waiting(0.0, f"the Job {self._namespace}/{job_name(effect)} exists already")
        detail = f"{self._namespace}/{job_name(effect)} created to work on {effect.target.name}"
        return Waiting(LOOK_AGAIN_S, detail, result_of(job))

    async def _judged(self, job: Object, effect: Effect) -> Outcome:
        if not is_of(job, effect):
            return Refused(f"the Job {self._namespace}/{job_name(effect)} was not made for this effect")
        of_job = {"labelSelector": f"batch.kubernetes.io/job-name={job_name(effect)}"}
        pods = await self._cluster.list_all(path_of("v1", "pods", namespace=self._namespace), query=of_job)
        if effect.action != "reboot_node":
            return judged(job, pods, effect)
        try:
            node: Object | None = await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            node = None
        return judged_reboot(job, pods, node, effect, self._clock())

    def _path(self, name: str | None = None) -> str:
        return path_of("batch/v1", "jobs", namespace=self._namespace, name=name)


def read_templates(settings: NodeWorkSettings) -> dict[str, Template]:
    """The template of each action that has one.

    Raises:
        ConfigError: a file cannot be read or is invalid.
    """
    files: dict[str, Path | None] = {action: getattr(settings, action) for action in ACTIONS}
    return {action: read_template(action, file) for action, file in files.items() if file is not None}


def may_work(node: Object, pods: Sequence[Object], effect: Effect) -> Outcome | None:
    """Why no work may start on a node now, or None. `pods` are those on it."""
    name = node["metadata"]["name"]
    if replaced(node, effect):
        return Refused(f"{name} was replaced: its uid differs from the one in the plan")
    if opted_out(node):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    hold = ownership_of(node)
    if hold is not None and hold.by_incident(effect.incident) and (change := taken_over(node, hold)):
        return Blocked.person(change)
    if not is_held_for(node, effect.incident):
        return Refused(f"{name} is not cordoned for {effect.incident}: no work is done on a node in service")
    if effect.action not in DISRUPTIVE:
        return None
    if effect.action == "reboot_node" and not boot_of(node):
        return Refused(f"{name} reports no bootID: a reboot could not be verified")
    using = [name_of(pod) for pod in pods if _uses_gpus(pod)]
    if using:
        return Blocked(
            "pods on its GPUs", f"{some(sorted(using), NAMED)} still use GPUs of {name}", PODS_PAUSE_S
        )
    return None


def _uses_gpus(pod: Object) -> bool:
    """A pod that holds GPUs and has not ended, whatever controls it; Faultline's own Jobs on the node do not count."""
    return not has_ended(pod) and NODE_WORK not in labels_of(pod) and asks_for_gpu(pod)
