"""How a process shows that it moves on: the only honest answer to a liveness probe.

An open port proves nothing, and a Kafka client can stay in its group while the work behind it hangs. So the probe is answered
beside the work, by a thread of its own, and what it answers depends on how long ago the work last got somewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

MAIN = "main loop"

_LAG_S = 2.0


class Pulse:
    """Beaten by a process's main loop on every turn, idle turns included, and by everything else that has to move on.

    Safe to ask from another thread.
    """

    def __init__(self, *, silence_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_s = silence_s
        self._clock = clock
        self._last: dict[str, float] = {MAIN: clock()}
        self._ready = False
        self._counts: dict[str, int] = {}
        self._state: dict[str, object] = {}
        self.lag: Callable[[], Awaitable[int | None]] | None = None
        """How many records are still to be read, where the process can tell; None while it cannot."""

    def beat(self, part: str = MAIN) -> None:
        """One more turn of the loop, or one more piece of long work done in a turn."""
        self._last[part] = self._clock()

    @contextmanager
    def part(self, name: str) -> Iterator[Callable[[], None]]:
        """A loop beside the main one, for as long as it runs; call what this yields on every turn of it.

        When it stands still the process is not alive, however well the main loop goes on. Give each its own name.
        """
        self.beat(name)
        try:
            yield lambda: self.beat(name)
        finally:
            self._last.pop(name, None)

    def ready(self, state: bool = True) -> None:
        """Say whether the process does its work now: it has its partitions and has read its state back."""
        self._ready = state
        self.beat()

    def count(self, what: str, more: int = 1) -> None:
        """Count something done, for the next line of the log that says how it goes."""
        self._counts[what] = self._counts.get(what, 0) + more

    async def report(self) -> dict[str, object]:
        """What was counted since the last report, how far behind it is, and how things stand."""
        try:
            async with asyncio.timeout(_LAG_S):
                lag = await self.lag() if self.lag is not None else None
        except TimeoutError:
            lag = None
        behind = {} if lag is None else {"lag": lag}
        return {**self._counted(), **behind, **self._state}

    def _counted(self) -> dict[str, int]:
        """What was counted since this was asked last; what was counted once is named for ever, with 0."""
        found, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return found

    def state(self, what: str, value: object) -> None:
        """Say how something stands (JSON); None or an empty value takes it back."""
        self._state.pop(what, None)
        if value not in (None, [], "", {}):
            self._state[what] = value

    @property
    def states(self) -> dict[str, object]:
        """How things stand, for probes and for the log."""
        return dict(self._state)

    @property
    def stalled(self) -> str:
        """What has stood still for more than `silence_s` seconds, and for how long; empty while everything moves on."""
        now = self._clock()
        silent = [(now - at, part) for part, at in list(self._last.items())]
        longest, part = max(silent)
        return f"{part}: no progress for {longest:.0f} s" if longest > self._silence_s else ""

    @property
    def is_alive(self) -> bool:
        """False once anything has stood still for too long."""
        return not self.stalled

    @property
    def is_ready(self) -> bool:
        """True while the process is alive and has said that it is ready."""
        return self._ready and self.is_alive
