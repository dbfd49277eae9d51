"""The compose file brought up by podman-compose, in the order that its conditions ask for.

Podman-compose reads and translates the file. It leaves two things to a service manager that these tests do not have: to run
health checks, and to start a service when what it waits for is healthy or has ended well. Both are done here, by the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from tests.testbed.engine import Engine, EngineFailed
from tests.testbed.images import ROOT
from tests.testbed.waiting import until

FILE = ROOT / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
PROJECT = "faultline-composed"


class Composed:
    """One project of the compose file; `options` are podman-compose's, `environment` what the person has in theirs."""

    def __init__(self, engine: Engine, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self.engine = engine
        self._options = options
        self._environment = environment

    @classmethod
    @contextmanager
    def prepared(
        cls, engine: Engine, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> Iterator[Self]:
        """A project of which nothing is up yet; whatever is up goes when the context ends."""
        composed = cls(engine, options, environment or {})
        try:
            yield composed
        finally:
            engine.clear()

    def up(self, *services: str) -> None:
        """Bring services up, and what they wait for before them."""
        there = set(self.engine.podman("ps", "--all", "--format", "{{.Names}}").split())
        for service in services:
            if self.container(service) in there:
                continue
            for other, how in SERVICES[service].get("depends_on", {}).items():
                self.up(other)
                self._wait_for(other, how["condition"])
            self.compose("up", "--detach", "--no-build", "--no-deps", service)

    def down(self) -> None:
        """Take the project down as a person would, with its volumes."""
        self.compose("down", "--volumes")

    def compose(self, *arguments: str) -> str:
        """Run a podman-compose command on the file."""
        program = Path(sys.executable).parent / "podman-compose"
        command: list[str | Path] = ["--project-name", PROJECT, "--file", FILE, *self._options, *arguments]
        return self.engine.run(str(program), *command, cwd=ROOT, more=self._environment)

    def container(self, service: str) -> str:
        """The name that compose gives to a service's container."""
        return f"{PROJECT}_{service}_1"

    def run_in(self, service: str, *command: str) -> str:
        """Run a command in a service's container, and return what it prints."""
        return self.engine.podman("exec", self.container(service), *command)

    def is_healthy(self, service: str) -> bool:
        """What the service's health check says now; a container that has ended raises ``EngineFailed`` with its log."""
        container = self.container(service)
        if not self.engine.inspect(container)["State"]["Running"]:
            raise EngineFailed(f"{service} has ended:\n{self.engine.logs(container)}")
        try:
            self.engine.podman("healthcheck", "run", container)
        except EngineFailed:
            return False
        return True

    def wait_until_healthy(self, *services: str) -> None:
        """Wait for health checks; at most as long as the file gives them."""
        for service in services:
            check = SERVICES[service]["healthcheck"]
            patience_s = _seconds(check.get("start_period", "0s")) + check["retries"] * _seconds(
                check["interval"]
            )
            until(lambda: self.is_healthy(service), f"{service} is healthy", timeout_s=patience_s)  # noqa: B023

    def gateway(self) -> str:
        """This machine's address as the containers see it; their network must be there."""
        (network,) = json.loads(self.engine.podman("network", "inspect", f"{PROJECT}_default"))
        return str(network["subnets"][0]["gateway"])

    def _wait_for(self, service: str, condition: str) -> None:
        if condition == "service_healthy":
            self.wait_until_healthy(service)
            return
        assert condition == "service_completed_successfully", condition
        code = int(self.engine.podman("wait", self.container(service)))
        if code != 0:
            raise EngineFailed(f"{service} ended with {code}:\n{self.engine.logs(self.container(service))}")


def _seconds(written: str) -> float:
    assert written.endswith("s"), written
    return float(written.removesuffix("s"))
