"""Child processes that are never left behind, and a line of text at a time with those that take orders.

A child runs in a session of its own: a Ctrl-C at the terminal reaches the demo only, which then ends its children in
order. Its log goes to a file. It dies with this process even when this process is killed (`sandbox.emulated.parent_bound`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from streams.model.errors import FaultlineError

READY_TIMEOUT_S = 90.0
"""Two interpreters start one after the other before a child says anything: on a busy machine that takes many seconds."""


class ChildFailed(FaultlineError):
    """A child ended or did not answer; the message carries the end of its log."""


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

        One that `talks` answers `line` and `ask`; of the others standard output goes to the log too.
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
        """The next line it says.

        Raises:
            ChildFailed: when it ends instead, or says nothing for `READY_TIMEOUT_S`.
        """
        assert self._process.stdout is not None, f"{self.name} was not started with talks=True"
        try:
            raw = await asyncio.wait_for(self._process.stdout.readline(), READY_TIMEOUT_S)
        except TimeoutError as late:
            raise ChildFailed(f"{self.name} does not answer; the end of its log:\n{self.tail()}") from late
        if not raw:
            code = await self._process.wait()
            raise ChildFailed(f"{self.name} ended with {code}; the end of its log:\n{self.tail()}")
        return raw.decode().rstrip("\n")

    async def ask(self, line: str) -> str:
        """Say a line and return its answer, or raise `ChildFailed` when the answer begins with `error`."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        answer = await self.line()
        if answer.startswith("error"):
            raise ChildFailed(f"{self.name}: {line}: {answer}")
        return answer

    async def wait(self) -> int:
        """Wait for its own end; its exit code."""
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self, grace_s: float = 5.0) -> int:
        """End it: SIGTERM, and SIGKILL when it does not listen. Returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self._process.wait()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
