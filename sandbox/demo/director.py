"""Plays the stories one after the other: each begins when all jobs run, and ends when the job it stopped runs again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from runbooks.engine.containment import CONTAINED
from sandbox.demo import stories
from sandbox.demo.shippers import RunningPod
from sandbox.demo.spectator import DemoMoment, Seen
from sandbox.demo.stack import Stack
from sandbox.demo.world import JOBS, World
from sandbox.emulated.child_processes import ChildFailed
from streams.model.clock import utc_now
from streams.model.incident import Incident, IncidentState
from streams.model.run import RunState, StepState

Build = Callable[[Sequence[RunningPod], str, datetime], stories.Scene]
LANGUAGE, SPEECH, RESEARCH = JOBS
PROGRAMME: tuple[tuple[Build, str], ...] = (
    (stories.application_fault, RESEARCH),
    (stories.gpu_off_the_bus, LANGUAGE),
    (stories.silent_node, SPEECH),
    (stories.pfc_storm, RESEARCH),
)
"""The program's own fault comes first: minutes after a hardware fault of the same job it would be taken for its aftermath."""
STORY_TIMEOUT_S = 120.0
SETTLE_TIMEOUT_S = 120.0
MOVE_TIMEOUT_S = 60.0
"""How long each part may take on a machine that has other things to do. On an idle one all of them together are half a minute."""
RESTART_S = 4.0
"""After this the launcher has started a crashed program again."""


@dataclass(frozen=True, slots=True)
class StoryReport:
    """A story that was played. `pods_before` and `pods_after` are the uids of every job's pods at its begin and end."""

    scene: stories.Scene
    began_at: datetime
    pods_before: dict[str, frozenset[str]]
    pods_after: dict[str, frozenset[str]] = field(default_factory=dict)
    moving_at: datetime | None = None
    """When the job made its next step; None when it never did in time."""


class Director:
    """Holds the strings of one performance."""

    def __init__(self, stack: Stack, world: World, seen: Seen, tell: Callable[[DemoMoment], None]) -> None:
        self._stack = stack
        self._world = world
        self._seen = seen
        self._tell = tell

    async def play(self, programme: Sequence[tuple[Build, str]] = PROGRAMME) -> list[StoryReport]:
        """The stories in order, up to one that does not end well; then wait until every run has come to its end."""
        await self._world.write(stories.background(utc_now()))
        await self._until(self._all_move, MOVE_TIMEOUT_S)
        told: list[StoryReport] = []
        for number, (build, job) in enumerate(programme, 1):
            told.append(await self._story(number, build, job))
            if told[-1].moving_at is None:
                late = f"{job} did not run again in {STORY_TIMEOUT_S:g} s; the rest is not played"
                self._tell(DemoMoment(utc_now(), "story", late))
                return told
        await self._until(lambda: self._settled(told), SETTLE_TIMEOUT_S)
        return told

    async def _story(self, number: int, build: Build, job: str) -> StoryReport:
        await self._until(self._all_move, MOVE_TIMEOUT_S)
        world, begin = self._world, utc_now()
        scene = build(world.pods, job, begin)
        self._tell(DemoMoment(begin, "story", f"{number}. {scene.title}"))
        if scene.node is None:
            world.workload.trainings[job].crash(begin + timedelta(seconds=RESTART_S))
        else:
            world.workload.broken.add(scene.node)
        if scene.name == "gpu":
            await self._stack.emulated.offer_gpus(str(scene.node), 7)
        told = StoryReport(scene, begin, world.pod_uids())
        performing = asyncio.create_task(world.perform(scene, begin))
        try:
            over = await self._until(lambda: self._over(told), STORY_TIMEOUT_S)
            await performing
        finally:
            performing.cancel()
        told = replace(told, pods_after=world.pod_uids())
        moving = world.workload.trainings[job].moving_since
        if not over or moving is None or moving < begin:
            return told
        seconds = (moving - begin).total_seconds()
        self._tell(
            DemoMoment(utc_now(), "job", f"{job} runs again, {seconds:.1f} s after the first log line")
        )
        return replace(told, moving_at=moving)

    def _over(self, told: StoryReport) -> bool:
        """The job runs again, and for the application's fault somebody has been told."""
        moving = self._world.workload.trainings[told.scene.job].moving_since
        if moving is None or moving < told.began_at:
            return False
        if told.scene.node is not None:
            return told.scene.node not in self._world.placed(told.scene.job).values()
        return any(self._at_rest(incident) for incident in self._seen.of_family(told.scene.family))

    def _settled(self, told: Sequence[StoryReport]) -> bool:
        incidents = [i for t in told for i in self._seen.of_family(t.scene.family)]
        return len(incidents) >= len(told) and all(map(self._at_rest, incidents)) and self._all_move()

    def _at_rest(self, incident: Incident) -> bool:
        """Nothing more will happen to it by itself: its run is over or waits for a person."""
        runs = self._seen.runs_of(incident.id)
        if not runs or not self._thread_tells(incident):
            return False
        if all(run.state.is_over for run in runs):
            return incident.state.is_over or incident.state == IncidentState.AWAITING_HUMAN
        return any(
            run.state == RunState.AWAITING_APPROVAL
            or any(step.state == StepState.AWAITING_APPROVAL for step in run.steps)
            for run in runs
        )

    def _thread_tells(self, incident: Incident) -> bool:
        """Whether the root message of its thread has come as far as the incident."""
        roots = [r for r in self._stack.slack.roots() if incident_of(r.metadata) == incident.id]
        over = incident.state == IncidentState.RESOLVED
        ends = (IncidentState.RESOLVED.value, CONTAINED)
        return any(not over or any(end in root.text for end in ends) for root in roots)

    def _all_move(self) -> bool:
        return all(self._world.workload.moving(job) for job in JOBS)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for it; False when it did not come true in time.

        Raises:
            ChildFailed: when a process has ended, since then nothing more will come.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            if (child := self._stack.fallen()) is not None:
                raise ChildFailed(
                    f"{child.name} ended with {child.exit_code}; the end of its log:\n{child.tail()}"
                )
            if loop.time() > deadline:
                return False
            await asyncio.sleep(0.1)
        return True


def incident_of(metadata: dict[str, object] | None) -> str | None:
    """The incident a Slack message says it belongs to."""
    payload = (metadata or {}).get("event_payload")
    return str(payload["incident"]) if isinstance(payload, dict) and "incident" in payload else None
