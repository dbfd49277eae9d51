"""HTTP interface of the emulated API server: kmock parses Kubernetes URLs and serves discovery, the store does the rest.

kmock itself knows no resourceVersion, so it can neither refuse a stale write nor continue a watch. Everything that reads
or changes objects is therefore answered here, from `sandbox.emulated.store`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kmock
import orjson
from aiohttp import web

from sandbox.emulated.patches import patched
from sandbox.emulated.store import BUDGETS, KINDS, PODS, ApiError, Kind, Object, Selector, Store, holds

BOOKMARK_S = 5.0
"""A real server sends one about once a minute."""


class ApiServer(kmock.KubernetesScaffold):
    """Serves the kinds of `KINDS`. Not served: finalizers, server-side apply, admission, garbage collection, pages of a list."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self._kinds = {(kind.api_version, kind.plural): kind for kind in KINDS}
        for kind in KINDS:
            self.resources[f"{kind.api_version}/{kind.plural}"] = kmock.ResourceInfo(
                kind=kind.kind,
                singular=kind.kind.lower(),
                namespaced=kind.namespaced,
                verbs={"get", "list", "watch", "create", "patch", "delete"},
                subresources={"status"} if kind.has_status else set(),
            )

    async def _handle(self, request: kmock.Request) -> web.StreamResponse:
        del self._requests[:-1]  # kmock keeps every request for assertions, and this server may run for long
        kind = self._kind(request)
        if kind is None:
            return await super()._handle(request)
        try:
            if request.action == kmock.action.WATCH:
                return await self._watch(request, kind)
            status, answer = self._answer(request, kind)
        except ApiError as error:
            status, answer = error.status, _status(error)
        headers = {"Retry-After": "1"} if status == 429 else {}
        return web.Response(
            body=orjson.dumps(answer), status=status, content_type="application/json", headers=headers
        )

    def _kind(self, request: kmock.Request) -> Kind | None:
        resource = request.resource
        if resource is None or not resource.plural:
            return None
        group_version = f"{resource.group}/{resource.version}" if resource.group else str(resource.version)
        return self._kinds.get((group_version, resource.plural))

    def _answer(self, request: kmock.Request, kind: Kind) -> tuple[int, Object]:
        namespace, name, data = request.namespace, request.name, request.data
        method = str(request.method.value).upper()
        if name is None:
            match method:
                case "GET":
                    return 200, self._list(kind, _selector(request))
                case "POST":
                    return 201, self.store.create(kind, namespace or _namespace_in(kind, data), _object(data))
        else:
            match method, request.subresource:
                case "GET", _:
                    return 200, self.store.get(kind, namespace, name)
                case "PATCH", (None | "status"):
                    return 200, self._patch(request, kind, name)
                case "DELETE", None:
                    uid = ((data or {}).get("preconditions") or {}).get("uid")
                    return 200, self.store.delete(kind, namespace, name, uid)
                case "POST", "eviction" if kind == PODS:
                    return 201, self._evict(namespace, name, _object(data))
        raise ApiError(405, "MethodNotAllowed", f"{method} {request.url.path} is not served here")

    def _list(self, kind: Kind, selector: Selector) -> Object:
        return {
            "apiVersion": kind.api_version,
            "kind": f"{kind.kind}List",
            "metadata": {"resourceVersion": str(self.store.version)},
            "items": self.store.list(kind, selector),
        }

    def _patch(self, request: kmock.Request, kind: Kind, name: str) -> Object:
        now = self.store.get(kind, request.namespace, name)
        content_type = request.headers.get("Content-Type", "").partition(";")[0]
        changed = patched(copy.deepcopy(now), request.data, content_type)
        if kind.has_status:
            kept = ("status",) if request.subresource is None else tuple(k for k in changed if k != "status")
            for part in kept:
                if part != "metadata":
                    changed.pop(part, None)
                    changed |= {part: now[part]} if part in now else {}
        return self.store.put(kind, changed)

    def _evict(self, namespace: str | None, name: str, eviction: Object) -> Object:
        pod = self.store.get(PODS, namespace, name)
        options = eviction.get("deleteOptions") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        if "deletionTimestamp" not in pod["metadata"]:
            self._check_budgets(pod)
        self.store.delete(PODS, namespace, name, uid, grace_s=options.get("gracePeriodSeconds"))
        return {"apiVersion": "v1", "kind": "Status", "status": "Success", "code": 201}

    def _check_budgets(self, pod: Object) -> None:
        """429 when a PodDisruptionBudget would be broken, worded as the eviction handler does."""
        for budget in self.store.list(BUDGETS, Selector(pod["metadata"]["namespace"])):
            wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
            terms = ",".join(f"{key}={value}" for key, value in wanted.items())
            covered = self.store.list(PODS, Selector(pod["metadata"]["namespace"], terms))
            if not any(p is pod for p in covered):
                continue
            healthy = [p for p in covered if holds(p, "Ready") and "deletionTimestamp" not in p["metadata"]]
            needed = budget["spec"].get(
                "minAvailable", len(covered) - budget["spec"].get("maxUnavailable", 0)
            )
            if len(healthy) - 1 < needed:
                cause = (
                    f"The disruption budget {budget['metadata']['name']} needs {needed} healthy pods "
                    f"and has {len(healthy)} currently"
                )
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
                raise ApiError(429, "TooManyRequests", text, details)

    async def _watch(self, request: kmock.Request, kind: Kind) -> web.StreamResponse:
        selector, version = _selector(request), int(request.params.get("resourceVersion") or 0)
        self.store.since(version)  # a version too old is refused before the stream begins
        raw = request._raw_request
        assert raw is not None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(raw)
        clock = raw.task.get_loop().time
        until = clock() + float(request.params.get("timeoutSeconds") or 300)
        shown: set[str] = {t["metadata"]["uid"] for t in self.store.list(kind, selector)}
        try:
            while (left_s := until - clock()) > 0:
                for change in self.store.since(version):
                    version = change.version
                    if change.kind == kind and (event := _seen(change.type, change.object, selector, shown)):
                        await response.write(orjson.dumps(event) + b"\n")
                if not await self.store.changed_after(version, min(BOOKMARK_S, left_s)):
                    about = {"metadata": {"resourceVersion": str(version)}}
                    mark = {"kind": kind.kind, "apiVersion": kind.api_version} | about
                    await response.write(orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n")
        except ConnectionError:
            pass  # the client has gone: that is how most watches end
        return response


@asynccontextmanager
async def serving(store: Store, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the store on loopback; yields the base URL."""
    async with ApiServer(store) as handler:
        runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _seen(what: str, thing: Object, selector: Selector, shown: set[str]) -> Object | None:
    """The event a watcher with this selector sees: an object that stops matching is deleted for it."""
    uid, matches = thing["metadata"]["uid"], selector.takes(thing)
    if what != "DELETED" and matches:
        shown.add(uid)
        return {"type": what, "object": thing}
    known = uid in shown or (what == "DELETED" and matches)
    shown.discard(uid)
    return {"type": "DELETED", "object": thing} if known else None


def _selector(request: kmock.Request) -> Selector:
    params = request.params
    return Selector(request.namespace, params.get("labelSelector", ""), params.get("fieldSelector", ""))


def _object(data: Any) -> Object:
    if not isinstance(data, dict):
        raise ApiError(400, "BadRequest", "the body is not an object")
    return data


def _namespace_in(kind: Kind, data: Any) -> str | None:
    return str((data.get("metadata") or {}).get("namespace") or "default") if kind.namespaced else None


def _status(error: ApiError) -> Object:
    answer: Object = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": error.status}
    answer |= {"reason": error.reason, "message": error.message}
    return answer | ({"details": error.details} if error.details else {})
