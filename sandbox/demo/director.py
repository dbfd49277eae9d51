"""Plays the stories one after the other: each begins when all jobs make progress, and ends when the job it stopped does again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import aiohttp

from connectors.kubernetes.client import path_of
from runbooks.engine.containment import CONTAINED
from sandbox.demo import people, stories
from sandbox.demo.people import Press
from sandbox.demo.shippers import RunningPod
from sandbox.demo.spectator import DemoMoment, Seen
from sandbox.demo.stack import CHANNEL, OWNERS_CHANNEL, Stack
from sandbox.demo.world import JOBS, World
from sandbox.fake_services.slack import Posting
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
    (stories.host_memory, LANGUAGE),
)
"""The application fault comes first: soon after a hardware fault of the same job it would be taken for its consequence."""
STORY_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 120.0
MOVE_TIMEOUT_S = 60.0
"""How long each part may take on a busy machine. On an idle one all of them together take less than a minute."""
RESTART_S = 4.0
"""Until the launcher has restarted a crashed program."""


@dataclass(frozen=True, slots=True)
class StoryReport:
    """A story that was played. `pods_before` and `pods_after` are the uids of every job's pods at its begin and end."""

    scene: stories.Scene
    began_at: datetime
    pods_before: dict[str, frozenset[str]]
    pods_after: dict[str, frozenset[str]] = field(default_factory=dict)
    moving_at: datetime | None = None
    """When the job made its next step; None when it did not in time."""
    presses: tuple[Press, ...] = ()
    question: str | None = None
    """The timestamp of the message with the question."""
    cordoned_early: bool = False
    """Whether the node was cordoned before anybody had approved."""
    on_console: bool = False
    """Whether the incident's page names who approved."""


class Director:
    """Plays stories on the running stack, and waits for what each must lead to."""

    def __init__(self, stack: Stack, world: World, seen: Seen, show: Callable[[DemoMoment], None]) -> None:
        self._stack = stack
        self._world = world
        self._seen = seen
        self._show = show

    async def play(self, programme: Sequence[tuple[Build, str]] = PROGRAMME) -> list[StoryReport]:
        """Play the stories in order, up to one whose job does not recover; then wait until no run has anything left to do."""
        await self._world.write(stories.background(utc_now()))
        await self._until(self._all_move, MOVE_TIMEOUT_S)
        reports: list[StoryReport] = []
        for number, (build, job) in enumerate(programme, 1):
            reports.append(await self._story(number, build, job))
            if reports[-1].moving_at is None:
                late = (
                    f"{job} did not run again within {STORY_TIMEOUT_S:g} s; the remaining stories are skipped"
                )
                self._show(DemoMoment(utc_now(), "story", late))
                return reports
        await self._until(lambda: self._settled(reports), SETTLE_TIMEOUT_S)
        return reports

    async def _story(self, number: int, build: Build, job: str) -> StoryReport:
        await self._until(self._all_move, MOVE_TIMEOUT_S)
        world, begin = self._world, utc_now()
        scene = build(world.pods, job, begin)
        self._show(DemoMoment(begin, "story", f"{number}. {scene.title}"))
        if scene.node is None:
            world.workload.trainings[job].crash(begin + timedelta(seconds=RESTART_S))
        else:
            world.workload.broken.add(scene.node)
        if scene.name == "gpu":
            await self._stack.emulated.offer_gpus(str(scene.node), 7)
        report = StoryReport(scene, begin, world.pod_uids())
        performing = asyncio.create_task(world.perform(scene, begin))
        try:
            if scene.asks:
                report = await self._answered(report)
            over = await self._until(lambda: self._over(report), STORY_TIMEOUT_S)
            await performing
        finally:
            performing.cancel()
        report = replace(report, pods_after=world.pod_uids())
        moving = world.workload.trainings[job].moving_since
        if not over or moving is None or moving < begin:
            return report
        seconds = (moving - begin).total_seconds()
        self._show(
            DemoMoment(utc_now(), "job", f"{job} runs again, {seconds:.1f} s after the first log line")
        )
        return replace(report, moving_at=moving)

    async def _answered(self, report: StoryReport) -> StoryReport:
        """Wait for the question in the thread, and let both people press: first the one who may not."""
        scene = report.scene
        if not await self._until(lambda: self._question(scene) is not None, STORY_TIMEOUT_S):
            return report
        question = self._question(scene)
        assert question is not None
        where = f"{self._stack.console}incidents/{people.incident_asked(question)}"
        self._show(DemoMoment(utc_now(), "person", f"the question, in the thread and at {where}"))
        refused = await self._press(people.BYSTANDER, question)
        about = await self._stack.api.get(path_of("v1", "nodes", name=str(scene.node)))
        early = bool(about["spec"].get("unschedulable"))
        taken = await self._press(people.APPROVER, question)
        async with aiohttp.ClientSession() as http, http.get(where) as answer:
            # The gateway has read the answer from the timeline that the page shows.
            shown = answer.status == 200 and people.APPROVER in await answer.text()
        return replace(
            report, presses=(refused, taken), question=question.ts, cordoned_early=early, on_console=shown
        )

    async def _press(self, name: str, question: Posting) -> Press:
        """Press *Approve*, and read what Slack shows to that person alone."""
        slack = self._stack.slack
        who, value = slack.person(name), people.approve_value(question)
        known = len(people.answers_to(slack, who))
        press = Press(f"{who.name} ({who.id})")
        self._show(DemoMoment(utc_now(), "person", f"{press.who} presses [Approve] below the question"))
        await slack.press(who, people.APPROVE, value or "")
        if not await self._until(lambda: len(people.answers_to(slack, who)) > known, ANSWER_TIMEOUT_S):
            return press
        press = replace(press, answer=people.answers_to(slack, who)[-1])
        self._show(DemoMoment(utc_now(), "person", f"{press.who} alone is told: {press.answer}"))
        return press

    def _question(self, scene: stories.Scene) -> Posting | None:
        """The message that asks to approve the plan of the story's incident, once the gateway listens to presses."""
        slack = self._stack.slack
        if not any(not socket.closed for socket in slack.sockets):
            return None
        mine = {one.id for one in self._seen.of_family(scene.family)}
        replies = (reply for root in slack.roots() for reply in slack.thread(root.ts))
        return next((one for one in replies if people.incident_asked(one) in mine), None)

    def _over(self, report: StoryReport) -> bool:
        """Whether the job runs again; for the application fault, whether its owner has been notified."""
        moving = self._world.workload.trainings[report.scene.job].moving_since
        if moving is None or moving < report.began_at:
            return False
        if report.scene.node is not None:
            return report.scene.node not in self._world.placed(report.scene.job).values()
        return any(self._needs_nothing(incident) for incident in self._seen.of_family(report.scene.family))

    def _settled(self, reports: Sequence[StoryReport]) -> bool:
        incidents = [i for r in reports for i in self._seen.of_family(r.scene.family)]
        return (
            len(incidents) >= len(reports) and all(map(self._needs_nothing, incidents)) and self._all_move()
        )

    def _needs_nothing(self, incident: Incident) -> bool:
        """Whether nothing more happens to it by itself: its run is over or waits for approval."""
        runs = self._seen.runs_of(incident.id)
        if not runs or not self._thread_is_current(incident):
            return False
        if all(run.state.is_over for run in runs):
            return (
                incident.state.is_over or incident.state == IncidentState.AWAITING_HUMAN or incident.for_owner
            )
        return any(
            run.state == RunState.AWAITING_APPROVAL
            or any(step.state == StepState.AWAITING_APPROVAL for step in run.steps)
            for run in runs
        )

    def _thread_is_current(self, incident: Incident) -> bool:
        """Whether the root message of its thread shows the state of the incident."""
        channel = OWNERS_CHANNEL if incident.for_owner else CHANNEL
        roots = [r for r in self._stack.slack.roots(channel) if incident_of(r.metadata) == incident.id]
        over = incident.state == IncidentState.RESOLVED
        ends = (IncidentState.RESOLVED.value, CONTAINED)
        return any(not over or any(end in root.text for end in ends) for root in roots)

    def _all_move(self) -> bool:
        return all(self._world.workload.moving(job) for job in JOBS)

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds; False when it does not in time.

        Raises:
            ChildFailed: when a process has exited: nothing more will come of it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while not condition():
            if (child := self._stack.exited()) is not None:
                raise child.failure()
            if loop.time() > deadline:
                return False
            await asyncio.sleep(0.1)
        return True


def incident_of(metadata: dict[str, object] | None) -> str | None:
    """The incident in the metadata of a Slack message."""
    payload = (metadata or {}).get("event_payload")
    return str(payload["incident"]) if isinstance(payload, dict) and "incident" in payload else None
