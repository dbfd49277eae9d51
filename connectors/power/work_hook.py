"""`power_cycle_node` and `replace_node` by the operator's own tool: a signed request, and its state polled until it has an end.

    POST URL          a request; 2xx: taken, also for a copy
    GET  URL/ID       {"state": "running" | "done" | "failed", "message": …}; 404: no such request

Both are signed like our other webhooks (Standard Webhooks; a GET signs an empty body). The id is the key of the effect, the same
for every copy: the tool folds them, so a request that may have been lost is looked up and then sent again.

What the tool says is not believed alone: a power cycle is done when the node has another boot and is Ready, a replacement when
the Node object of that uid is gone or another one. The same guards as for any work on a node hold before it is asked.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from connectors.base import Absent, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Unknown, Waiting
from connectors.http import Ambiguous, answer_of, deliver, http_client
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.cordon_ownership import replaced
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.node_work import Others, nobody
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.work_results import boot_of
from connectors.posts.webhook import signature
from connectors.power.node_guard import NodeGuard
from streams.config.connector_settings import NodeWorkSettings
from streams.config.post_settings import secret_bytes
from streams.model.clock import Clock, utc_now
from streams.model.errors import ConfigError, Temporary
from streams.model.message import plain
from streams.model.signal import Attribute

LOOK_AGAIN_S = 15.0
MAX_WORDS = 200
STATES = ("running", "done", "failed")


class WorkHook:
    """The tool behind `node_work.hook`. The target's `name` is the node's; its `uid`, if given, must match."""

    def __init__(
        self, cluster: Cluster, settings: NodeWorkSettings, clock: Clock = utc_now, others: Others = nobody
    ) -> None:
        hook = settings.hook
        if hook.url is None or hook.secret is None:
            raise ConfigError("node_work.hook.url and node_work.hook.secret are not set")
        parts = urlsplit(hook.url.get_secret_value())
        self._path, self._query = parts.path.rstrip("/") or "/", f"?{parts.query}" if parts.query else ""
        self._key = secret_bytes(hook.secret.get_secret_value())
        self._client = http_client(f"{parts.scheme}://{parts.netloc}", timeout_s=hook.timeout_s)
        self._timeout_s = hook.timeout_s
        self._actions = frozenset(hook.actions)
        self._guard = NodeGuard(cluster, clock, others, settings.wait_for_others_s)

    @property
    def actions(self) -> frozenset[str]:
        """What the settings say that the tool is asked for."""
        return self._actions

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Ask the tool, or see how far it is: `Waiting`, finally `Done`, or `Refused` with what it says.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        if effect.params.get("leave_off"):
            return Refused(f"{effect.action}: the tool behind node_work.hook cannot be asked for a fence")

        async def once() -> Outcome:
            try:
                return await self._once(effect, lease)
            except Ambiguous as error:
                return Unknown(str(error))

        return await attempted(once)

    async def lookup(self, effect: Effect) -> Outcome:
        """Ask the tool whether it has the request."""

        async def once() -> Outcome:
            if await self._state(effect) is None:
                return Absent("the tool has no such request")
            return Waiting(LOOK_AGAIN_S, "the tool has the request", {**effect.prior, "asked": True})

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Always `Refused`."""
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def _once(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        node = await self._guard.node(effect)
        if effect.prior.get("asked"):
            return await self._judged(node, effect)
        if node is None or replaced(node, effect):
            return Refused(f"{effect.target.name} is not in the cluster any more, or another one", moot=True)
        if (
            no := await self._guard.keeps_from(node, effect, must_boot=effect.action == "power_cycle_node")
        ) is not None:
            return no
        # Known before it is sent: a copy after a lost answer must be judged by the same boot.
        known: dict[str, Attribute] = {
            "boot_id": str(effect.prior.get("boot_id") or boot_of(node)),
            "asked": False,
        }
        if "boot_id" not in effect.prior:
            return Waiting(0.0, f"the tool is about to be asked about {effect.target.name}", known)
        await self._post(node, effect, lease)
        return Waiting(
            LOOK_AGAIN_S, f"the tool was asked about {effect.target.name}", {**known, "asked": True}
        )

    async def _judged(self, node: Object | None, effect: Effect) -> Outcome:
        name, result = effect.target.name, dict(effect.prior)
        gone = node is None or replaced(node, effect)
        if effect.action == "replace_node" and gone:
            return Done(result, f"{name} is gone from the cluster")
        if node is None or gone:
            return Refused(f"{name} disappeared from the cluster, or was replaced")
        booted = boot_of(node) not in ("", str(effect.prior.get("boot_id") or ""))
        if effect.action == "power_cycle_node" and booted and is_ready(node):
            return Done(result | {"boot_id": boot_of(node)}, f"{name} was power-cycled and is ready")
        state = await self._state(effect)
        if state is None:
            return Blocked("the tool behind node_work.hook", "it does not know the request any more", 60.0)
        status, message = state
        told = f": {message}" if message else ""
        if status == "failed":
            return Refused(f"the tool could not do it{told}")
        wanted = "its node to go" if effect.action == "replace_node" else f"{name} to boot anew"
        waits = f", waiting for {wanted}" if status == "done" else ""
        return Waiting(LOOK_AGAIN_S, f"the tool says {status}{told}{waits}", result)

    async def _post(self, node: Object, effect: Effect, lease: LeaseHeld) -> None:
        about = {
            "id": effect.key,
            "action": effect.action,
            "cluster": effect.cluster,
            "incident": effect.incident,
            "run": effect.run,
            "step": effect.step,
            "node": effect.target.name,
            "node_uid": node["metadata"]["uid"],
            "provider_id": (node.get("spec") or {}).get("providerID") or "",
            "system_uuid": ((node.get("status") or {}).get("nodeInfo") or {}).get("systemUUID") or "",
            "boot_id": str(effect.prior.get("boot_id") or ""),
            "reason": str(effect.context.get("title") or ""),
        }
        body = orjson.dumps(about)
        await deliver(
            self._client,
            f"{self._path}{self._query}",
            body,
            lease=lease,
            deadline_s=self._timeout_s,
            headers={"Content-Type": "application/json", **self._signed(effect, body)},
        )

    async def _state(self, effect: Effect) -> tuple[str, str] | None:
        """What the tool says of the request; None where it has none.

        Raises:
            Temporary: it does not answer, or not in these words.
            Rejected: it refuses.
        """
        path = f"{self._path.rstrip('/')}/{effect.key}{self._query}"
        try:
            response = await self._client.get(path, headers=self._signed(effect, b""))
        except httpx.RequestError as error:
            raise Temporary(f"the tool behind node_work.hook: {type(error).__name__}") from error
        if response.status_code == 404:
            return None
        if response.status_code >= 500:
            raise Temporary(f"the tool behind node_work.hook: server error {response.status_code}")
        body: dict[str, Any] = answer_of(self._client, "GET", "", response)
        if body.get("state") not in STATES:
            raise Temporary(f"the tool behind node_work.hook says none of {', '.join(STATES)}")
        return str(body["state"]), " ".join(plain(str(body.get("message") or ""), MAX_WORDS).split())

    def _signed(self, effect: Effect, body: bytes) -> dict[str, str]:
        stamp = int(time.time())
        return {
            "webhook-id": effect.key,
            "webhook-timestamp": str(stamp),
            "webhook-signature": signature(self._key, effect.key, stamp, body),
        }
