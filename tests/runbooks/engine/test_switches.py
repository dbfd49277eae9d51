"""What was switched off stays off on a real broker: whoever restarts, takes over, freezes or dies while it is being thrown.

The world outside counts: once the answer to a kill switch is on the timeline, no destructive call reaches it from any
responder until a person has taken the switch back, and what gives something back flows all the while.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streams.config.settings import KafkaSettings
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, RUNS, TIMELINE
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.control import Control, Trip
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.entity import Entity, Gpu
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run, RunState, StepState
from tests.runbooks.herd import PARTITION, Herd, calls, fresh, hit, stocked
from tests.runbooks.scenes import CLUSTER, incident
from tests.runbooks.topics import committed, write
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually
from tests.tiers import sample

pytestmark = pytest.mark.kafka

DESTRUCTIVE = ("cordon_node", "suspend_job", "drain_node")
SILENT_FOR_LONG_MS = 60_000


@dataclass
class Scene:
    """One incident on a real broker, the responders about it, and what people say."""

    settings: KafkaSettings
    folder: Path
    herd: Herd
    about: Incident

    async def say(self, verb: Verb, name: str, incident: str = "", **more: Any) -> None:
        """Write a person's decision down; it may be heard any time from now on."""
        command = Command(name, incident, CLUSTER, verb, "ada", utc_now(), **more)
        await write(self.settings, COMMANDS, PARTITION, (incident or CLUSTER, encode(command)))

    async def answers(self, name: str) -> list[TimelineEntry]:
        """What was said to a decision."""
        return [entry for entry in await self.timeline() if entry.attributes.get("command") == name]

    async def timeline(self) -> list[TimelineEntry]:
        found = await committed(self.settings, TIMELINE, PARTITION)
        return [decode(TimelineEntry, value) for _, value in found if value]

    async def answered(self, name: str) -> TimelineEntry:
        """Wait until a decision is answered; exactly one answer there must be."""

        async def answer() -> TimelineEntry | None:
            return next(iter(await self.answers(name)), None)

        return await eventually(answer, f"{name} is answered")

    async def control(self) -> Control:
        found = await committed(self.settings, CONTROLS, PARTITION)
        return decode(Control, found[-1][1] or b"")

    async def breaker(self) -> Trip | None:
        """What has tripped it, if anything has."""
        found = await committed(self.settings, CONTROLS, PARTITION)
        return decode(Control, found[-1][1] or b"").breaker if found else None

    async def owns(self, child: Child) -> None:
        """Wait until a responder has taken up a partition, whichever it is."""

        async def ready() -> bool:
            return b"partition ready" in child.log.read_bytes()

        await eventually(ready, "the responder has taken up a partition")

    async def runs(self) -> dict[str, Run]:
        """The runs as they stand, by incident."""
        values = [value for _, value in await committed(self.settings, RUNS, PARTITION) if value]
        return {run.incident: run for run in (decode(Run, value) for value in values)}

    async def run_is(self, *states: RunState, about: str = "") -> Run:
        async def stands() -> Run | None:
            run = (await self.runs()).get(about or self.about.id)
            return run if run is not None and run.state in states and not self._works(run) else None

        return await eventually(stands, f"the run is {states}")

    @staticmethod
    def _works(run: Run) -> bool:
        return run.state.is_over and run.has_work

    async def held_by(self, rule: str, about: str = "") -> Run:
        """Wait until a step of the run is held or asked about by this rule."""

        async def held() -> Run | None:
            run = (await self.runs()).get(about or self.about.id)
            steps = run.steps if run is not None else ()
            waiting = (StepState.BLOCKED, StepState.AWAITING_APPROVAL)
            return (
                run if any(s.state in waiting and s.reason.startswith(f"{rule}: ") for s in steps) else None
            )

        return await eventually(held, f"a step waits for {rule}")

    async def there(self, file: str) -> None:
        """Wait for a file of the world outside."""

        async def exists() -> bool:
            return (self.folder / file).exists()

        await eventually(exists, file)

    async def struck(self, label: str) -> None:
        """Wait until a responder has died or frozen at a label."""

        async def was() -> bool:
            return hit(self.folder, label)

        await eventually(was, f"a responder is struck at {label}")

    async def publish(self, about: Incident) -> None:
        await write(self.settings, INCIDENTS, PARTITION, (about.id, encode(about)))

    def destructive(self) -> list[tuple[float, str]]:
        """When each destructive call reached the world, and its action."""
        return [(float(call[4]), call[1]) for call in calls(self.folder) if call[1] in DESTRUCTIVE]

    def none_after(self, at: float) -> None:
        late = [call for call in self.destructive() if call[0] > at]
        assert late == [], f"left after the answer: {late}"

    def undone(self) -> list[str]:
        file = self.folder / "undone"
        return [line.split()[1] for line in file.read_text().splitlines()] if file.exists() else []


async def scene(kafka: Kafka, folder: Path, herds: list[Herd]) -> Scene:
    """One whose incident is told of."""
    here = await empty_scene(kafka, folder, herds)
    await here.publish(here.about)
    return here


async def empty_scene(kafka: Kafka, folder: Path, herds: list[Herd]) -> Scene:
    """One whose incident nobody knows of yet."""
    settings = await stocked(kafka)
    herd = Herd(settings, folder)
    herds.append(herd)
    return Scene(settings, folder, herd, fresh())


def told_until(answer: TimelineEntry) -> float:
    """From when on nothing leaves any more: at once, unless the answer itself names a later time."""
    named = re.search(r"may still be sent until (\S+)$", answer.text)
    return datetime.fromisoformat(named[1]).timestamp() if named else answer.at.timestamp()


async def gives_back_and_goes_on(here: Scene, since: float, suspended: bool) -> None:
    """Under the switch the incident ends and all is taken back; taken off it, the next incident is acted on."""
    made = len(here.destructive())
    cordoned = any(action == "cordon_node" for _, action in here.destructive())
    await here.publish(replace(here.about, revision=2, state=IncidentState.MERGED, updated_at=utc_now()))
    await here.run_is(RunState.CANCELLED)
    wanted = [*(["suspend_job"] if suspended else []), *(["cordon_node"] if cordoned else [])]
    assert sorted(here.undone()) == sorted(wanted)
    here.none_after(since)
    other = another(1)
    await here.publish(other)
    await here.held_by("kill switch", other.id)
    here.none_after(since)
    assert len(here.destructive()) == made
    assert (await here.control()).kill_switch is not None
    await here.say(Verb.UNKILL, "unkill")
    await here.run_is(RunState.SUCCEEDED, about=other.id)
    assert len(here.destructive()) == made + 2
    assert len(await here.answers("kill")) == 1


def another(number: int, **changes: Any) -> Incident:
    """One more incident, on a node without jobs."""
    node = f"node-{9 + number:02}"
    root = Entity(CLUSTER, node=node, gpu=Gpu(pci="0000:1b:00"))
    now = utc_now()
    return incident(root=root, jobs=(), nodes=(node,), fault_at=now, opened_at=now, updated_at=now, **changes)


@pytest.mark.parametrize(
    "point",
    sample(
        [
            "cordon_node:after_intent", "cordon_node:after_call", "suspend_job:after_intent",
            "suspend_job:after_commit", "drain_node:before_intent",
        ],
        "cordon_node:after_call",
    ),
)  # fmt: skip
async def test_a_kill_switch_thrown_while_the_responder_is_down_holds_whoever_comes_next(
    kafka: Kafka, tmp_path: Path, herds: list[Herd], point: str
) -> None:
    here = await scene(kafka, tmp_path, herds)
    here.herd.start("KILL", (point,))
    await here.struck(point)
    await here.say(Verb.KILL, "kill")
    made = Counter(action for _, action in here.destructive())
    here.herd.start("KILL", ("command:after_commit",))
    answer = await here.answered("kill")
    # Nobody else is alive, so nothing leaves at all; and one life more changes nothing about it.
    await here.struck("command:after_commit")
    here.herd.start()
    await here.held_by("kill switch")
    assert Counter(action for _, action in here.destructive()) == made
    await gives_back_and_goes_on(here, answer.at.timestamp(), suspended=made["suspend_job"] > 0)


@pytest.mark.nightly
async def test_a_kill_switch_thrown_during_a_rebalance_is_heard_and_calls_back_what_was_under_way(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    here = await scene(kafka, tmp_path, herds)
    first = here.herd.start(gated=["suspend_job"])
    await here.there("waiting-suspend_job")
    # The call under way holds up the first one's letting go: the switch is thrown in the middle of that.
    here.herd.start(gated=["suspend_job"])
    await here.there("fenced-suspend_job")
    await here.say(Verb.KILL, "kill")
    answer = await here.answered("kill")
    (tmp_path / "gate-suspend_job").touch()
    await here.held_by("kill switch")
    first.kill()
    # Whoever has the partition now, its journal holds the switch.
    await gives_back_and_goes_on(here, told_until(answer), suspended=False)


@pytest.mark.nightly
@pytest.mark.parametrize("slow", ["gated", "stuck"])
async def test_who_answers_a_kill_switch_has_called_back_its_own_calls_before(
    kafka: Kafka, tmp_path: Path, herds: list[Herd], slow: str
) -> None:
    """A call that the network holds up, before or after it has asked its lease for the last time, with a long lease."""
    here = await scene(kafka, tmp_path, herds)
    slowly: dict[str, Any] = {slow: ["suspend_job"]}
    # Nobody takes over from it, and after a session that ran out it would wait for its own lease.
    here.herd.start(policy={"lease_s": 600.0}, session_ms=SILENT_FOR_LONG_MS, **slowly)
    await here.there("waiting-suspend_job")
    await here.say(Verb.KILL, "kill")
    answer = await here.answered("kill")
    (tmp_path / "gate-suspend_job").touch()
    assert "may still leave" not in answer.text
    await here.held_by("kill switch")
    await gives_back_and_goes_on(here, answer.at.timestamp(), suspended=False)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_the_owner_that_dies_between_reading_and_committing_a_kill_switch_leaves_it_to_its_successor(
    kafka: Kafka, tmp_path: Path, herds: list[Herd], point: str
) -> None:
    here = await scene(kafka, tmp_path, herds)
    here.herd.start("KILL", (f"command:{point}",), gated=["suspend_job"])
    await here.there("waiting-suspend_job")
    await here.say(Verb.KILL, "kill")
    await here.struck(f"command:{point}")
    if point == "after_commit":
        await here.answered("kill")
    else:
        assert await here.answers("kill") == []
    (tmp_path / "gate-suspend_job").touch()
    here.herd.start()
    answer = await here.answered("kill")
    await here.held_by("kill switch")
    await gives_back_and_goes_on(here, answer.at.timestamp(), suspended=False)


async def test_a_frozen_owner_that_wakes_after_the_answer_acts_no_longer_than_the_answer_says(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    here = await scene(kafka, tmp_path, herds)
    # The answer has to come while the frozen one's lease lasts: whoever gives it is ready before that begins.
    here.herd.start(policy={"lease_s": 15.0}, stands_by=True)
    await here.there("stands-by")
    frozen = here.herd.start("STOP", ("cordon_node:after_intent",), policy={"lease_s": 15.0})
    await here.struck("cordon_node:after_intent")
    (tmp_path / "join").touch()
    await here.say(Verb.KILL, "kill")
    answer = await here.answered("kill")
    assert told_until(answer) > answer.at.timestamp()
    os.kill(frozen.pid, signal.SIGCONT)
    await here.held_by("kill switch")
    here.none_after(told_until(answer))
    assert len(here.destructive()) <= 1


FRESH_S = 15.0
BREAKER = {
    "breaker": {"failures": 1, "mass_min_nodes": 0},
    "blast_radius": {"max_nodes": 16, "max_share": 1.0, "max_per_window": 100},
    "freshness_s": FRESH_S,
}


@pytest.mark.nightly
async def test_a_tripped_breaker_outlives_restart_and_rebalance_and_lets_nothing_stale_through_after_its_reset(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    here = await empty_scene(kafka, tmp_path, herds)
    first = here.herd.start(refused=["drain_node"], policy=BREAKER)
    await here.owns(first)
    here.about = fresh()
    await here.publish(here.about)
    await here.run_is(RunState.FAILED)
    trip = await eventually(lambda: here.breaker(), "the breaker trips")
    assert here.undone() == ["suspend_job"]
    made = here.destructive()
    assert [action for _, action in made] == ["cordon_node", "suspend_job"]

    waits, cured = another(1), another(2)
    for about in (waits, cured):
        await here.publish(about)
        await here.held_by("breaker", about.id)
    first.kill()
    second = here.herd.start(policy=BREAKER)
    await here.owns(second)
    third = here.herd.start(policy=BREAKER)
    await here.owns(third)
    await here.publish(replace(cured, revision=2, state=IncidentState.RESOLVED, updated_at=utc_now()))
    await here.run_is(RunState.CANCELLED, about=cured.id)
    # One of the two goes without a word, and whoever is left has to know all of it.
    second.kill()
    reports = another(3)
    await here.publish(reports)
    await here.held_by("breaker", reports.id)
    assert (await here.control()).breaker == trip
    assert here.destructive() == made

    async def is_stale() -> bool:
        return utc_now() > waits.updated_at + timedelta(seconds=FRESH_S)

    await eventually(is_stale, "what waits is stale")
    await here.publish(replace(reports, revision=2, updated_at=utc_now()))
    await here.say(Verb.RESET, "reset")
    await here.answered("reset")
    await here.run_is(RunState.SUCCEEDED, about=reports.id)
    asked = await here.held_by("freshness", waits.id)
    assert asked.state is RunState.AWAITING_APPROVAL
    on = {call[2] for call in calls(tmp_path) if call[1] in DESTRUCTIVE}
    assert on & {waits.root.node, cured.root.node} == set()
    await here.say(Verb.APPROVE, "yes", waits.id, digest=asked.plan.digest)
    await here.run_is(RunState.SUCCEEDED, about=waits.id)
    assert Counter(action for _, action in here.destructive()) == {
        "cordon_node": 3,
        "suspend_job": 1,
        "drain_node": 2,
    }
    assert (await here.runs())[cured.id].state is RunState.CANCELLED


async def test_a_breaker_that_trips_calls_back_what_other_runs_have_under_way(
    kafka: Kafka, tmp_path: Path, herds: list[Herd]
) -> None:
    here = await scene(kafka, tmp_path, herds)
    here.herd.start(
        gated=["suspend_job"],
        refused=["drain_node"],
        policy={**BREAKER, "freshness_s": 3600.0, "lease_s": 600.0},
        session_ms=SILENT_FOR_LONG_MS,
    )
    await here.there("waiting-suspend_job")
    # The node of the other incident has no job: its drain is refused while the first one's suspend is under way.
    other = another(1)
    await here.publish(other)
    await here.run_is(RunState.FAILED, about=other.id)
    await eventually(lambda: here.breaker(), "the breaker trips")
    (tmp_path / "gate-suspend_job").touch()
    await here.held_by("breaker")
    assert [action for _, action in here.destructive()] == ["cordon_node", "cordon_node"]
    await here.say(Verb.RESET, "reset")
    await here.answered("reset")
    # It is looked up and made once, and the drain that follows is refused here.
    await here.run_is(RunState.FAILED)
    assert Counter(action for _, action in here.destructive()) == {"cordon_node": 2, "suspend_job": 1}
