"""A kubelet that asks a process whether it lives, again and again, in a thread of its own."""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

import httpx

PROBE_S = 10.0
"""How long an answer may take; a kubelet gives it a second, the machine of a test may be busy."""


class Probing:
    """Asks `/live` while the context lasts, from its first answer on. `answers` counts them by status; none in time is 0."""

    def __init__(self, port: int, *, every_s: float = 0.2) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="probing", daemon=True)
        self.answers: Counter[int] = Counter()
        self._paused, self._idle = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def is_ready(self) -> bool:
        """Whether the process says that it does its work."""
        try:
            return httpx.get(f"{self._url}/ready", timeout=PROBE_S).status_code == 200
        except httpx.HTTPError:
            return False

    def pause(self) -> None:
        """Ask no more, and forget that there was an answer; returns once no question is open. `resume` goes on."""
        self._idle.clear()
        self._paused.set()
        self._idle.wait()

    def resume(self) -> None:
        """Ask again; until the first answer nobody being there does not count."""
        self._paused.clear()

    def _ask(self) -> None:
        seen = False
        with httpx.Client(base_url=self._url, timeout=PROBE_S) as client:
            while not self._over.wait(self._every_s):
                if self._paused.is_set():
                    seen = False
                    self._idle.set()
                    continue
                try:
                    status = client.get("/live").status_code
                except httpx.ConnectError:
                    status = 0
                    if not seen:
                        continue
                except httpx.HTTPError:
                    status = 0
                seen = True
                self.answers[status] += 1
