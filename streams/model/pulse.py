"""Liveness of a process, by the progress of its loops.

An open port proves nothing, and a Kafka client can stay in its group while the work behind it hangs. So a separate thread
answers the probe, by how long ago each loop last made progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

MAIN = "main loop"

WAITS_FOR = "waits_for"
KAFKA = "Kafka's answer"
PARTITIONS = "its group's partitions"
STATE = "its state from Kafka"

_LAG_S = 2.0
WAIT_S = 300.0
"""How long Kafka may keep a process waiting for one step: a coordinator loads after a restart, members begin one by one.
Joining a group took 6 to 16 s on a busy machine, and 57 s with a broker that got a hundredth of its time."""


class Pulse:
    """Heartbeats of a process's main loop, idle iterations included, and of its other loops, with counts for the log.

    Safe to read from another thread.
    """

    def __init__(self, *, silence_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence_s = silence_s
        self._clock = clock
        self._last: dict[str, float] = {MAIN: clock()}
        self._ready = False
        self._counts: dict[str, int] = {}
        self._state: dict[str, object] = {}
        self.lag: Callable[[], Awaitable[int | None]] | None = None
        """Returns how many records are still to be read; None while that is not known."""
        self.stuck: Callable[[], str] = str
        """Returns which partition is stuck, and for how long; empty while none is. Called from another thread."""

    def beat(self, part: str = MAIN) -> None:
        """Record progress: an iteration of the loop, or part of a long one."""
        self._last[part] = self._clock()

    @contextmanager
    def part(self, name: str) -> Iterator[Callable[[], None]]:
        """Watch another loop while it runs; call what this yields on each of its iterations.

        When it stalls the process is not alive, even if the main loop goes on. Names must be unique.
        """
        self.beat(name)
        try:
            yield lambda: self.beat(name)
        finally:
            self._last.pop(name, None)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Give the main loop `WAIT_S` for one step that Kafka has to end: `what` is `KAFKA`, `PARTITIONS` or `STATE`.

        It has nothing to work on meanwhile, and a restart helps nobody: every member of a group would wait anew. Call `beat` for
        each part of the step that is done. Steps cannot be nested.
        """
        self.beat()
        self.state(WAITS_FOR, what)
        try:
            yield
        finally:
            self.beat()  # first, or a probe in between would find a silence that is too long without the step
            self.state(WAITS_FOR, None)

    def ready(self, state: bool = True) -> None:
        """Report whether the process is ready: it has its partitions and has restored its state."""
        self._ready = state
        self.beat()

    def count(self, what: str, more: int = 1) -> None:
        """Count something for the next progress line in the log."""
        self._counts[what] = self._counts.get(what, 0) + more

    async def report(self) -> dict[str, object]:
        """Counts since the last report, the lag, and the states."""
        try:
            async with asyncio.timeout(_LAG_S):
                lag = await self.lag() if self.lag is not None else None
        except TimeoutError:
            lag = None
        behind = {} if lag is None else {"lag": lag}
        # A name that was counted once stays, with 0: a line that lacks it would read as "not counted".
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return {**counts, **behind, **self._state}

    def state(self, what: str, value: object) -> None:
        """Set a named state (JSON); None or an empty value clears it."""
        self._state.pop(what, None)
        if value not in (None, [], "", {}):
            self._state[what] = value

    @property
    def states(self) -> dict[str, object]:
        """The named states, for probes and the log."""
        return dict(self._state)

    @property
    def silences(self) -> dict[str, float]:
        """For each loop the seconds since it last made progress."""
        now = self._clock()
        return {part: now - at for part, at in list(self._last.items())}

    @property
    def stalled(self) -> str:
        """What does not move on, and for how long: a loop without progress for more than `silence_s` seconds, `WAIT_S` for the
        main one while it waits, or what `stuck` tells; empty while there is nothing."""
        # Asked before the silences are: where it ends in between there was a beat.
        waits_for = self._state.get(WAITS_FOR)
        silent = self._silent(WAIT_S if waits_for else self._silence_s)
        if silent is None:
            return self.stuck()
        part, silent_s = silent
        why = f", waiting for {waits_for}" if waits_for and part == MAIN else ""
        return f"{part}: no progress for {silent_s:.0f} s{why}"

    def _silent(self, main_may_s: float) -> tuple[str, float] | None:
        """The loop that has been silent longest of those that have been for too long, and for how many seconds."""
        late = [
            (silent_s, part)
            for part, silent_s in self.silences.items()
            if silent_s > (main_may_s if part == MAIN else self._silence_s)
        ]
        if not late:
            return None
        silent_s, part = max(late)
        return part, silent_s

    @property
    def is_alive(self) -> bool:
        """False while any loop is stalled."""
        return not self.stalled

    @property
    def is_ready(self) -> bool:
        """True while the process is alive and has reported that it is ready. One that waits for long is alive, and not ready."""
        return self._ready and self._silent(self._silence_s) is None and self.is_alive
