"""The controller of AppWrappers, in small. Source: AppWrapper, "Framework controller" (its states) and "Fault tolerance".

- a new one is Suspended; with `spec.suspend` reset it is Resuming: its components are made, which it controls, then Running
- components and their pod templates bear its name as a label
- the condition PodsReady holds while as many pods run, or have succeeded, as `podSets` say
- `spec.suspend` makes it Suspending: its components are deleted, and when they and all their pods are gone it is Suspended
- a pod that has failed for the grace period makes it Resetting: that counts as a retry, its components are deleted and made anew;
  with no retry left it is Failed for good
- it is Succeeded when all its pods have
- one that `managedBy` gives to somebody else is left alone

The controllers of what is wrapped are the real ones, or those of the other simulators.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any, ClassVar

from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.errors import NotFound
from streams.job_kinds.app_wrapper import NAME
from streams.job_kinds.kind import managed_elsewhere
from streams.job_kinds.known import APP_WRAPPER, KNOWN
from streams.model.clock import utc_now
from streams.model.kube_objects import condition, holds, part, time
from tests.testbed import workloads
from tests.testbed.simulators.reconciler import Reconciler, reference_to, with_condition

PLURALS = {
    (version, kind.kind or kind.name): kind.plural for kind in KNOWN.values() for version in kind.api_versions
}
GRACE = timedelta(seconds=1)
"""A minute in the real one."""


class AppWrappers(Reconciler):
    """Reconciles all AppWrappers of one namespace; all that it knows of them is in the objects."""

    api_version: ClassVar[str] = APP_WRAPPER.api_versions[0]
    plural: ClassVar[str] = APP_WRAPPER.plural

    async def reconcile(self, owner: Object) -> None:
        """One step from its phase towards what it says."""
        if managed_elsewhere(owner) is not None:
            return
        suspend = APP_WRAPPER.is_suspended(owner)
        match part(owner, "status").get("phase"):
            case None:
                await self.set_status(owner, phase="Suspended", componentStatus=_components(owner))
            case "Suspended" if not suspend:
                await self.set_status(owner, phase="Resuming", conditions=_not_ready(owner, "Resuming"))
            case "Resuming" if suspend:
                await self.set_status(owner, phase="Suspending")
            case "Resuming":
                if await self._made(owner):
                    await self.set_status(owner, phase="Running")
            case "Running" if suspend:
                await self.set_status(owner, phase="Suspending")
            case "Running":
                await self._watch(owner)
            case "Suspending":
                if await self._gone(owner):
                    await self.set_status(owner, phase="Suspended", conditions=_not_ready(owner, "Suspended"))
            case "Resetting":
                if await self._gone(owner):
                    await self.set_status(owner, phase="Resuming", conditions=_not_ready(owner, "Resuming"))
            case "Failed":
                await self._gone(owner)

    async def _watch(self, owner: Object) -> None:
        pods = await self._pods(owner)
        phases = [pod["status"].get("phase") for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        wanted = APP_WRAPPER.pods(owner)
        if phases.count("Succeeded") >= wanted and set(phases) == {"Succeeded"}:
            await self.set_status(owner, phase="Succeeded")
        elif "Failed" in phases:
            if not holds(owner, "Unhealthy"):
                unhealthy = with_condition(owner, "Unhealthy", True, "FoundFailedPods")
                await self.set_status(owner, conditions=unhealthy)
            since = time(condition(owner, "Unhealthy"), "lastTransitionTime")
            if since is not None and utc_now() > since + GRACE:
                await self._reset_or_fail(owner)
        else:
            ready = phases.count("Running") + phases.count("Succeeded") >= wanted
            conditions = with_condition(owner, "PodsReady", ready, "SufficientPodsReady")
            healthy = with_condition({"status": {"conditions": conditions}}, "Unhealthy", False, "Healthy")
            await self.set_status(owner, conditions=healthy)

    async def _reset_or_fail(self, owner: Object) -> None:
        retries = APP_WRAPPER.retries(owner)
        if retries is not None and retries.left > 0:
            await self.set_status(owner, phase="Resetting", retries=retries.used + 1)
        else:
            await self.set_status(owner, phase="Failed")

    async def _made(self, owner: Object) -> bool:
        """Make the components that are missing; whether none was."""
        missing = False
        for component in owner["spec"]["components"]:
            made = _labelled(deepcopy(component["template"]), str(owner["metadata"]["name"]))
            made["metadata"]["ownerReferences"] = [reference_to(owner)]
            try:
                await self.cluster.get(self._path_of(made))
            except NotFound:
                missing = True
                await self.cluster.create(self._path_of(made).rpartition("/")[0], made)
        return not missing

    async def _gone(self, owner: Object) -> bool:
        """Delete what is left of the components; whether that is nothing, not even a pod."""
        left = False
        for component in owner["spec"]["components"]:
            path = self._path_of(component["template"])
            try:
                found = await self.cluster.get(path)
            except NotFound:
                continue
            left = True
            if not found["metadata"].get("deletionTimestamp"):
                await self.cluster.delete(path, uid=found["metadata"]["uid"], propagation="Background")
        return not left and not await self._pods(owner)

    async def _pods(self, owner: Object) -> list[Object]:
        query = {"labelSelector": f"{NAME}={owner['metadata']['name']}"}
        return await self.cluster.list_all(path_of("v1", "pods", namespace=self.namespace), query=query)

    def _path_of(self, template: Object) -> str:
        plural = PLURALS[template["apiVersion"], template["kind"]]
        name = template["metadata"]["name"]
        return path_of(template["apiVersion"], plural, namespace=self.namespace, name=name)


def _components(owner: Object) -> list[Object]:
    return [
        {
            "name": component["template"]["metadata"]["name"],
            "kind": component["template"]["kind"],
            "apiVersion": component["template"]["apiVersion"],
            "podSets": component.get("podSets") or [],
        }
        for component in owner["spec"]["components"]
    ]


def _not_ready(owner: Object, reason: str) -> list[Object]:
    ready = with_condition(owner, "PodsReady", False, reason)
    return with_condition({"status": {"conditions": ready}}, "Unhealthy", False, reason)


def _labelled(thing: Any, name: str) -> Any:
    """An object with the label of its wrapper, and every pod template in it."""
    if isinstance(thing, list):
        return [_labelled(one, name) for one in thing]
    if not isinstance(thing, dict):
        return thing
    marked = {key: _labelled(value, name) for key, value in thing.items()}
    is_template = isinstance(marked.get("spec"), dict) and "containers" in marked["spec"]
    if is_template or "apiVersion" in marked:
        about = marked.setdefault("metadata", {})
        about["labels"] = (about.get("labels") or {}) | {NAME: name}
    return marked


def app_wrapper(
    name: str,
    namespace: str,
    *,
    pool: str,
    pods: int = 2,
    gpus: int = 8,
    grace_s: int = 30,
    inside: Object | None = None,
) -> Object:
    """An AppWrapper around `inside`, or an indexed Job of `pods` pods of `gpus` GPUs each, on the nodes of a pool."""
    job = workloads.indexed_job(f"{name}-job", namespace, pool=pool, pods=pods, gpus=gpus, grace_s=grace_s)
    return {
        "apiVersion": APP_WRAPPER.api_versions[0],
        "kind": APP_WRAPPER.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "suspend": False,
            "components": [{"podSets": [{"replicas": pods}], "template": inside or job}],
        },
    }
