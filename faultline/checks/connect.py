"""Asks broker, API server and services at the same time, each for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from faultline.checks.cluster_probe import probe_cluster
from faultline.checks.finding import CheckFinding, worst_first
from faultline.checks.http_probe import service_probes
from faultline.checks.kafka_probe import probe_kafka
from faultline.runtime.settings import Settings
from streams.model.errors import ConfigError, Unreachable

PROBE_S = 5.0
"""How long one probe may take. All run at the same time."""

ASKS_THE_CLUSTER = frozenset({"inventory", "responder"})


async def connected(
    settings: Settings, processes: tuple[str, ...], *, within_s: float = PROBE_S
) -> list[CheckFinding]:
    """Every finding of every probe, the worst first. Changes nothing anywhere."""
    probes: list[tuple[str, str, Callable[[], Awaitable[list[CheckFinding]]]]] = [
        ("kafka", "check kafka.bootstrap, and that the broker runs",
         partial(probe_kafka, settings.kafka, settings.cluster, processes)),
    ]  # fmt: skip
    if ASKS_THE_CLUSTER.intersection(processes) and not settings.slurm.alone:
        remedy = "check kubernetes.kubeconfig, and that the API server can be reached from here"
        probes.append(("kubernetes", remedy, partial(probe_cluster, settings, processes)))
    for name, probe in service_probes(settings, processes):
        probes.append((name, "check the address, and that this machine may reach it", probe))
    found = await asyncio.gather(*(_bounded(*one, within_s) for one in probes))
    return worst_first(finding for findings in found for finding in findings)


async def _bounded(
    where: str, remedy: str, probe: Callable[[], Awaitable[list[CheckFinding]]], within_s: float
) -> list[CheckFinding]:
    try:
        async with asyncio.timeout(within_s):
            return await probe()
    except TimeoutError:
        return [CheckFinding("unreachable", where, f"no answer within {within_s:g} s", remedy)]
    except Unreachable as error:
        return [CheckFinding("unreachable", where, str(error), remedy)]
    except ConfigError as error:
        return [
            CheckFinding(
                "unreachable", where, str(error), "run this where the process runs, or set the credentials"
            )
        ]
