"""The connector for work that has to run on the node itself: `reset_gpu`, `reboot_node` and `validate_node`.

Each is a Job from the operator's template, pinned to the node and created at most once (`work_templates`); its result is read
from the Job, and for a reboot from the node (`work_results`). A validation may be a session of several diagnostics instead
(`work_session`). Only actions with a template are offered. Nothing is undone.

While somebody else works on the node (`others`), nothing is begun: two remediators on one node undo each other's work. Whoever
has not come to an end after `wait_for_others_s` is named, and the step fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from connectors.base import Absent, Blocked, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import MANAGED, NODE_WORK, labels_of, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for, ownership_of, replaced, taken_over
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.objects import has_ended, name_of
from connectors.kubernetes.pod_roles import asks_for_gpu
from connectors.kubernetes.work_diagnostics import Diagnostic, read_diagnostics
from connectors.kubernetes.work_results import LOOK_AGAIN_S, boot_of, is_of, judged, judged_reboot, result_of
from connectors.kubernetes.work_session_jobs import SessionJobs
from connectors.kubernetes.work_templates import Template, bound, job_name, read_template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import Clock, parse_rfc3339, rfc3339, utc_now
from streams.model.facts import NodeWork as OthersWork
from streams.model.message import some

ACTIONS = ("reset_gpu", "reboot_node", "validate_node")
DISRUPTIVE = frozenset({"reset_gpu", "reboot_node"})
"""Actions that end the processes on a node's GPUs."""

PODS_PAUSE_S = 10.0
"""When to check again for pods that still use the GPUs."""
OTHERS_PAUSE_S = 30.0
"""When to check again whether somebody else is done with the node."""
NAMED = 5

Others = Callable[[Object], OthersWork | None]
"""Who else works on a node, by the marks on its object; None when nobody says so."""


def nobody(_: Object) -> OthersWork | None:
    """For callers that know no marks."""
    return None


class NodeWork:
    """Work on the nodes of one cluster. The target's `name` is the node's; its `uid`, if given, must match."""

    def __init__(
        self,
        cluster: Cluster,
        settings: NodeWorkSettings,
        templates: Mapping[str, Template],
        clock: Clock = utc_now,
        diagnostics: Sequence[Diagnostic] = (),
        others: Others = nobody,
    ) -> None:
        self._cluster = cluster
        self._namespace = settings.namespace
        self._templates = templates
        self._clock = clock
        self._others = others
        self._wait_for_others_s = settings.wait_for_others_s
        self._session = (
            SessionJobs(cluster, settings.namespace, diagnostics, self._may_begin, clock)
            if diagnostics
            else None
        )

    @property
    def actions(self) -> frozenset[str]:
        """The actions that the operator has written a template for."""
        return frozenset(self._templates) | ({"validate_node"} if self._session else set())

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Create the Job, or check it: `Waiting`, finally `Done`, or `Refused` with its pod's termination message.

        `Blocked` by an operator who uncordoned the node or deleted the Job, or by pods that still use the node's GPUs.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        if (session := self._session_of(effect)) is not None:
            return await attempted(lambda: session.apply(effect, lease))
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
        if (session := self._session_of(effect)) is not None:
            return await attempted(lambda: session.lookup(effect))

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
        node = await self._may_begin(effect)
        if not isinstance(node, dict):
            return node
        job = bound(template, effect, self._namespace, boot_of(node))
        lease.check()
        try:
            await self._cluster.create(self._path(), job)
        except AlreadyExists:
            return Waiting(0.0, f"the Job {self._namespace}/{job_name(effect)} exists already")
        detail = f"{self._namespace}/{job_name(effect)} created to work on {effect.target.name}"
        return Waiting(LOOK_AGAIN_S, detail, result_of(job))

    def _session_of(self, effect: Effect) -> SessionJobs | None:
        return self._session if effect.action == "validate_node" else None

    async def _may_begin(self, effect: Effect) -> Object | Outcome:
        """The node, when work may begin on it now; else why not."""
        try:
            node = await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return Refused(f"there is no node {effect.target.name}")
        on = {"fieldSelector": f"spec.nodeName={effect.target.name}"}
        pods = await self._cluster.list_all(path_of("v1", "pods"), query=on)
        if (no := may_work(node, pods, effect)) is not None:
            return no
        return waits_for_others(self._others(node), effect, self._clock(), self._wait_for_others_s) or node

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


def diagnostics_of(settings: NodeWorkSettings) -> tuple[Diagnostic, ...]:
    """The diagnostics of a validation; empty where the settings name none.

    Raises:
        ConfigError: a file cannot be read or is invalid.
    """
    return read_diagnostics(settings.diagnostics) if settings.diagnostics is not None else ()


def waits_for_others(
    work: OthersWork | None, effect: Effect, now: datetime, at_most_s: float
) -> Outcome | None:
    """Why nothing is begun while somebody else works on the node, or None. What a person holds is waited for likewise.

    They are waited for from our first look, which is kept in the result: not every mark has a time.
    """
    if work is None:
        return None
    seen = effect.prior.get("others_since")
    since = parse_rfc3339(str(seen)) if seen else now
    who = f"{work.by} works on {effect.target.name} ({work.mark})"
    if now >= since + timedelta(seconds=at_most_s):
        return Refused(
            f"{who} and has not come to an end within {at_most_s:.0f} s: nothing of ours is begun beside it"
        )
    return Blocked(
        work.by, f"{who}; it is waited for", OTHERS_PAUSE_S, {**effect.prior, "others_since": rfc3339(since)}
    )


def may_work(
    node: Object, pods: Sequence[Object], effect: Effect, *, disruptive: bool | None = None
) -> Outcome | None:
    """Why no work may start on a node now, or None. `pods` are those on it.

    `disruptive`: it ends what runs on the GPUs; by the action where not given.
    """
    disruptive = effect.action in DISRUPTIVE if disruptive is None else disruptive
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
    if not disruptive:
        return None
    if effect.action == "reboot_node" and not boot_of(node):
        return Refused(f"{name} reports no bootID: a reboot could not be verified")
    using = using_gpus(pods)
    if using:
        return Blocked(
            "pods on its GPUs", f"{some(sorted(using), NAMED)} still use GPUs of {name}", PODS_PAUSE_S
        )
    return None


def using_gpus(pods: Sequence[Object]) -> list[str]:
    """Names of the pods that use GPUs."""
    return [name_of(pod) for pod in pods if _uses_gpus(pod)]


def _uses_gpus(pod: Object) -> bool:
    """A pod that holds GPUs and has not ended, whatever controls it; Faultline's own Jobs on the node do not count."""
    return not has_ended(pod) and NODE_WORK not in labels_of(pod) and asks_for_gpu(pod)
