"""Responders by fork: everything is imported once, and a new life begins within milliseconds.

python -m tests.crash_matrix.process_pool

It reads lines of JSON (`{"name", "log", "life"}`) and starts a process for each. It writes a line when one has begun
(`{"name", "pid"}`) and when one has ended (with `code`, negative for a signal). When its input ends, so do all of them.
`Nursery` is its client.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

from tests.crash_matrix.killable_responder import Life, live

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


class Nursery:
    """Starts responders and knows which of them live. Build it with `running`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pids: dict[str, int] = {}
        self._born: dict[str, asyncio.Future[int]] = {}
        self._gone: dict[str, asyncio.Future[int]] = {}

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """The process that forks; with the block end all that it has started."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.crash_matrix.process_pool",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        nursery = cls(process)
        reading = asyncio.create_task(nursery._read(), name="the nursery's news")
        try:
            yield nursery
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
            await asyncio.gather(reading, return_exceptions=True)

    async def start(self, name: str, life: Life, log: Path) -> int:
        """Begin a life and return its process id; only one of a name lives at a time."""
        assert self._process.stdin is not None
        assert name not in self._gone or self._gone[name].done(), f"{name} lives"
        loop = asyncio.get_running_loop()
        self._born[name], self._gone[name] = loop.create_future(), loop.create_future()
        order = {"name": name, "log": str(log), "life": life.plain()}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return await asyncio.shield(self._born[name])

    async def ended(self, name: str) -> int:
        """Wait for the end of a life and return its exit code."""
        return await asyncio.shield(self._gone[name])

    def lives(self, name: str) -> bool:
        """Whether it has begun and not ended."""
        return name in self._gone and not self._gone[name].done()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one that lives; nothing happens to one that has ended."""
        if self.lives(name) and self._born[name].done():
            os.kill(self._pids[name], number)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            news = json.loads(line)
            if "code" in news:
                self._gone[news["name"]].set_result(news["code"])
            else:
                self._pids[news["name"]] = news["pid"]
                self._born[news["name"]].set_result(news["pid"])
        for future in (*self._born.values(), *self._gone.values()):
            if not future.done():
                future.set_exception(ConnectionError("the nursery has ended"))
                future.exception()


def main() -> None:
    """Fork until the input ends. One thread, or a fork would not be safe."""
    gc.freeze()
    children: dict[int, str] = {}
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    waiting.register(woken, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in waiting.select():
            chunk = os.read(key.fd, 65536)
            if key.fd == woken:
                _reap(children)
                continue
            if not chunk:
                _end(children)
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = _fork(order)
                children[pid] = order["name"]
                _tell({"name": order["name"], "pid": pid})


def _fork(order: dict[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(order, parent)
    return pid


def _child(order: dict[str, Any], parent: int) -> NoReturn:
    """The whole life of a forked process; it never returns into the nursery's loop."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for there, here in ((null, 0), (log, 1), (log, 2)):
            os.dup2(there, here)
        code = asyncio.run(_until_terminated(Life(**order["life"])))
    finally:
        if (error := sys.exc_info()[1]) is not None:
            traceback.print_exception(error)
        sys.stderr.flush()
        os._exit(code)


async def _until_terminated(life: Life) -> int:
    """End in order on SIGTERM, as `faultline run` does."""
    task = asyncio.ensure_future(live(life))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return 0
    return 1


def _reap(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _tell({"name": children.pop(pid), "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _end(children: dict[int, str]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


def _tell(news: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
