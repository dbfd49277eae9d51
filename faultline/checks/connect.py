"""Asks broker, API server and services at the same time, each for a bounded time, whatever hangs.

A probe that does not end by itself is left behind: cancelling it may hang as well, where a client waits for a frozen broker
before it closes. So all probes run in an event loop on a thread of its own, which nobody waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic

from faultline.checks.broker_probe import probe_broker
from faultline.checks.cluster_probe import probe_cluster
from faultline.checks.controls_probe import probe_controls, probe_dead_letters
from faultline.checks.expiry_probe import probe_expiry
from faultline.checks.finding import CheckFinding, worst_first
from faultline.checks.group_probe import probe_groups
from faultline.checks.http_probe import service_probes
from faultline.checks.kafka_probe import probe_kafka
from faultline.checks.pods_probe import probe_pods
from faultline.checks.shipper_probe import probe_shippers
from faultline.checks.teams_probe import probe_teams
from faultline.runtime.settings import Settings
from streams.model.errors import ConfigError, Denied, FaultlineError, Unreachable

PROBE_S = 12.0
"""How long one probe may take. All run at the same time."""

LONGEST_S = 25.0
"""How long all of them may take together. With the start of the program it stays within 30 s."""

ASKS_THE_CLUSTER = frozenset({"inventory", "responder"})


@dataclass(frozen=True, slots=True)
class Probe:
    """One question: what to do where nobody answers, and the command for findings that name none."""

    name: str
    remedy: str
    command: str
    ask: Callable[[], Awaitable[list[CheckFinding]]]


def probes(settings: Settings, processes: tuple[str, ...]) -> list[Probe]:
    """Every probe for these processes."""
    broker, kafka = "check kafka.bootstrap, and that the broker runs", settings.kafka
    look = "faultline topics diff"
    found = [
        Probe("kafka", broker, look, partial(probe_kafka, kafka, settings.cluster, processes)),
        Probe("broker", broker, look, partial(probe_broker, kafka, settings.cluster)),
        Probe("groups", broker, look, partial(probe_groups, settings, processes)),
        Probe("shippers", broker, look, partial(probe_shippers, kafka)),
        Probe("controls", broker, "faultline guard", partial(probe_controls, settings)),
        Probe("dead-letters", broker, "faultline dead-letters groups", partial(probe_dead_letters, kafka)),
        Probe("expiry", "make it readable", "faultline config check", partial(probe_expiry, settings)),
    ]
    if settings.responder.tenants and "responder" in processes:
        found.append(Probe("teams", broker, "faultline jobs", partial(probe_teams, settings)))
    if ASKS_THE_CLUSTER.intersection(processes) and not settings.slurm.alone:
        remedy = "check kubernetes.kubeconfig, and that the API server can be reached from here"
        rights = "kubectl auth can-i --list"
        found += [
            Probe("kubernetes", remedy, rights, partial(probe_cluster, settings, processes)),
            Probe("pods", remedy, "kubectl -n faultline get pods", partial(probe_pods, settings)),
        ]
    remedy = "check the address, and that this machine may reach it"
    for name, probe in service_probes(settings, processes):
        found.append(Probe(name, remedy, f"faultline doctor --only {name}", probe))
    return found


def connected(
    settings: Settings,
    processes: tuple[str, ...],
    *,
    only: tuple[str, ...] = (),
    within_s: float = PROBE_S,
    longest_s: float = LONGEST_S,
) -> list[CheckFinding]:
    """Every finding of every probe (of those named in `only`, where there are any), the worst first. Changes nothing anywhere.

    Returns within `longest_s` seconds.
    """
    asked = {one.name: one for one in probes(settings, processes) if not only or one.name in only}
    answers: SimpleQueue[tuple[str, list[CheckFinding]]] = SimpleQueue()

    async def ask(probe: Probe) -> None:
        answers.put((probe.name, await _bounded(probe, within_s)))

    async def all_of_them() -> None:
        await asyncio.gather(*(ask(probe) for probe in asked.values()))

    threading.Thread(target=asyncio.run, args=(all_of_them(),), name="probes", daemon=True).start()
    found: list[CheckFinding] = []
    left, deadline = dict(asked), monotonic() + longest_s
    while left:
        try:
            name, findings = answers.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            break
        probe = left.pop(name)
        found += [one if one.command else replace(one, command=probe.command) for one in findings]
    found += [
        CheckFinding("unreachable", one.name, f"no answer within {longest_s:g} s", one.remedy, one.command)
        for one in left.values()
    ]
    return worst_first(found)


async def _bounded(probe: Probe, within_s: float) -> list[CheckFinding]:
    """The findings of one probe. One that fails is a finding, too: it must not hide what the others find."""
    try:
        async with asyncio.timeout(within_s):
            return await probe.ask()
    except TimeoutError:
        return [CheckFinding("unreachable", probe.name, f"no answer within {within_s:g} s", probe.remedy)]
    except Denied as error:
        return [
            CheckFinding("fault", probe.name, str(error), "set the user and the password that Kafka knows")
        ]
    except Unreachable as error:
        return [CheckFinding("unreachable", probe.name, str(error), probe.remedy)]
    except ConfigError as error:
        remedy = "run this where the process runs, or set the credentials"
        return [CheckFinding("unreachable", probe.name, str(error), remedy)]
    except FaultlineError as error:
        return [CheckFinding("unreachable", probe.name, str(error), probe.remedy)]
