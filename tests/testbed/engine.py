"""A container engine for the tests: podman with runc, its storage in the testbed's folder and nothing of it elsewhere.

No daemon runs. Containers that are left when the process that held the engine is gone, however it ended, are removed::

    with Engine.held() as engine:
        engine.podman("run", "--rm", "faultline:0.1.0", "--help")
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.testbed import parts

_ENOUGH = 16_384
"""Open files and processes that a container may have."""


class EngineFailed(Exception):
    """A command of the engine ended with an error; the message is what it said."""


class Engine:
    """Podman, buildah and what speaks to them, with a storage and a configuration of the testbed's own."""

    def __init__(self) -> None:
        self.folder = parts.part("images").folder
        # Sockets lie here, and the path of one may not be longer than about a hundred characters.
        self._state = Path("/run") / f"faultline-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    @classmethod
    @contextmanager
    def held(cls) -> Iterator[Engine]:
        """Hold the engine alone: names of images and published ports are one for all who share a testbed.

        A second test run waits. Nothing of an earlier run is there, and nothing stays when the context ends.
        """
        engine = cls()
        engine.configure()
        with (engine.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            engine.clear()
            undertaker = engine._undertaker(lock)
            try:
                yield engine
            finally:
                assert undertaker.stdin is not None
                undertaker.stdin.close()
                undertaker.wait()

    def configure(self) -> None:
        """Write the engine's settings; images that are there stay."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containers.conf").write_text(
            "[containers]\n"
            # The engine's own are higher than a process without the right to raise its limits may set.
            f"default_ulimits = [{_limit('nofile', resource.RLIMIT_NOFILE)}, {_limit('nproc', resource.RLIMIT_NPROC)}]\n"
            "[engine]\n"
            'cgroup_manager = "cgroupfs"\n'  # no systemd is asked for
            'runtime = "runc"\n'  # crun refuses machines with both kinds of control groups
            'events_logger = "file"\n'
            f'tmp_dir = "{self._state}/libpod"\n'
            "[network]\n"
            'network_backend = "netavark"\n'  # containers find each other by name
        )
        (self.folder / "storage.conf").write_text(
            "[storage]\n"
            'driver = "overlay"\n'
            f'graphroot = "{self.folder}/storage"\n'
            f'runroot = "{self._state}/storage"\n'
            "[storage.options.overlay]\n"
            'skip_mount_home = "true"\n'  # a folder that is a mount point cannot be removed
        )

    @property
    def settings(self) -> dict[str, str]:
        """What a program needs in its environment to use this engine and no other."""
        return {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def podman(self, *arguments: str | Path, stdin: str | None = None) -> str:
        """Run a podman command and return its output.

        Raises:
            EngineFailed: with what it said.
        """
        return self.run("podman", *arguments, stdin=stdin)

    def run(
        self,
        program: str,
        *arguments: str | Path,
        stdin: str | None = None,
        cwd: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run any program on this engine, with `more` in its environment, and return its output.

        Raises:
            EngineFailed: with what it said.
        """
        command = [program, *map(str, arguments)]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=os.environ | self.settings | dict(more or {}),
        )
        if done.returncode != 0:
            said = f"{done.stdout}{done.stderr}".strip()
            raise EngineFailed(f"{' '.join(command)} ended with {done.returncode}: {said}")
        return done.stdout

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        found: dict[str, Any] = json.loads(self.podman("container", "inspect", container))[0]
        return found

    def logs(self, container: str) -> str:
        """What a container has printed."""
        command = ["podman", "logs", container]
        shown = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | self.settings,
            check=False,
        )
        return shown.stdout

    def has_image(self, name: str, label: str, value: str) -> bool:
        """Whether an image of this name is there and carries this label."""
        query = (
            "image",
            "ls",
            "--quiet",
            "--filter",
            f"reference={name}",
            "--filter",
            f"label={label}={value}",
        )
        return bool(self.podman(*query).strip())

    def left(self) -> list[str]:
        """Containers, networks and volumes that are there besides the network that the engine always has."""
        containers = self.podman("ps", "--all", "--format", "container {{.Names}}")
        networks = self.podman("network", "ls", "--format", "network {{.Name}}")
        volumes = self.podman("volume", "ls", "--format", "volume {{.Name}}")
        return [x for x in (containers + networks + volumes).splitlines() if x != "network podman"]

    def clear(self) -> None:
        """Remove every container, network and volume of this engine, and no image."""
        self.podman("rm", "--all", "--force", "--time", "0")
        self.podman("network", "prune", "--force")
        self.podman("volume", "prune", "--force")

    def _undertaker(self, lock: IO[str]) -> subprocess.Popen[bytes]:
        """A process that clears up once this one is gone. Until it has, it holds the lock."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.testbed.engine"],
            stdin=subprocess.PIPE,
            env=os.environ | {"TESTBED_HOME": str(parts.home())},
            cwd=Path(__file__).parents[2],
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )


def _limit(name: str, which: int) -> str:
    _, hard = resource.getrlimit(which)
    number = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    return f'"{name}={number}:{number}"'


if __name__ == "__main__":
    sys.stdin.read()
    Engine().clear()
