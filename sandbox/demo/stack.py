"""Everything the demo runs on, started and stopped in order: broker, cluster, stand-ins, and the real processes as children.

The processes get a settings file, as in any installation; nothing in them knows that this is a demo.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from connectors.kubernetes.client import Cluster, path_of
from faultline.runtime.processes import PROCESSES
from sandbox.demo import cluster_layout, people
from sandbox.emulated import broker as embedded_broker
from sandbox.emulated import cluster as embedded_cluster
from sandbox.emulated.broker import Broker
from sandbox.emulated.child_processes import Child, ChildFailed
from sandbox.emulated.cluster import EmulatedCluster
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.slack_people import SlackPeople
from streams.config.connector_settings import KubernetesSettings
from streams.config.settings import KafkaSettings

READY_TIMEOUT_S = 120.0
PORTS = range(10_000, 20_000)
"""Below the ephemeral range, so that a port chosen now is still free when its process has started seconds later."""
CHANNEL = "C0INCIDENTS"
OWNERS_CHANNEL = "C0MLJOBS"
"""Where those who run jobs read of what is theirs alone."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What runs. `api` is a client of the API server for reading back; `settings_file` is what the processes were given.

    `console` is the address of the console.
    """

    broker: Broker
    emulated: EmulatedCluster
    api: Cluster
    slack: SlackPeople
    jira: JiraStandin
    processes: dict[str, Child]
    settings_file: Path
    console: str

    @property
    def kafka(self) -> KafkaSettings:
        """How to reach the broker."""
        return self.broker.settings

    def exited(self) -> Child | None:
        """A process that has exited by itself."""
        return next((child for child in self.processes.values() if child.exit_code is not None), None)


@asynccontextmanager
async def running(
    folder: Path, *, sections: Mapping[str, Any] | None = None, **responder: object
) -> AsyncIterator[Stack]:
    """Start all of it in `folder`; on exit stop the processes first and the broker last. `responder` changes its settings,
    `sections` are further sections of the settings.

    Raises:
        ChildFailed: when something does not start; the message carries the end of its log.
    """
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(embedded_broker.running(log=folder / "broker.log"))
        emulated = await stack.enter_async_context(embedded_cluster.running(folder))
        slack = await stack.enter_async_context(SlackPeople(channels=(CHANNEL, OWNERS_CHANNEL)))
        people.move_in(slack)
        jira = await stack.enter_async_context(JiraStandin())
        api = await stack.enter_async_context(
            await Cluster.connect(KubernetesSettings(kubeconfig=emulated.kubeconfig))
        )
        await populate(api)
        (folder / "topology.yaml").write_text(cluster_layout.topology())
        settings_file = folder / "faultline.yaml"
        *ports, pages = _free_ports(len(PROCESSES) + 1)
        settings = settings_for(broker.settings, emulated, folder / "topology.yaml", slack, jira, pages)
        settings["responder"] |= responder
        settings |= sections or {}
        settings_file.write_text(yaml.safe_dump(settings, sort_keys=False))
        processes: dict[str, Child] = {}
        stack.push_async_callback(_stop_all, processes)
        for name, port in zip(PROCESSES, ports, strict=True):
            processes[name] = await _start(name, port, settings_file, folder)
        await asyncio.gather(
            *(_ready(processes[name], port) for name, port in zip(PROCESSES, ports, strict=True))
        )
        console = f"http://127.0.0.1:{pages}/"
        yield Stack(broker, emulated, api, slack, jira, processes, settings_file, console)


async def populate(api: Cluster) -> None:
    """Register the nodes and submit the jobs, one after the other so that each takes its nodes before the next."""
    for name in cluster_layout.node_names():
        await api.create(path_of("v1", "nodes"), cluster_layout.node(name))
        await api.create(path_of("v1", "pods", namespace="monitoring"), cluster_layout.exporter_pod(name))
    for path, job in cluster_layout.jobs():
        await api.create(path, job)
        await _until_running(api, job["metadata"]["namespace"])


async def _until_running(api: Cluster, namespace: str) -> None:
    path = path_of("v1", "pods", namespace=namespace)
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            pods = await api.list_all(path)
            if len(pods) == cluster_layout.PODS and all(
                pod["status"].get("phase") == "Running" for pod in pods
            ):
                return
            await asyncio.sleep(0.1)


def settings_for(
    kafka: KafkaSettings,
    emulated: EmulatedCluster,
    topology: Path,
    slack: SlackPeople,
    jira: JiraStandin,
    pages: int,
) -> dict[str, Any]:
    """The settings file. Waits are shorter than an installation's: the demo's jobs time out after two seconds."""
    return {
        "cluster": cluster_layout.CLUSTER,
        "log_format": "json",
        "kafka": kafka.model_dump(mode="json", exclude_defaults=True),
        "inventory": {"topology_file": str(topology)},
        "correlator": {"tick_s": 0.5, "hang_settle_s": 3.0, "application_settle_s": 3.0},
        "responder": {
            "mode": "auto",
            "lease_s": 6.0,
            "approvers": [f"slack:{people.ON_CALL}"],
            "blast_radius": {"max_nodes": 4, "max_share": 0.25, "max_per_window": 20},
        },
        "kubernetes": {"kubeconfig": str(emulated.kubeconfig)},
        "slack": {
            "base_url": slack.base_url,
            "token": slack.token,
            "app_token": slack.app_token,
            "channel": CHANNEL,
            "routes": [{"channel": OWNERS_CHANNEL, "audience": "owner"}],
            "debounce_s": 0.5,
            "posts_per_s": 4.0,
            "calls_per_minute": 300.0,
        },
        "gateway": {"port": pages},
        "console": {"public_url": f"http://127.0.0.1:{pages}"},
        "jira": {"base_url": jira.url, "user": jira.user, "token": jira.token, "project": jira.project},
    }


async def _start(name: str, port: int, settings_file: Path, folder: Path) -> Child:
    mine = {key: value for key, value in os.environ.items() if not key.startswith("FAULTLINE_")}
    env = mine | {"FAULTLINE_CONFIG": str(settings_file), "FAULTLINE_HTTP_PORT": str(port)}
    command = (sys.executable, "-m", "faultline", "run", name)
    return await Child.start(name, command, log=folder / f"{name}.log", env=env)


async def _ready(child: Child, port: int) -> None:
    """Wait until the process reports ready."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_TIMEOUT_S
    async with aiohttp.ClientSession() as http:
        while True:
            if child.exit_code is not None:
                raise child.failure()
            if loop.time() > deadline:
                raise ChildFailed(f"{child.name} is not ready after {READY_TIMEOUT_S:g} s:\n{child.tail()}")
            try:
                async with http.get(f"http://127.0.0.1:{port}/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass  # its port is not open yet
            await asyncio.sleep(0.1)


async def _stop_all(processes: dict[str, Child]) -> None:
    await asyncio.gather(*(child.stop(grace_s=8.0) for child in processes.values()))


def _free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    return list(islice(filter(_is_free, random.sample(PORTS, k=len(PORTS))), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:  # taken
            return False
    return True
