"""`apply_template` and `replace_node`: an object of the operator's template for another controller to act on, and its result.

The object is created (or patched, or deleted) once: its name is made of the effect's key, a patch leaves the key on the object,
and a deletion is guarded by the uid that was read. What is done to a node needs the node held, as any node work.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Waiting,
)
from connectors.kubernetes.annotations import (
    EFFECT,
    INCIDENT,
    RUN,
    WORK_BOOT_ID,
    WORK_NODE,
    annotations_of,
    effect_mark,
    opted_out,
)
from connectors.kubernetes.client import Cluster, Object, Resource, path_of
from connectors.kubernetes.errors import AlreadyExists, Forbidden, NotFound
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.node_work import Others, may_work, nobody, waits_for_others
from connectors.kubernetes.out_of_service import is_leaving
from connectors.kubernetes.work_object_results import asked_at, verdict
from connectors.kubernetes.work_object_templates import ObjectTemplate, filled, object_name
from connectors.kubernetes.work_results import LOOK_AGAIN_S, boot_of
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import Clock, parse_rfc3339, rfc3339, utc_now

APPLY, REPLACE = "apply_template", "replace_node"
GRAVE = frozenset({"reset", "reboot", "replace"})
"""Classes after which nothing that ran on the node's GPUs still runs: as for a reset, no pod may use them."""
_ASKED_AT = "faultline.dev/asked-at"
"""Annotation of a patched object: when it was patched."""


class TemplatedObjects:
    """The objects of one cluster. A target of kind Node is the node that the work is done on."""

    def __init__(
        self,
        cluster: Cluster,
        settings: NodeWorkSettings,
        templates: Mapping[str, ObjectTemplate],
        clock: Clock = utc_now,
        others: Others = nobody,
    ) -> None:
        self._cluster = cluster
        self._templates = templates
        self._namespace = settings.namespace
        self._replace = settings.replace_node
        self._wait_for_others_s = settings.wait_for_others_s
        self._clock = clock
        self._others = others

    @property
    def actions(self) -> frozenset[str]:
        """`apply_template` where there are templates, `replace_node` where one of them is named for it."""
        return frozenset({APPLY} if self._templates else ()) | frozenset({REPLACE} if self._replace else ())

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Make the object, or read its result: `Waiting`, finally `Done`, or `Refused` with what its controller said.

        `Blocked` by a person who deleted the object or opened the node.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        template = self._template(effect)
        if not isinstance(template, ObjectTemplate):
            return template

        async def once() -> Outcome:
            try:
                return await self._once(template, effect, lease)
            except Forbidden as error:
                return Refused(f"{error}; {_needed(template)}")

        return await attempted(once)

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether the object is there for this effect. One that has failed is `Waiting`: `apply` reports why."""
        template = self._template(effect)
        if not isinstance(template, ObjectTemplate):
            return template

        async def once() -> Outcome:
            node = await self._node(effect)
            try:
                found = await self._found(template, effect, node)
            except ValueError as error:
                if template.does == "delete" and effect.target.kind == "Node" and node is None:
                    # The machine went before anybody could look, and its object was named by the node alone.
                    return AlreadyDone(effect.prior, f"{effect.target.name} is gone")
                return Absent(str(error))
            if found is None:
                return Absent(f"nothing of {template.template} was made for this effect")
            outcome = self._judged(template, found or None, node, effect)
            return Waiting(0.0, outcome.reason, effect.prior) if isinstance(outcome, Refused) else outcome

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Delete the object where the template says so and nobody has changed its spec; else `Refused`."""
        template = self._template(effect)
        if not isinstance(template, ObjectTemplate):
            return template
        if template.undo != "delete":
            return Refused(f"{template.template} cannot be undone")

        async def once() -> Outcome:
            resource = await self._cluster.resource(template.kind)
            path = resource.path(self._in(resource, template), object_name(template, effect))
            try:
                thing = await self._cluster.get(path)
            except NotFound:
                return AlreadyDone(detail="it is gone")
            if annotations_of(thing).get(EFFECT) != effect.key:
                return Blocked("another object", f"{path} was not made for this effect")
            if is_leaving(thing):
                return Waiting(LOOK_AGAIN_S, f"{path} is being deleted")
            if opted_out(thing) or int(thing["metadata"].get("generation") or 1) > 1:
                return Blocked.person(f"someone changed {path}")
            lease.check()
            try:
                await self._cluster.delete(path, uid=thing["metadata"]["uid"])
            except NotFound:
                return AlreadyDone(detail="it is gone")
            return Waiting(0.0, f"{path} is being deleted")

        return await attempted(once)

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    def _template(self, effect: Effect) -> ObjectTemplate | Refused:
        name = str(effect.params.get("template", "")) if effect.action == APPLY else (self._replace or "")
        template = self._templates.get(name)
        if template is None:
            known = ", ".join(sorted(self._templates)) or "none"
            return Refused(
                f"there is no template {name or '(params.template is not set)'}: known are {known}"
            )
        counted = str(effect.params.get("as", "replace")) if effect.action == APPLY else "replace"
        if template.class_ != counted:
            return Refused(f"{name} counts as {template.class_}, and the runbook says {counted}")
        return template

    async def _once(self, template: ObjectTemplate, effect: Effect, lease: LeaseHeld) -> Outcome:
        node = await self._node(effect)
        try:
            found = await self._found(template, effect, node)
        except ValueError as error:
            return Refused(str(error), moot=effect.target.kind == "Node" and node is None)
        if found is not None:
            return self._judged(template, found or None, node, effect)
        if effect.prior.get("made"):
            what = "deleted" if template.does == "create" else "took our mark off"
            return Blocked.person(f"someone {what} {effect.prior['object']}")
        if (no := await self._may_begin(template, effect, node)) is not None:
            return no
        try:
            body = filled(template, effect, node, self._namespace)
        except ValueError as error:
            return Refused(str(error))
        return await self._make(template, body, effect, node, lease)

    async def _found(self, template: ObjectTemplate, effect: Effect, node: Object | None) -> Object | None:
        """The object as it was made for this effect; None where that has not been done, empty where it is deleted as wanted.

        Raises:
            ValueError: the template names an object that this node does not tell of.
        """
        try:
            resource = await self._cluster.resource(template.kind)
        except NotFound as error:
            raise ValueError(
                f"{error}: install what serves it, or leave the template {template.template} out"
            ) from error
        if template.does == "create":
            name, where = object_name(template, effect), self._in(resource, template)
        elif known := effect.prior.get("name"):
            name, where = str(known), str(effect.prior.get("namespace") or "") or None
        else:
            meta = filled(template, effect, node, self._namespace)["metadata"]
            name = meta["name"]
            where = (meta.get("namespace") or self._namespace) if resource.namespaced else None
        try:
            thing = await self._cluster.get(resource.path(where, name))
        except NotFound:
            leaves = (
                template.does == "patch" and effect.prior.get("made") and any(r.gone for r in template.done)
            )
            return {} if template.does == "delete" or leaves else None
        marks = annotations_of(thing)
        match template.does:
            case "create" if marks.get(EFFECT) != effect.key:
                raise ValueError(f"{template.kind} {name} was not made for this effect")
            case "create":
                return thing
            case "patch":
                return thing if marks.get(effect_mark(template.template)) == effect.key else None
        # A deletion: ours is on its way while the object of the uid that we asked for is still there.
        if (uid := effect.prior.get("uid")) and thing["metadata"]["uid"] != uid:
            return {}
        return thing if is_leaving(thing) or uid else None

    async def _may_begin(
        self, template: ObjectTemplate, effect: Effect, node: Object | None
    ) -> Outcome | None:
        if effect.target.kind != "Node":
            return None
        if node is None:
            return Refused(f"there is no node {effect.target.name}")
        if template.proof == "new_boot" and not boot_of(node):
            return Refused(f"{effect.target.name} reports no bootID: a reboot could not be verified")
        on = {"fieldSelector": f"spec.nodeName={effect.target.name}"}
        pods = await self._cluster.list_all(path_of("v1", "pods"), query=on)
        if (no := may_work(node, pods, effect, disruptive=template.class_ in GRAVE)) is not None:
            return no
        return waits_for_others(self._others(node), effect, self._clock(), self._wait_for_others_s)

    async def _make(
        self, template: ObjectTemplate, body: Object, effect: Effect, node: Object | None, lease: LeaseHeld
    ) -> Outcome:
        resource = await self._cluster.resource(template.kind)
        marks = {
            INCIDENT: effect.incident,
            EFFECT: effect.key,
            RUN: effect.run,
            WORK_NODE: effect.target.name,
        }
        marks[WORK_BOOT_ID] = boot_of(node) if node is not None else ""
        if template.does == "create":
            made = copy.deepcopy(body)
            meta = dict(made.get("metadata") or {})
            labels = {**(meta.get("labels") or {}), "app.kubernetes.io/managed-by": "faultline"}
            meta |= {"name": object_name(template, effect), "labels": labels}
            meta["annotations"] = {**(meta.get("annotations") or {}), **marks}
            where = (meta.get("namespace") or self._namespace) if resource.namespaced else None
            made["metadata"] = meta
            lease.check()
            try:
                thing = await self._cluster.create(resource.path(where), made)
            except AlreadyExists:
                return Waiting(0.0, f"{template.kind} {meta['name']} exists already")
            return Waiting(LOOK_AGAIN_S, f"{_shown(thing)} created", self._result(thing, effect))
        meta = body["metadata"]
        where = (meta.get("namespace") or self._namespace) if resource.namespaced else None
        path = resource.path(where, meta["name"])
        try:
            thing = await self._cluster.get(path)
        except NotFound:
            return Refused(f"there is no {template.kind} {meta['name']}")
        if opted_out(thing):
            return Refused(f"{_shown(thing)} is opted out")
        lock = {"resourceVersion": thing["metadata"]["resourceVersion"], "uid": thing["metadata"]["uid"]}
        own = {effect_mark(template.template): effect.key, _ASKED_AT: rfc3339(self._clock())}
        own[WORK_BOOT_ID] = marks[WORK_BOOT_ID]
        lease.check()
        if template.does == "delete":
            try:
                await self._cluster.delete(path, uid=lock["uid"])
            except NotFound:
                return Waiting(0.0, f"{_shown(thing)} is gone", self._result(thing, effect))
            return Waiting(LOOK_AGAIN_S, f"{_shown(thing)} is being deleted", self._result(thing, effect))
        patch = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
        patch["metadata"] = {**lock, "annotations": {**(meta.get("annotations") or {}), **own}}
        if meta.get("labels"):
            patch["metadata"]["labels"] = meta["labels"]
        try:
            thing = await self._cluster.patch(path, patch)
        except NotFound:
            return Refused(f"there is no {template.kind} {meta['name']}")
        return Waiting(LOOK_AGAIN_S, f"{_shown(thing)} patched", self._result(thing, effect))

    def _judged(
        self, template: ObjectTemplate, thing: Object | None, node: Object | None, effect: Effect
    ) -> Outcome:
        now = self._clock()
        if thing is not None:
            marks = annotations_of(thing)
            boot = marks.get(WORK_BOOT_ID, "")
            asked = marks.get(_ASKED_AT) if template.does == "patch" else None
            since = parse_rfc3339(asked) if asked else asked_at(thing, now)
            if template.does == "delete":
                since = parse_rfc3339(str(effect.prior.get("asked_at") or rfc3339(now)))
            result = self._result(thing, effect)
        else:
            boot, result = str(effect.prior.get("boot_id") or ""), effect.prior
            since = parse_rfc3339(str(effect.prior.get("asked_at") or rfc3339(now)))
        state, said = verdict(template, thing, node, effect, boot, since, now)
        what = f"{template.template} for {effect.target.name}"
        match state:
            case "done":
                begun = bool(effect.prior.get("made"))
                return Done(result, f"{what}: {said}") if begun else AlreadyDone(result, f"{what}: {said}")
            case "failed":
                return Refused(f"{what} failed: {said}")
        return Waiting(LOOK_AGAIN_S, f"{what}: {said}", result)

    def _result(self, thing: Object, effect: Effect) -> Result:
        meta = thing["metadata"]
        kept = {key: effect.prior[key] for key in ("asked_at", "boot_id") if key in effect.prior}
        return {
            "made": True,
            "object": _shown(thing),
            "name": meta["name"],
            "namespace": meta.get("namespace") or "",
            "uid": meta["uid"],
            "asked_at": rfc3339(self._clock()),
            "boot_id": annotations_of(thing).get(WORK_BOOT_ID, ""),
            **kept,
        }

    async def _node(self, effect: Effect) -> Object | None:
        if effect.target.kind != "Node":
            return None
        try:
            return await self._cluster.get(path_of("v1", "nodes", name=effect.target.name))
        except NotFound:
            return None

    def _in(self, resource: Resource, template: ObjectTemplate) -> str | None:
        named = (template.object.get("metadata") or {}).get("namespace")
        return str(named or self._namespace) if resource.namespaced else None


def _shown(thing: Object) -> str:
    meta = thing["metadata"]
    where = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{thing.get('kind') or 'object'} {where}{meta['name']}"


def _needed(template: ObjectTemplate) -> str:
    rights = "; ".join(f"{', '.join(r.verbs)} {', '.join(r.resources)}" for r in template.rights)
    return f"the template {template.template} needs: {rights} (k8s/components/templates)"
