"""The client of the API server: JSON in, JSON out, over `kubernetes.aio`'s transport and authentication.

Plain dicts instead of the client's models: parsing a thousand nodes into models holds the event loop for most of a
second, models refuse fields they do not know yet, and a model that does not fit an answer raises after the change was
made. Every failure is an error of `connectors.kubernetes.errors`, which says whether a write was certainly not applied or
may have been.

    async with await Cluster.connect(settings.kubernetes) as cluster:
        node = await cluster.get(path_of("v1", "nodes", name="gpu-07"))
        await cluster.patch(path_of("v1", "nodes", name="gpu-07"), {"spec": {"unschedulable": True}})
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote

import aiohttp
import orjson
from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config
from yaml import YAMLError

from connectors.kubernetes import errors
from connectors.kubernetes.kubeconfig import check
from streams.config.connector_settings import KubernetesSettings
from streams.model.errors import ConfigError, Temporary

Object = dict[str, Any]
"""A Kubernetes object, or a Status, as JSON."""

PatchKind = Literal["merge", "strategic", "json"]

_PATCH_TYPES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}

FIELD_MANAGER = "faultline"
READS_AT_ONCE = 8
"""How many objects are read at a time where several are read by name."""
SILENT_WATCH_S = 90.0
"""The server sends a bookmark about once a minute; a watch without any event for longer counts as dead."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind as the server serves it. `api_version` is `v1` or `group/version`; `plural` its name in a path."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of one object, of a namespace's, or of all when both are None."""
        return path_of(self.api_version, self.plural, namespace=namespace, name=name)


def path_of(
    api_version: str,
    plural: str,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    """The URL path of a resource, e.g. `/apis/batch/v1/namespaces/team-a/jobs/train/status`; parts are escaped."""
    parts = ["api" if "/" not in api_version else "apis", *api_version.split("/")]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts.append(plural)
    parts += [part for part in (name, subresource) if part is not None]
    return "/" + "/".join(quote(part, safe="") for part in parts)


class Cluster:
    """One API server. Share one per process; `close` it, or use it as an async context manager.

    Every method raises errors of `connectors.kubernetes.errors`. Writes are never retried, except that a 401 makes it reload
    its credentials once, because tokens of service accounts and exec plugins expire.
    """

    def __init__(self, load: Callable[[], Awaitable[Any]], configuration: Any, timeout_s: float) -> None:
        self._load = load
        self._configuration = configuration
        self._api = kube.ApiClient(configuration)
        self._timeout_s = timeout_s
        self._connect_s = min(5.0, timeout_s)
        self._resources: dict[str, Resource] = {}

    def _no_second_sending(self) -> None:
        """Have the HTTP client send nothing twice by itself: it repeats a DELETE whose answer was lost, past the lease."""
        rest = self._api.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
            rest.pool_manager._retry_connection = False

    @classmethod
    async def connect(cls, settings: KubernetesSettings) -> Self:
        """From a kubeconfig, or the pod's own service account when none is set. Sends nothing yet.

        Raises:
            ConfigError: when there is no usable kubeconfig or service account.
        """

        async def load() -> Any:
            return await _configuration(settings)

        return cls(load, await load(), settings.timeout_s)

    @classmethod
    async def at(cls, url: str, *, token: str | None = None, timeout_s: float = 10.0) -> Self:
        """A server by its base URL, for emulators and tests."""

        async def load() -> Any:
            configuration = kube.Configuration(host=url)
            if token is not None:
                configuration.api_key["BearerToken"] = f"Bearer {token}"
            return configuration

        return cls(load, await load(), timeout_s)

    @property
    def url(self) -> str:
        """Where the server is, for messages."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """One object, or any JSON document of the server."""
        return await self._call("GET", path, query)

    async def server_date(self) -> str | None:
        """The Date header of the server, as it is; None where it sends none."""
        timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=self._connect_s)
        response = await self._send("GET", "/version", None, None, None, timeout)
        response.release()
        return response.headers.get("Date")

    async def list_pages(
        self, path: str, *, limit: int = 500, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """A list, page by page: the items, and the resourceVersion a watch continues from (the same on every page).

        Items carry `kind` and `apiVersion`, which lists of built-in kinds leave out.

        Raises:
            Gone: when the list took so long that its token expired; begin again.
        """
        token = ""
        while True:
            asked = {**(query or {}), "limit": str(limit)} | ({"continue": token} if token else {})
            page = await self._call("GET", path, asked)
            items = page.get("items") or []
            kind, api_version = str(page.get("kind") or "").removesuffix("List"), page.get("apiVersion")
            for item in items:
                item.setdefault("kind", kind)
                item.setdefault("apiVersion", api_version)
            about = page.get("metadata") or {}
            yield items, str(about.get("resourceVersion") or "")
            token = about.get("continue") or ""
            if not token:
                return

    async def list_all(self, path: str, *, query: Mapping[str, str] | None = None) -> list[Object]:
        """A list that is known to be small, e.g. the pods of one node or one job."""
        return [item async for items, _ in self.list_pages(path, query=query) for item in items]

    async def get_each(self, paths: Iterable[str]) -> dict[str, Object]:
        """Those of the objects that exist, by their paths; `READS_AT_ONCE` are read at a time.

        For a few out of many, where a list would be of all of them.
        """
        waiting, found = list(paths), dict[str, Object]()

        async def read() -> None:
            while waiting:
                path = waiting.pop()
                try:
                    found[path] = await self.get(path)
                except errors.NotFound:
                    continue
                except BaseException:
                    waiting.clear()  # the others need not go on
                    raise

        await asyncio.gather(*(read() for _ in range(min(READS_AT_ONCE, len(waiting)))))
        return found

    async def create(self, path: str, body: Object) -> Object:
        """POST of an object to its collection (or to a subresource)."""
        return await self._call("POST", path, {"fieldManager": FIELD_MANAGER}, body)

    async def patch(
        self, path: str, body: Object | list[Object], kind: PatchKind = "merge", *, strict: bool = False
    ) -> Object:
        """Change an object; `body` is a list for `json`, an object for the others. Returns the object as it now is.

        With `metadata.resourceVersion` in a merge patch the server answers `Conflict` if the object changed meanwhile.
        A `json` patch whose `test` fails is `Permanent` (422). With `strict` a field that the server does not know is
        `Permanent` (400), too; else it is dropped without a word.
        """
        query = {"fieldManager": FIELD_MANAGER} | ({"fieldValidation": "Strict"} if strict else {})
        return await self._call("PATCH", path, query, body, _PATCH_TYPES[kind])

    async def delete(self, path: str, *, uid: str | None = None, propagation: str | None = None) -> Object:
        """Delete one object; with `uid` only that one (`Conflict` if another object has its name now)."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if propagation is not None:
            body["propagationPolicy"] = propagation
        return await self._call("DELETE", path, None, body)

    async def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Ask for the eviction of a pod, of that uid if given. `grace_s` replaces the pod's own grace period.

        Raises:
            EvictionBlocked: a PodDisruptionBudget says not now.
            NotFound: it is gone already.
            Conflict: the name now belongs to another pod, or two evictions met.
        """
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        options: Object = {} if uid is None else {"preconditions": {"uid": uid}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if options:
            body["deleteOptions"] = options
        await self.create(path_of("v1", "pods", namespace=namespace, name=name, subresource="eviction"), body)

    async def watch(
        self,
        path: str,
        resource_version: str,
        *,
        timeout_s: int = 300,
        silent_s: float = SILENT_WATCH_S,
        query: Mapping[str, str] | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Object]:
        """Raw events `{"type", "object"}` after `resource_version`, BOOKMARK ones included, until the server ends the
        watch after `timeout_s` seconds; then watch again from the last resourceVersion seen. `opened` is called once the
        server has accepted the watch: a first event may be long in coming.

        Raises:
            Gone: the resourceVersion is too old; list again.
            Temporary: the connection was cut, or silent for `silent_s` seconds; watch again.
        """
        asked = {
            **(query or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
            "resourceVersion": resource_version,
        }
        what = f"watch {path}"
        timeout = aiohttp.ClientTimeout(
            total=timeout_s + 15, sock_connect=self._connect_s, sock_read=silent_s
        )
        response = await self._send("GET", path, asked, None, None, timeout)
        try:
            async for event in _events(response, what, opened):
                yield event
        finally:
            response.close()

    async def resource(self, kind: str) -> Resource:
        """Look up `group/version/Kind` (`v1/Node` for the core group) in the server's discovery; found ones are kept.

        Raises:
            NotFound: the server does not serve it (a missing CRD).
        """
        if kind not in self._resources:
            api_version, _, name = kind.rpartition("/")
            prefix = "/apis/" if "/" in api_version else "/api/"
            served = (await self.get(prefix + api_version)).get("resources") or []
            found = [r for r in served if r.get("kind") == name and "/" not in r.get("name", "/")]
            if not found:
                raise errors.NotFound(f"{self.url} does not serve {kind}")
            self._resources[kind] = Resource(
                api_version, name, found[0]["name"], bool(found[0]["namespaced"])
            )
        return self._resources[kind]

    def forget(self, kind: str) -> None:
        """Look a kind up anew the next time: its CRD was removed, or serves other versions now."""
        self._resources.pop(kind, None)

    async def websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """An open WebSocket to a subresource; a 401 is answered once with fresh credentials. Close it after use.

        Raises:
            aiohttp.WSServerHandshakeError: the server refused it.
        """

        async def once() -> aiohttp.ClientWebSocketResponse:
            _, url, headers, *_ = await self._api.param_serialize(
                "GET", path, query_params=list(query), auth_settings=["BearerToken"]
            )
            rest = self._api.rest_client
            if rest.pool_manager is None:
                rest.pool_manager = rest._create_pool_manager()
            socket: aiohttp.ClientWebSocketResponse = await rest.pool_manager.ws_connect(
                "ws" + url.removeprefix("http"), headers=headers, protocols=protocols
            )
            return socket

        try:
            return await once()
        except aiohttp.WSServerHandshakeError as error:
            if error.status != 401:
                raise
        fresh = await self._load()
        self._configuration.api_key.update(fresh.api_key)
        return await once()

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | list[Object] | None = None,
        content_type: str | None = None,
    ) -> Object:
        write, what = method != "GET", f"{method} {path}"
        timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=self._connect_s)
        response = await self._send(method, path, query, body, content_type, timeout)
        try:
            raw = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.of_transport(error, write=write, what=what) from error
        finally:
            response.release()
        if response.status >= 400:
            raise errors.of_status(response.status, response.headers, raw, write=write, what=what)
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise errors.of_transport(error, write=write, what=what) from error
        if not isinstance(answer, dict):
            raise Temporary(f"{what}: the answer is not a Kubernetes object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | list[Object] | None,
        content_type: str | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """The response with its body still unread; a 401 is answered once with fresh credentials."""
        headers = {"Accept": "application/json", "Content-Type": content_type or "application/json"}
        self._no_second_sending()

        async def once() -> aiohttp.ClientResponse:
            try:
                prepared = await self._api.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params=headers,
                    body=body,
                    auth_settings=["BearerToken"],
                )
                # The client takes what aiohttp takes as a timeout, although its signature speaks of numbers.
                answer = await self._api.call_api(*prepared, _request_timeout=timeout)
            except kube_config.ConfigException as error:  # the token's file is just being written
                text = f"{method} {path}: the credentials cannot be read: {error}"
                raise errors.Unauthorized(text) from error
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise errors.of_transport(error, write=method != "GET", what=f"{method} {path}") from error
            response: aiohttp.ClientResponse = answer.response
            return response

        response = await once()
        if response.status != 401:
            return response
        response.release()
        try:
            fresh = await self._load()
        except ConfigError as error:  # who rotates them may be writing the file right now
            text = f"{method} {path}: 401, and the credentials cannot be read anew: {error}"
            raise errors.Unauthorized(text) from error
        self._configuration.api_key.update(fresh.api_key)
        # The old hook still has the old token, and would put it back with the next request.
        self._configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
        return await once()


async def _events(
    response: aiohttp.ClientResponse, what: str, opened: Callable[[], None]
) -> AsyncIterator[Object]:
    try:
        if response.status >= 400:
            body = await response.read()
            raise errors.of_status(response.status, response.headers, body, write=False, what=what)
        opened()
        async for line in _lines(response):
            event = orjson.loads(line)
            if event.get("type") == "ERROR":
                raise errors.of_event(event.get("object") or {}, what=what)
            yield event
    except orjson.JSONDecodeError as error:
        raise Temporary(f"{what}: cut off inside an event") from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise errors.of_transport(error, write=False, what=what) from error


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines of any length: aiohttp's own `readline` gives up on one longer than its buffer."""
    parts: list[bytes] = []
    async for chunk in response.content.iter_any():
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            whole = b"".join([*parts, line])
            parts.clear()
            if whole.strip():
                yield whole
        parts.append(rest)
    if b"".join(parts).strip():
        yield b"".join(parts)


async def _configuration(settings: KubernetesSettings) -> Any:
    configuration = kube.Configuration()
    try:
        if settings.kubeconfig is None:
            kube_config.load_incluster_config(configuration)
        else:
            check(settings.kubeconfig, settings.context)
            await kube_config.load_kube_config(
                config_file=str(settings.kubeconfig),
                context=settings.context,
                client_configuration=configuration,
                persist_config=False,
            )
    except kube_config.ConfigException as error:
        source = settings.kubeconfig or "the pod's service account (kubernetes.kubeconfig is not set)"
        raise ConfigError(f"cannot use {source}: {error}") from error
    except (OSError, YAMLError) as error:
        raise ConfigError(f"cannot read kubernetes.kubeconfig {settings.kubeconfig}: {error}") from error
    return configuration
