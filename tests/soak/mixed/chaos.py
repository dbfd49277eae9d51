"""What happens to an installation and to what it depends on, one blow after the other, until it is over.

The blows come from a deck that is shuffled anew when it is empty: which comes when is chance (a seed), that each comes is not.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.fake_services.server import InjectedFault, Standin
from tests.soak.mixed.site import LABELS, Site, start_again
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

FROZEN_S = 15.0
"""Past the session (6 s) and the lease (6 s) of the soak's settings."""
SINK_S = 20.0
CLOCK_S = 20.0
JUMPS_S = (-120, -30, 30, 120)
_SINKS = ("slack", "jira", "pagerduty", "alertmanager")
PAUSE_S = 8.0
FULL_S = 8.0

DECK = (
    *("kill",) * 8,
    *("freeze",) * 3,
    *("clock",) * 3,
    *("terminate",) * 2,
    *("broker killed", "broker restarted", "broker frozen", "API server killed", "API server frozen"),
    *("sink: 5xx", "sink: 429", "sink: hangs", "sink: answers lost", "sink: down"),
    "disk full",
)


@dataclass(slots=True)
class Told:
    """What was done when, in s since the start, and how often; what could not be done and why."""

    blows: list[tuple[float, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    not_run: dict[str, str] = field(default_factory=dict)


class Chaos:
    """One run of it.

    Args:
        disk: The mount that holds the broker's data, small enough to be filled; None: the disk is never full.
        spared: Labels that are not killed any more once `calm_kills` is set: their memory is being measured.
    """

    def __init__(
        self,
        site: Site,
        kafka: Kafka,
        control_plane: ControlPlane,
        *,
        seed: int,
        every_s: float,
        disk: Path | None,
        spared: Sequence[str],
    ) -> None:
        self._site, self._kafka, self._plane = site, kafka, control_plane
        self._r = random.Random(seed)
        self._every_s = every_s
        self._disk = disk
        self._spared = spared
        self._began = time.monotonic()
        self._deck: list[str] = []
        self._asides: set[asyncio.Task[None]] = set()
        self.calm_kills = False
        self.told = Told()
        if disk is None:
            self.told.not_run["disk full"] = "no small file system could be mounted (Linux, root)"
        if not site.has_clocks:
            self.told.not_run["clock"] = "libfaketime is not installed"

    async def run(self, over: asyncio.Event) -> None:
        """Hit until `over` is set, then let everything go on."""
        while not over.is_set():
            await _pause(over, self._r.uniform(0.5, 1.5) * self._every_s)
            if over.is_set():
                break
            await self._hit(self._next())
        if self._asides:
            await asyncio.wait(self._asides)
        for task in self._asides:
            task.result()
        await self._mend()

    def _next(self) -> str:
        if not self._deck:
            self._deck = [blow for blow in DECK if blow not in self.told.not_run]
            self._r.shuffle(self._deck)
        return self._deck.pop()

    async def _hit(self, blow: str) -> None:
        what, act = self._acts(blow)
        self.told.blows.append((round(time.monotonic() - self._began, 1), what))
        self.told.counts[blow] += 1
        if blow.startswith(("sink", "clock", "freeze")):
            # Beside what comes next: two things wrong at once are the common case.
            self._asides.add(asyncio.create_task(_as_none(act)))
        else:
            await act()

    def _acts(self, blow: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        match blow:
            case "kill" | "terminate":
                label = self._label(mortal=True)
                hit = self._site.kill if blow == "kill" else self._site.terminate
                return f"{blow} {label}", lambda: asyncio.to_thread(hit, label)
            case "freeze":
                label = self._label()
                return f"freeze {label}", lambda: self._freeze(label)
            case "clock":
                label, jump = self._label(), self._r.choice(JUMPS_S)
                return f"clock of {label} {jump:+d} s", lambda: self._jump(label, jump)
            case "broker killed":
                return blow, self._kill_broker
            case "broker restarted":
                return blow, lambda: asyncio.to_thread(self._kafka.restart)
            case "broker frozen":
                return blow, self._freeze_broker
            case "API server killed":
                return blow, self._kill_api_server
            case "API server frozen":
                return blow, self._freeze_api_server
            case "disk full":
                return blow, self._fill_disk
        name = self._r.choice(_SINKS)
        sink = getattr(self._site, name)
        return f"{blow}: {name}", lambda: self._spoil(sink, blow.removeprefix("sink: "))

    def _label(self, *, mortal: bool = False) -> str:
        spared = self._spared if mortal and self.calm_kills else ()
        running = self._site.pids()
        return self._r.choice([label for label in LABELS if label in running and label not in spared])

    async def _freeze(self, label: str) -> None:
        child = self._site.child(label)
        child.signal(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        child.signal(signal.SIGCONT)

    async def _jump(self, label: str, jump_s: int) -> None:
        self._site.set_clock(label, jump_s)
        await asyncio.sleep(CLOCK_S)
        self._site.set_clock(label, 0)

    async def _kill_broker(self) -> None:
        self._kafka.kill()
        await asyncio.to_thread(self._kafka.start)

    async def _freeze_broker(self) -> None:
        self._kafka.pause()
        await asyncio.sleep(PAUSE_S)
        self._kafka.resume()

    async def _kill_api_server(self) -> None:
        self._plane.component("kube-apiserver").kill()
        await asyncio.to_thread(self._plane.start_component, "kube-apiserver")

    async def _freeze_api_server(self) -> None:
        child = self._plane.component("kube-apiserver")
        child.signal(signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        child.signal(signal.SIGCONT)

    async def _spoil(self, sink: Standin, how: str) -> None:
        """Let a service fail in one way for a while."""
        if how == "down":
            sink.down = True
        else:
            fault = {
                "5xx": InjectedFault("", "status", times=10**6, status=503),
                "429": InjectedFault("", "status", times=10**6, status=429, retry_after="2"),
                "hangs": InjectedFault("", "hang", times=3),
                "answers lost": InjectedFault("", "lose_answer", times=3),
            }[how]
            sink.fail(fault)
        await asyncio.sleep(SINK_S)
        sink.down = False
        sink.heal()

    async def _fill_disk(self) -> None:
        """No space left for the broker: it ends itself at the next write. It comes back once there is some again."""
        assert self._disk is not None
        ballast = self._disk / "ballast"
        await asyncio.to_thread(_fill, ballast)
        await asyncio.sleep(FULL_S)
        ballast.unlink()
        await asyncio.to_thread(self._kafka.restart)

    async def _mend(self) -> None:
        for name in _SINKS:
            sink = getattr(self._site, name)
            sink.down = False
            sink.heal()
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
            await asyncio.to_thread(start_again, self._plane, name)


async def _as_none(act: Callable[[], Awaitable[None]]) -> None:
    await act()


async def _pause(over: asyncio.Event, for_s: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), for_s)
    except TimeoutError:
        pass  # the time has passed and it is not over


def _fill(ballast: Path) -> None:
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(1024 * 1024))
                file.flush()
        except OSError:
            pass  # no space left on the device, which was the aim
