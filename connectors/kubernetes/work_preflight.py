"""A session of diagnostics on request: before a node joins or returns, or before a large job starts.

Nobody closed the node for it, so it must be idle: nothing of anybody's uses its GPUs. A node that waits at the gate carries

    taint  faultline.dev/preflight=required:NoSchedule

set by whoever creates nodes. It is taken off only after a session that the node passed, and only where the gate is switched on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from connectors.base import (
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    NoLease,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from connectors.kubernetes.annotations import MANAGED, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.node_work import NAMED, Others, nobody, using_gpus
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_session_jobs import SessionJobs
from connectors.kubernetes.work_templates import PREFLIGHT
from streams.model.clock import Clock, utc_now
from streams.model.message import some
from streams.model.run import Target

Sleep = Callable[[float], Awaitable[None]]

PATIENCE = timedelta(minutes=1)
"""How long an API server that does not answer is asked again: whoever waits at the terminal must be told."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one node: a line per diagnostic, and why it did not pass, if it did not."""

    node: str
    passed: bool
    diagnostics: tuple[str, ...] = ()
    reason: str = ""
    released: bool = False
    """Its taint was taken off."""


class Preflight:
    """Sessions of one cluster, each with Jobs of its own."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        diagnostics: Sequence[Diagnostic],
        *,
        gate: bool = False,
        others: Others = nobody,
        clock: Clock = utc_now,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._gate = gate
        self._others = others
        self._sleep = sleep
        self._clock = clock
        self._session = SessionJobs(cluster, namespace, diagnostics, self._may_begin, clock)

    async def waiting(self) -> list[str]:
        """Names of the nodes that wait at the gate."""
        nodes = await self._cluster.list_all(path_of("v1", "nodes"))
        return sorted(node["metadata"]["name"] for node in nodes if _has_taint(node))

    async def run(self, node: str) -> Verdict:
        """One session on one node, to its end.

        A node that cannot be tested now (in use, not ready, worked on by somebody else) did not pass.
        """
        asked = uuid.uuid4().hex[:12]
        effect = Effect(
            f"preflight/{node}/{asked}",
            "validate_node",
            Target("Node", node),
            "",
            f"preflight-{asked}",
            asked,
            "preflight",
        )
        answered = self._clock()
        while True:
            outcome = await attempted(partial(self._session.apply, effect, NoLease()))
            match outcome:
                case Waiting() as going:
                    answered = self._clock()
                    effect = _after(effect, going)
                    await self._sleep(max(going.after_s, 0.2))
                case Retry(after_s=pause, reason=why) | Unknown(after_s=pause, reason=why):
                    if self._clock() - answered > PATIENCE:
                        return Verdict(node, False, (), f"given up: {why}")
                    await self._sleep(max(pause, 0.2))
                case Done() | AlreadyDone():
                    told = outcome.result.get("diagnostics")
                    lines = tuple(map(str, told)) if isinstance(told, tuple) else ()
                    return await self._passed(node, lines)
                case Refused(reason=reason) | Blocked(reason=reason):
                    told = effect.prior.get("diagnostics")
                    lines = tuple(map(str, told)) if isinstance(told, tuple) else ()
                    return Verdict(node, False, lines, reason)
                case _:
                    return Verdict(node, False, (), f"unexpected: {outcome}")

    async def _passed(self, node: str, lines: tuple[str, ...]) -> Verdict:
        if not self._gate:
            return Verdict(node, True, lines)

        def decide(found: Object) -> GuardedChange | Outcome:
            if not _has_taint(found):
                return AlreadyDone()
            taints = [taint for taint in found["spec"]["taints"] if taint.get("key") != PREFLIGHT]
            return GuardedChange({"spec": {"taints": taints or None}}, Done())

        gone = Refused(f"{node} is gone")
        opened = await change(
            self._cluster, path_of("v1", "nodes", name=node), decide, NoLease(), if_gone=gone
        )
        match opened:
            case Done():
                return Verdict(node, True, lines, released=True)
            case AlreadyDone():
                return Verdict(node, True, lines)
        return Verdict(node, False, lines, f"it passed, but {PREFLIGHT} could not be taken off: {opened}")

    async def _may_begin(self, effect: Effect) -> Object | Outcome:
        name = effect.target.name
        try:
            node = await self._cluster.get(path_of("v1", "nodes", name=name))
        except NotFound:
            return Refused(f"there is no node {name}")
        if opted_out(node):
            return Refused(f"{name} is opted out ({MANAGED}=false)")
        if not is_ready(node):
            return Refused(f"{name} is not ready")
        if (work := self._others(node)) is not None:
            return Refused(f"{work.by} works on {name} ({work.mark})")
        on = {"fieldSelector": f"spec.nodeName={name}"}
        using = using_gpus(await self._cluster.list_all(path_of("v1", "pods"), query=on))
        if using:
            return Refused(
                f"{some(sorted(using), NAMED)} use GPUs of {name}: it can be tested when it is idle"
            )
        return node


def _has_taint(node: Object) -> bool:
    return any(taint.get("key") == PREFLIGHT for taint in node.get("spec", {}).get("taints") or [])


def _after(effect: Effect, going: Waiting) -> Effect:
    return replace(effect, prior=going.result)
