"""Child processes that cannot be left behind.

A child runs in a session of its own, so that a Ctrl-C at the terminal ends the tests and not the servers
under them first; it logs to a file; and on Linux the kernel kills it when the thread that started it is gone.
That holds also when pytest itself is killed. Start children from a thread that lives as long as they shall,
usually the main one.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.testbed.waiting import until

# Runs in the child before its program: set "kill me when my parent dies", make sure it is not dead already,
# and become the program. A preexec_fn would do it in a fork of this process, which is unsafe once other
# threads run.
_TIED_TO_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""

# Below the ports that the kernel gives to outgoing connections, so that a server can come back on its own
# port.
_PORTS = range(20_000, 32_000)

_LOCKS: list[IO[str]] = []
"""Of the ports given out."""


class ChildFailed(Exception):
    """A child ended or was not ready in time; the message carries the end of its log."""


class Child:
    """One running program."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start ``command`` at once; output is appended to ``log``, ``env`` adds to this process's own."""
        self.name = name
        self.log = log
        words = [str(word) for word in command]
        if sys.platform == "linux":
            words = [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *words]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | dict(env or {}),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP holds it (Linux)."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def heeds(self, number: signal.Signals) -> bool:
        """Whether it has a handler for a signal, which would else end it at once (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) & 1 << number - 1)

    def wait_until(self, ready: Callable[[], bool], what: str = "ready", *, timeout_s: float = 120) -> None:
        """Wait until ``ready`` says so; if it dies first or is late, end it and raise ``ChildFailed``."""

        def ready_or_dead() -> bool:
            return self.exit_code is not None or ready()

        try:
            until(ready_or_dead, f"{self.name} {what}", timeout_s=timeout_s)
        except TimeoutError as late:
            self.kill()
            raise ChildFailed(f"{late}; the end of {self.log}:\n{self.tail()}") from late
        if self.exit_code is not None:
            raise ChildFailed(
                f"{self.name} ended with {self.exit_code}; the end of {self.log}:\n{self.tail()}"
            )

    def wait(self, timeout_s: float = 30) -> int:
        """Wait for its own end and return its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as late:
            raise ChildFailed(f"{self.name} still runs after {timeout_s:g} s:\n{self.tail()}") from late

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and whatever it started; nothing happens if it has ended."""
        if self.exit_code is None:  # unreaped, so the number cannot belong to a stranger
            os.killpg(self.pid, number)

    def stop(self, grace_s: float = 10) -> int:
        """End it: SIGTERM, and SIGKILL for one that does not listen; return the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it as a crash would; return the exit code."""
        self.signal(signal.SIGKILL)
        return self._process.wait()

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens, and which no other test run is given while this one lives."""
    for port in random.sample(_PORTS, k=100):
        if not _reserved(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # taken: try the next
            return port
    raise OSError("no free port found")


def _reserved(port: int) -> bool:
    """Hold the port's lock until this process ends: a server that is about to listen is not seen by looking."""
    folder = Path(tempfile.gettempdir()) / "faultline-ports"
    folder.mkdir(exist_ok=True)
    lock = (folder / str(port)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    _LOCKS.append(lock)
    return True
