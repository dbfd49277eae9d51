"""One node, its pods and its BMC: a cluster in miniature that keeps versions as the API server does, and a machine that boots."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from connectors.base import Effect, NoLease, Outcome
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import cordon
from connectors.kubernetes.errors import Conflict, NotFound
from sandbox.fake_services.redfish import UUID, RedfishStandin
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import parse_rfc3339
from streams.model.run import Target
from tests.connectors.objects import effect as effect_on
from tests.connectors.objects import made, merged, node

NODE = Target("Node", "gpu-07", uid="uid-gpu-07")
BEGAN = parse_rfc3339("2026-03-01T12:00:00Z")


@dataclass
class Miniature:
    """As much of `Cluster` as work on a node needs."""

    node: Object | None
    pods: list[Object] = field(default_factory=list)
    patches: list[Object] = field(default_factory=list)
    before_patch: Callable[[], None] = lambda: None

    async def get(self, path: str) -> Object:
        if self.node is None or not path.endswith(f"/nodes/{self.node['metadata']['name']}"):
            raise NotFound(path)
        return copy.deepcopy(self.node)

    async def list_all(self, path: str, query: dict[str, str] | None = None) -> list[Object]:
        assert path.endswith("/pods")
        assert query == {"fieldSelector": "spec.nodeName=gpu-07"}
        return copy.deepcopy(self.pods)

    async def patch(self, path: str, patch: Object, *, strict: bool = False) -> Object:
        self.before_patch()
        assert self.node is not None
        lock, there = patch["metadata"], self.node["metadata"]
        if (lock["resourceVersion"], lock["uid"]) != (there["resourceVersion"], there["uid"]):
            raise Conflict("changed")
        self.patches.append(patch)
        self.node = merged(self.node, patch)
        self.node["metadata"]["resourceVersion"] = str(int(there["resourceVersion"]) + 1)
        return copy.deepcopy(self.node)

    async def close(self) -> None:
        pass


def closed_node(boot: str = "boot-1", *, ready: bool = True, number: int = 1) -> Object:
    """A node that an incident has closed."""
    plain = node("gpu-07", ready=ready)
    plain["status"]["nodeInfo"] = {"bootID": boot, "systemUUID": UUID}
    return made(plain, cordon(plain, effect_on("cordon_node", NODE, number)))


class Machine:
    """The node, its BMC and the time. `boots` is how often it has booted."""

    def __init__(self, bmc: RedfishStandin, folder: Path, **settings: Any) -> None:
        self.bmc = bmc
        self.cluster = Miniature(closed_node())
        self.now = BEGAN
        self.boots = 1
        self.folder = folder
        for name, text in (
            ("user", bmc.user),
            ("password", bmc.password),
            ("bmcs.yaml", f"gpu-07: {bmc.url}"),
        ):
            (folder / name).write_text(f"{text}\n")
        login = {"user_file": f"{folder}/user", "password_file": f"{folder}/password"}
        given = {"addresses_file": folder / "bmcs.yaml", **login, **settings}
        self.settings = NodeWorkSettings.model_validate({"redfish": given})
        bmc.powers = self.goes_down

    def goes_down(self) -> None:
        """The machine starts anew: its kubelet is gone."""
        assert self.cluster.node is not None
        self.cluster.node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]

    def comes_up(self) -> None:
        """Its kubelet is back, on a new boot."""
        self.boots += 1
        assert self.cluster.node is not None
        self.cluster.node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        self.cluster.node["status"]["nodeInfo"]["bootID"] = f"boot-{self.boots}"

    def clock(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Played:
    """An effect as the engine plays it: the result of each call is the `prior` of the next one."""

    connector: Any
    effect: Effect

    async def apply(self) -> Outcome:
        return self._kept(await self.connector.apply(self.effect, NoLease()))

    async def lookup(self) -> Outcome:
        return self._kept(await self.connector.lookup(self.effect))

    def _kept(self, outcome: Outcome) -> Outcome:
        result = getattr(outcome, "result", None)
        if result:
            names = {name: getattr(self.effect, name) for name in self.effect.__slots__}
            self.effect = Effect(**{**names, "prior": {**self.effect.prior, **result}})
        return outcome


def played(connector: Any, action: str, **params: Any) -> Played:
    """The first call of an effect of incident 1."""
    about = effect_on(action, NODE)
    return Played(connector, Effect(**{n: getattr(about, n) for n in about.__slots__} | {"params": params}))
