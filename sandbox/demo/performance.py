"""The demo from start to end: set up, play, check, record, clean up."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faultline.runtime.processes import PROCESSES
from sandbox.demo import recording, stack, verdict
from sandbox.demo.director import Director
from sandbox.demo.screens import Screen
from sandbox.demo.spectator import Spectator
from sandbox.demo.world import World
from streams.model.clock import utc_now
from streams.model.errors import FaultlineError


class Interrupted(FaultlineError):
    """The operator pressed Ctrl-C."""


@dataclass(slots=True)
class _Stay:
    """Whether everything keeps running after the last story, until somebody has seen enough, and how they call the command."""

    command: str
    begun: bool = False
    enough: asyncio.Event = field(default_factory=asyncio.Event)


async def perform(screen: Screen, capture: Path, *, stay_for: str = "") -> verdict.DemoVerdict:
    """Play everything; `stay_for` a command, which is told how to talk to it, keep it running until Ctrl-C.

    No process and no file but the capture is left behind.

    Raises:
        FaultlineError: when the stack does not start or one of its processes exits.
        Interrupted: after a clean end, when SIGINT or SIGTERM came.
    """
    task = asyncio.current_task()
    assert task is not None
    asked: list[int] = []
    staying = _Stay(stay_for)

    def end() -> None:
        if staying.begun:
            staying.enough.set()
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _once(asked, number, end))
    with tempfile.TemporaryDirectory(prefix="faultline-demo-") as folder:
        try:
            return await _perform(screen, capture, Path(folder), staying)
        except asyncio.CancelledError:
            if not asked:
                raise
            raise Interrupted("interrupted; all processes are stopped") from None


def _once(asked: list[int], number: int, act: Callable[[], object]) -> Callable[[], None]:
    """A second Ctrl-C must not interrupt the cleanup."""

    def handle() -> None:
        if not asked:
            act()
        asked.append(number)

    return handle


async def _perform(screen: Screen, capture: Path, folder: Path, stay: _Stay) -> verdict.DemoVerdict:
    screen.note(f"starting a broker, a cluster of 16 nodes, Slack, Jira and {len(PROCESSES)} processes …")
    async with stack.running(folder) as running, World(running.api, running.kafka) as world:
        spectator = Spectator(running.kafka, running.slack, screen.show)
        around = [asyncio.create_task(spectator.run()), asyncio.create_task(world.run())]
        playing = asyncio.create_task(_play(screen, capture, running, world, spectator, stay))
        try:
            await asyncio.wait({*around, playing}, return_when=asyncio.FIRST_COMPLETED)
            for follower in around:
                if follower.done():
                    follower.result()  # they work until cancelled, so this raises
            return await playing
        finally:
            for task in (*around, playing):
                task.cancel()
            await asyncio.gather(*around, playing, return_exceptions=True)
            screen.note("stopping all processes …")


async def _play(
    screen: Screen,
    capture: Path,
    running: stack.Stack,
    world: World,
    spectator: Spectator,
    stay: _Stay,
) -> verdict.DemoVerdict:
    screen.link(running.console)
    screen.note("three training jobs run on 12 nodes; now the faults")
    reports = await Director(running, world, spectator.seen, screen.show).play()
    await world.look()
    found = verdict.judge(running, world, spectator.seen, reports, utc_now())
    await recording.record(running.kafka, running.settings_file, capture)
    if stay.command:
        stay.begun = True
        bad = sum(not check.good for check in found.checks)
        screen.note(f"{bad or 'no'} check of {len(found.checks)} failed; all of it runs on until Ctrl-C")
        screen.note(f"talk to it:  {stay.command} --config {running.settings_file} incidents")
        screen.link(running.console)
        await _until_enough(running, stay)
    return found


async def _until_enough(running: stack.Stack, stay: _Stay) -> None:
    """Wait for Ctrl-C. Raises ChildFailed when a process has exited: there is less to look at then."""
    while not stay.enough.is_set():
        if (child := running.exited()) is not None:
            raise child.failure()
        with suppress(TimeoutError):
            await asyncio.wait_for(stay.enough.wait(), 0.5)
