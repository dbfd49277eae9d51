"""Child processes that never outlive this one, and a line protocol for those that take commands.

A child runs in a session of its own: a Ctrl-C at the terminal reaches the demo only, which then stops its children in
order. Its log goes to a file. It dies with this process even when this process is killed (`sandbox.emulated.parent_bound`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from streams.model.errors import FaultlineError

READY_TIMEOUT_S = 90.0
"""Two interpreters start one after the other before a child prints anything: many seconds on a busy machine."""


class ChildFailed(FaultlineError):
    """A child ended or did not answer; the message carries the end of its log."""


def answer(obey: Callable[[str], None], line: str) -> None:
    """Carry out a command of the line protocol and print `ok`, or `error …` when it raises ValueError. Used in the child."""
    try:
        obey(line)
    except ValueError as error:
        print(f"error {error}", flush=True)
    else:
        print("ok", flush=True)


class Child:
    """One running child. Start it from the main thread: the kernel ties it to the thread that forked it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        talks: bool = False,
    ) -> Self:
        """Start `command` with `env` as its whole environment (this process's own when None).

        One that `talks` answers `line` and `ask`; the standard output of the others goes to the log too.
        """
        tied = (sys.executable, "-m", "sandbox.emulated.parent_bound", str(os.getpid()), *command)
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *tied,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if talks else out,
                stderr=out,
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._process.returncode

    async def line(self) -> str:
        """The next line it prints.

        Raises:
            ChildFailed: when it exits instead, or prints nothing for `READY_TIMEOUT_S`.
        """
        assert self._process.stdout is not None, f"{self.name} was not started with talks=True"
        try:
            raw = await asyncio.wait_for(self._process.stdout.readline(), READY_TIMEOUT_S)
        except TimeoutError as late:
            raise ChildFailed(f"{self.name} does not answer; the end of its log:\n{self.tail()}") from late
        if not raw:
            await self._process.wait()
            raise self.failure()
        return raw.decode().rstrip("\n")

    async def ask(self, line: str) -> str:
        """Send a line and return the answer. Raises ChildFailed when the answer begins with `error`."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        answer = await self.line()
        if answer.startswith("error"):
            raise ChildFailed(f"{self.name}: {line}: {answer}")
        return answer

    async def wait(self) -> int:
        """Wait until it exits by itself; returns the exit code."""
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has exited."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self, grace_s: float = 5.0) -> int:
        """Stop it: SIGTERM, then SIGKILL after `grace_s`. Returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self._process.wait()

    def failure(self) -> ChildFailed:
        """The error that a child exited by itself."""
        return ChildFailed(f"{self.name} ended with {self.exit_code}; the end of its log:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
