"""Asks a pod of a job over HTTP for a checkpoint. Only a pod's own address and a port that one of its containers declares; no
redirects, no proxy, a bounded answer.

    POST http://POD:PORT/PATH   {"request": KEY, "incident": ID, "within_s": 120}
    GET  the same               later: is it done?

200 with `{"saved": true}` says that it is saved; `step` beside it tells which. Anything else that is no error: not yet.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from connectors.base import Done, LeaseHeld, Outcome, Refused, Waiting
from connectors.http import public_authorities
from connectors.kubernetes.client import Object
from streams.job_kinds.checkpoint_way import CheckpointWay
from streams.model.kube_objects import items, part

ASK_AGAIN_S = 5.0
TIMEOUT_S = 8.0
"""Well below the lease of a call: who saves for longer answers 202 first."""
MAX_ANSWER = 4096

Reachable = Callable[[str], bool]


def is_pod_address(ip: str) -> bool:
    """Whether it can be the address of a pod: not this machine, not a metadata service, nothing that means many."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    )


def url_of(
    pods: Sequence[Object], way: CheckpointWay, reachable: Reachable = is_pod_address
) -> str | Refused:
    """Where the first pod that serves the declared port is asked."""
    for pod in pods:
        ip = str(part(pod, "status").get("podIP") or "")
        if way.port in _ports(pod) and reachable(ip):
            return f"http://{f'[{ip}]' if ':' in ip else ip}:{way.port}{way.path}"
    return Refused(f"none of its running pods declares the port {way.port} of its checkpoint hook")


async def post(url: str, body: Mapping[str, Any], lease: LeaseHeld) -> Outcome:
    """Ask, once."""
    lease.check()
    return await _send("POST", url, dict(body))


async def poll(url: str) -> Outcome:
    """Ask whether it is done; changes nothing. A hook that answers no GET may still tell by a line or the annotation."""
    seen = await _send("GET", url, None)
    return Waiting(ASK_AGAIN_S, seen.reason) if isinstance(seen, Refused) else seen


async def _send(method: str, url: str, body: object) -> Outcome:
    try:
        async with (
            httpx.AsyncClient(
                timeout=TIMEOUT_S,
                follow_redirects=False,
                trust_env=False,
                verify=public_authorities(trust_env=False),
            ) as client,
            client.stream(method, url, json=body) as response,
        ):
            return await _judged(response)
    except httpx.HTTPError as error:
        what = str(error) or type(error).__name__
        # It may have begun to save: a newer checkpoint tells.
        return Waiting(ASK_AGAIN_S, f"its checkpoint hook does not answer: {what[:120]}")


async def _judged(response: httpx.Response) -> Outcome:
    raw = b""
    async for chunk in response.aiter_bytes():
        raw += chunk[: MAX_ANSWER - len(raw)]
        if len(raw) >= MAX_ANSWER:
            break
    answer = _object(raw) if response.status_code == 200 else {}
    if answer.get("saved") is True:
        step = answer.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
            return Done({}, "its checkpoint hook has saved a checkpoint")
        return Done({"step": step}, f"its checkpoint hook has saved a checkpoint of step {step:,}")
    if response.status_code < 300:
        return Waiting(ASK_AGAIN_S, "its checkpoint hook was asked, and has not saved yet")
    return Refused(f"its checkpoint hook answered {response.status_code}")


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _ports(pod: Object) -> set[int]:
    containers = [*items(pod, "spec", "containers"), *items(pod, "spec", "initContainers")]
    return {
        port["containerPort"]
        for container in containers
        for port in items(container, "ports")
        if isinstance(port.get("containerPort"), int)
    }
