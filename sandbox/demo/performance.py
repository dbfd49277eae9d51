"""The demo from start to end: set up, play, check, record, clean up."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from sandbox.demo import recording, stack, verdict
from sandbox.demo.director import Director
from sandbox.demo.screens import Screen
from sandbox.demo.spectator import Spectator
from sandbox.demo.world import World
from streams.model.clock import utc_now
from streams.model.errors import FaultlineError


class Interrupted(FaultlineError):
    """The operator pressed Ctrl-C."""


async def perform(screen: Screen, capture: Path) -> verdict.DemoVerdict:
    """Play everything. In any case no process and no file but the capture is left behind.

    Raises:
        FaultlineError: when the stack does not start or one of its processes exits.
        Interrupted: after a clean end, when SIGINT or SIGTERM came.
    """
    task = asyncio.current_task()
    assert task is not None
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _once(asked, number, task.cancel))
    with tempfile.TemporaryDirectory(prefix="faultline-demo-") as folder:
        try:
            return await _perform(screen, capture, Path(folder))
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


async def _perform(screen: Screen, capture: Path, folder: Path) -> verdict.DemoVerdict:
    screen.note("starting a broker, a cluster of 16 nodes, Slack, Jira and five processes …")
    async with stack.running(folder) as running, World(running.api, running.kafka) as world:
        spectator = Spectator(running.kafka, running.slack, screen.show)
        around = [asyncio.create_task(spectator.run()), asyncio.create_task(world.run())]
        playing = asyncio.create_task(_play(screen, capture, running, world, spectator))
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
    screen: Screen, capture: Path, running: stack.Stack, world: World, spectator: Spectator
) -> verdict.DemoVerdict:
    screen.note("three training jobs run on 12 nodes; now the faults")
    reports = await Director(running, world, spectator.seen, screen.show).play()
    await world.look()
    found = verdict.judge(running, world, spectator.seen, reports, utc_now())
    await recording.record(running.kafka, running.settings_file, capture)
    return found
