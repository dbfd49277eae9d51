"""Lists and watches each kind until cancelled, through restarts of the API server.

A watch alone is not enough: events are lost while it is cut off, and a resourceVersion that is too old ends in 410. So each
kind is listed, then watched from the list's version on, and listed again after a 410 and at least every `relist_s`.
After each list `KindListed` names what exists, so the receiver can tell what was deleted unseen.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from connectors.kubernetes.client import Cluster, Object, Resource
from connectors.kubernetes.errors import Forbidden, Gone, NotFound, Unauthorized
from streams.model.clock import Clock, utc_now
from streams.model.errors import ConfigError, Permanent, Temporary, Unreachable
from streams.model.watch import Emit, KindListed, ObjectChange

log = structlog.get_logger()

WATCH_S = 300
"""How long one watch request may last; without a timeout the server may drop it silently."""

FAILED_WATCHES = 5
"""After so many refused watches in a row the version itself is suspect (a server restored from a backup): list again."""


NEEDED = ("v1/Node", "v1/Pod")
"""Without these nothing can be said of a cluster: a missing right is a failure."""

STEADY_S = 60.0
"""After working this long, the back-off starts from its first value again."""


@dataclass(slots=True)
class Backoff:
    """Waiting times after failures: doubling, with jitter, so that many watchers do not reconnect at once."""

    first_s: float = 0.5
    most_s: float = 30.0
    chance: random.Random = field(default_factory=random.Random)
    _failures: int = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        """Seconds to wait after one more failure; at least what the server asked for."""
        ceiling = min(self.most_s, self.first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        return max(self.chance.uniform(ceiling / 2, ceiling), at_least_s or 0.0)

    def reset(self) -> None:
        """Start from the first value again."""
        self._failures = 0


@dataclass(frozen=True, slots=True)
class WatchPace:
    """Intervals of lists and watches. `missing_s`: how long a kind must stay unserved before its objects count as gone."""

    relist_s: float = 1800.0
    page_size: int = 500
    missing_s: float = 60.0
    silent_s: float = 90.0


def versions_of(kinds: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The kinds (`group/version/Kind`) by the first one given of each, with all its versions in the order given."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        api_version, _, name = kind.rpartition("/")
        versions = found.setdefault((api_version.rpartition("/")[0], name), [])
        if kind not in versions:
            versions.append(kind)
    return {versions[0]: tuple(versions) for versions in found.values()}


class KindWatches:
    """The real `streams.model.watch.Watches`: one list-and-watch per kind over one client.

    Of a kind in several versions the first that the server serves is watched, under the name of the first: the objects are the
    same. A kind that is not served (its CRD is not installed), or that we may not list, is checked again every `missing_s`; that
    is not an error, except for the kinds that are `needed`. Other failures are retried with back-off and logged once when
    they start and once when they end.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Iterable[str],
        *,
        pace: WatchPace | None = None,
        clock: Clock = utc_now,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        needed: Collection[str] = NEEDED,
    ) -> None:
        self._cluster = cluster
        self._versions = versions_of(kinds)
        self._needed = frozenset(needed)
        self._pace = pace or WatchPace()
        self._clock = clock
        self._pause = pause
        self._outage = _Outage(cluster.url)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that are watched, each by its first version."""
        return frozenset(self._versions)

    async def run(self, emit: Emit) -> None:
        """Emit every change of every kind until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in sorted(self._versions):
                group.create_task(self._follow(kind, emit), name=f"watch {kind}")

    async def _follow(self, kind: str, emit: Emit) -> None:
        now = asyncio.get_running_loop().time
        backoff = Backoff()
        missing_since: float | None = None
        while True:
            steady_since = now()
            try:
                version = await self._list(kind, emit)
                missing_since = None
                self._outage.end(kind)
                steady_since = now()
                await self._watch(kind, version, emit, steady_since + self._pace.relist_s)
            except NotFound:
                for version in self._versions[kind]:
                    self._cluster.forget(version)
                missing_since = now() if missing_since is None else missing_since
                gone = now() - missing_since >= self._pace.missing_s
                await emit(KindListed(self._clock(), kind, frozenset() if gone else None, served=False))
                self._outage.end(kind)
                await self._pause(self._pace.missing_s)
                continue
            except Forbidden as error:
                if kind in self._needed or isinstance(error, Unauthorized):
                    self._outage.start(kind, error)
                    wait_s = backoff.next_s()
                else:
                    await emit(KindListed(self._clock(), kind, None, permitted=False))
                    self._outage.end(kind)
                    await self._pause(self._pace.missing_s)
                    continue
            except Gone as error:
                log.info("watch expired, relisting", kind=kind, reason=str(error))
                wait_s = backoff.next_s(error.retry_after_s)
            except (Unreachable, Temporary, Permanent, ConfigError) as error:
                self._outage.start(kind, error)
                wait_s = backoff.next_s(getattr(error, "retry_after_s", None))
            else:
                backoff.reset()
                continue
            if now() - steady_since > STEADY_S:
                backoff.reset()
            await self._pause(wait_s)

    async def _list(self, kind: str, emit: Emit) -> str:
        resource = await self._served(kind)
        names: set[tuple[str, str]] = set()
        version = ""
        pages = self._cluster.list_pages(resource.path(), limit=self._pace.page_size)
        async for items, version in pages:  # noqa: B007 - the last page's version is the answer
            items.reverse()
            while items:  # none is held for those behind it: a page is tens of megabytes
                item = _slim(items.pop())
                about = item["metadata"]
                names.add((about.get("namespace") or "", about["name"]))
                await emit(ObjectChange(self._clock(), "ADDED", item))
        await emit(KindListed(self._clock(), kind, frozenset(names)))
        return version

    async def _served(self, kind: str) -> Resource:
        """The kind in the first version that the server serves.

        Raises:
            NotFound: it serves none.
        """
        *newer, last = self._versions[kind]
        for version in newer:
            try:
                return await self._cluster.resource(version)
            except NotFound:
                continue
        return await self._cluster.resource(last)

    async def _watch(self, kind: str, version: str, emit: Emit, until: float) -> None:
        """Watch on from `version`, over cuts, until a new list is due.

        Raises:
            Gone, NotFound, Permanent: a new list is needed.
        """
        now = asyncio.get_running_loop().time
        refused = 0
        resource, backoff = await self._served(kind), Backoff()
        while (left_s := until - now()) > 0:
            began, timeout_s = now(), max(1, min(WATCH_S, int(left_s)))
            try:
                events = self._cluster.watch(
                    resource.path(),
                    version,
                    timeout_s=timeout_s,
                    silent_s=self._pace.silent_s,
                    opened=lambda: self._outage.end(kind),
                )
                async for event in events:
                    refused = 0
                    backoff.reset()
                    version = _version(event) or version
                    if event["type"] != "BOOKMARK":
                        await emit(ObjectChange(self._clock(), event["type"], _slim(event["object"])))
            except Gone:
                raise
            except (Unreachable, Temporary) as error:
                if now() - began < self._pace.silent_s / 2:  # a quiet watch that ends is not an outage
                    self._outage.start(kind, error)
                    refused += isinstance(error, Temporary)
                if refused == FAILED_WATCHES:
                    raise Gone(f"{refused} watches failed in a row, the last with: {error}") from error
                await self._pause(
                    backoff.next_s(error.retry_after_s if isinstance(error, Temporary) else None)
                )
            else:
                self._outage.end(kind)
                # A server that ends watches at once must not be asked in a tight loop.
                if now() - began < 1.0:
                    await self._pause(backoff.next_s())


class _Outage:
    """One log line when the server fails and one when all kinds are watched again, however many kinds there are.

    A permanent refusal (a missing permission) concerns one kind, so it is logged for each.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._since = 0.0

    def start(self, kind: str, error: Exception) -> None:
        if isinstance(error, Permanent):
            if kind not in self._refused:
                log.warning(
                    "watch forbidden (RBAC), retrying", kind=kind, server=self._url, reason=str(error)
                )
            self._refused.add(kind)
            return
        if not self._failing:
            self._since = asyncio.get_running_loop().time()
            log.warning("watch failed, retrying", kind=kind, server=self._url, reason=str(error))
        self._failing.add(kind)

    def end(self, kind: str) -> None:
        self._refused.discard(kind)
        if kind in self._failing:
            self._failing.discard(kind)
            if not self._failing:
                lasted_s = round(asyncio.get_running_loop().time() - self._since, 1)
                log.info("watch recovered", server=self._url, lasted_s=lasted_s)


def _slim(item: Object) -> Object:
    """An object without its managed fields: nobody reads them, and they are often half of it while it waits in a queue."""
    item["metadata"].pop("managedFields", None)
    return item


def _version(event: Object) -> str | None:
    version = event["object"].get("metadata", {}).get("resourceVersion")
    return str(version) if version else None
