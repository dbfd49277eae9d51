"""Effects on Slurm, a process that dies between two calls, and the responder's way with an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from connectors.base import (
    AlreadyDone,
    Blocked,
    Connector,
    Done,
    Effect,
    LeaseHeld,
    NoLease,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from connectors.slurm.api import SlurmApi
from connectors.slurm.connector import Slurm
from streams.model.clock import utc_now
from streams.model.entity import SLURM_JOB, SLURM_UID
from streams.model.run import Target
from tests.testbed.waiting import patience

WRITES = ("drain", "resume", "requeue_hold", "hold", "release", "update_job")


class Died(Exception):
    """The process is gone."""


class DiesAt:
    """An API whose process dies at its n-th change: before it is sent, or after Slurm has made it."""

    def __init__(self, api: SlurmApi, at: int, *, after: bool) -> None:
        self._api = api
        self._left = at
        self._after = after
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._api, name)
        return self._dying(found) if name in WRITES else found

    def _dying(self, call: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def called(*arguments: object) -> None:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Died
            await call(*arguments)
            self.made += 1
            if self._left == 0:
                raise Died

        return called


def on_job(
    action: str, job: int, key: str = "key-1", prior: dict[str, Any] | None = None, **params: str
) -> Effect:
    """An effect on a job; `key-2` is of the incident `inc-2`."""
    return _effect(action, Target(SLURM_JOB, str(job), ""), key, prior, params)


def on_node(
    action: str, node: str, key: str = "key-1", prior: dict[str, Any] | None = None, **params: str
) -> Effect:
    """An effect on a node."""
    return _effect(action, Target("Node", node, uid=f"{SLURM_UID}{node}"), key, prior, params)


def _effect(
    action: str, target: Target, key: str, prior: dict[str, Any] | None, params: dict[str, str]
) -> Effect:
    incident = "inc-" + key.rpartition("-")[2]
    context = {"title": "GPU off the bus", "reason": "XID 79 on gpu-1"}
    return Effect(
        key,
        action,
        target,
        "c1",
        incident,
        "run-1",
        "step",
        params=params,
        context=context,
        prior=prior or {},
    )


async def taken_back(connector: Connector, effect: Effect) -> Outcome:
    """Undo it, as the responder does until it is over."""
    prior: dict[str, Any] = {}
    async with asyncio.timeout(patience(30)):
        while True:
            one = Effect(**{name: getattr(effect, name) for name in Effect.__slots__} | {"prior": prior})
            outcome = await connector.undo(one, NoLease())
            if not isinstance(outcome, Waiting):
                return outcome
            prior |= outcome.result
            await asyncio.sleep(outcome.after_s)


async def carried_out(
    connector: Connector, effect: Effect, lease: LeaseHeld | None = None, *, looked_up: bool = False
) -> Outcome:
    """Apply it as the responder does until it is over: after an unknown outcome, or with `looked_up`, it is looked up first."""
    prior, look = dict(effect.prior), looked_up
    async with asyncio.timeout(patience(30)):
        while True:
            one = Effect(**{name: getattr(effect, name) for name in Effect.__slots__} | {"prior": prior})
            outcome = await (connector.lookup(one) if look else connector.apply(one, lease or NoLease()))
            look = isinstance(outcome, Unknown)
            match outcome:
                case Done() | AlreadyDone() | Refused() | Blocked():
                    return outcome
                case Waiting():
                    # Of this pause alone something depends; all others end when what they wait for is there.
                    await asyncio.sleep(outcome.after_s if "rested" in outcome.result.keys() - prior else 0.1)
                    prior |= outcome.result
                case Retry() | Unknown():
                    await asyncio.sleep(outcome.after_s)


def slurm_of(api: SlurmApi) -> Slurm:
    """A new connector, for jobs whose scripts have begun: by its clock each has run for long."""
    return Slurm(api, clock=lambda: utc_now() + timedelta(hours=1))
