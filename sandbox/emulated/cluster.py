"""A Kubernetes cluster for a machine that has none: API server, scheduler, job controllers and kubelets in one child process.

    async with running(folder) as cluster:
        ... KubernetesSettings(kubeconfig=cluster.kubeconfig) ...

It starts empty: nodes and jobs are created through the API. The child prints
`{"url": …, "kubeconfig": …}` once; then each line on its standard input is answered with `ok` or `error …`:
`kubelet NODE silent|alive`, `gpus NODE COUNT` (what its device plugin still offers), `stop`. It exits at the end of its
standard input. What it leaves out is listed at `api_server.ApiServer` and in `controllers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandbox.emulated.child_processes import Child, answer
from sandbox.emulated.controllers import Controllers
from sandbox.emulated.store import Store

LOOK_EVERY_S = 0.1
"""How often controllers run when nothing has changed, so that delays end."""


@dataclass(frozen=True, slots=True)
class EmulatedCluster:
    """A running cluster."""

    child: Child
    url: str
    kubeconfig: Path

    async def silence(self, node: str) -> None:
        """The kubelet of a node reports and does nothing any more."""
        await self.child.ask(f"kubelet {node} silent")

    async def revive(self, node: str) -> None:
        """The kubelet of a node is back."""
        await self.child.ask(f"kubelet {node} alive")

    async def offer_gpus(self, node: str, count: int) -> None:
        """The device plugin of a node offers so many GPUs from now on."""
        await self.child.ask(f"gpus {node} {count}")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[EmulatedCluster]:
    """A cluster for as long as the context lasts; kubeconfig and log are written into `folder`."""
    command = (sys.executable, "-m", "sandbox.emulated.cluster", str(folder))
    child = await Child.start("cluster", command, log=folder / "cluster.log", talks=True)
    try:
        ready = json.loads(await child.line())
        yield EmulatedCluster(child, ready["url"], Path(ready["kubeconfig"]))
    finally:
        await child.stop()


def kubeconfig_for(url: str) -> str:
    """A kubeconfig that any client understands."""
    name = "faultline-demo"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


async def control(controllers: Controllers) -> None:
    """Run the controllers whenever something has changed, and every `LOOK_EVERY_S`."""
    while True:
        before = controllers.store.version
        controllers.step()
        if controllers.store.version == before:
            await controllers.store.changed_after(before, LOOK_EVERY_S)
        else:
            await asyncio.sleep(0)  # requests come first


def obey(controllers: Controllers, line: str) -> None:
    """Carry out one command of the line protocol.

    Raises:
        ValueError: when it is unknown.
    """
    match line.split():
        case ["kubelet", node, "silent"]:
            controllers.silent.add(node)
        case ["kubelet", node, "alive"]:
            controllers.silent.discard(node)
        case ["gpus", node, count]:
            controllers.gpus[node] = int(count)
        case _:
            raise ValueError("unknown command")


async def _serve(folder: Path, port: int) -> None:
    from sandbox.emulated.api_server import serving  # importing an HTTP server is for the child alone

    controllers = Controllers(Store())
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    async with serving(controllers.store, port=port) as url, asyncio.TaskGroup() as group:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(kubeconfig_for(url))
        controlling = group.create_task(control(controllers))
        print(json.dumps({"url": url, "kubeconfig": str(kubeconfig)}), flush=True)
        while (raw := await commands.readline()) and (line := raw.decode().strip()) != "stop":
            answer(lambda command: obey(controllers, command), line)
        controlling.cancel()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop or until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.emulated.cluster")
    parser.add_argument("folder", type=Path, help="where to write the kubeconfig")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    asyncio.run(_serve(given.folder, given.port))


if __name__ == "__main__":
    main()
