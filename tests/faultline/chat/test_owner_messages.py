"""What the owner of a job is told: a message a state, in words and figures that the incident has, and to nobody by guess."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.chat.slack_blocks import render
from faultline.chat.job_owners import JobOwners, OwnerRow
from faultline.chat.owner_messages import JobState, owner_messages, state_of
from faultline.chat.thread_sources import ThreadSources
from sandbox.fake_services.slack import _check_content
from streams.model.checkpoint import Checkpoint
from streams.model.codec import decode, encode
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.errors import ConfigError
from streams.model.facts import JobFact
from streams.model.incident import Certainty, Incident, IncidentState, Progress
from streams.model.message import Buttons, Message, Notice
from streams.model.run import (
    EffectRecord,
    EffectState,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunState,
    Snooze,
    StepRecord,
    StepState,
    Target,
)
from streams.model.thread import Thread
from tests.connectors.chat.thread_documents import JOB, NODE, NOW, incident
from tests.connectors.chat.thread_documents import run as plain_run

TARGET = Target("PyTorchJob", "llm-70b", "research")
ALIVE = JobFact("c1", JOB, NOW, owner="U0ALICE1")
BROKE_AT = NOW - timedelta(minutes=1)
LATER = NOW + timedelta(minutes=10)


def about(step: int | None = 48_213, moved_s: float = -5, **changes: Any) -> Incident:
    """A GPU that broke; the job was last seen at `step`, `moved_s` after the fault."""
    progress = Progress(JOB, BROKE_AT + timedelta(seconds=moved_s), step)
    root = Entity("c1", node="gpu-17", gpu=Gpu(pci="0000:1b:00", index=3))
    return incident(root=root, progress=(progress,), **changes)


def moving(mode: Mode = Mode.AUTO, state: RunState = RunState.RUNNING, **states: StepState) -> Run:
    """A run that cordons the node, suspends and resumes the job, and sees its pods run."""
    steps = (
        PlannedStep("cordon", "cordon_node", NODE, {}, True),
        PlannedStep("suspend", "suspend_job", TARGET, {}, True),
        PlannedStep("resume", "resume_job", TARGET, {}, False),
        PlannedStep("verify", "verify_job", TARGET, {}, False),
    )
    records = tuple(
        StepRecord(
            step.id,
            states.get(step.id, StepState.PENDING),
            effect=EffectRecord("k", step.action, TARGET, EffectState.CONFIRMED, NOW, NOW)
            if states.get(step.id) is StepState.DONE
            else None,
            finished_at=NOW if states.get(step.id) is StepState.DONE else None,
        )
        for step in steps
    )
    made = plain_run(incident(), mode)
    return replace(made, plan=Plan("gpu-off-bus", 1, mode, steps, "d"), steps=records, state=state)


DONE, PENDING = StepState.DONE, StepState.PENDING
SUSPENDED = moving(cordon=DONE, suspend=DONE)
BACK = moving(cordon=DONE, suspend=DONE, resume=DONE, verify=DONE)
GAVE_UP = moving(state=RunState.FAILED, cordon=DONE, suspend=DONE, resume=StepState.FAILED)
UNSEEN = moving(state=RunState.FAILED, cordon=DONE, suspend=DONE, resume=DONE, verify=StepState.FAILED)
ASKING = moving(Mode.APPROVE, cordon=DONE, suspend=StepState.AWAITING_APPROVAL)


def resolved(moved_s: float = -5) -> Incident:
    return about(moved_s=moved_s, state=IncidentState.RESOLVED, closed_at=NOW)


@pytest.mark.parametrize(
    ("subject", "run", "fact", "state"),
    [
        (about(moved_s=30), moving(), ALIVE, JobState.WARNED),
        (about(moved_s=30), ASKING, ALIVE, JobState.WARNED),
        (about(), moving(), ALIVE, JobState.STOPPED),
        (about(), moving(Mode.SHADOW), ALIVE, JobState.STOPPED),
        (about(), None, ALIVE, JobState.STOPPED),
        (about(moved_s=30), None, ALIVE, None),
        (about(moved_s=30), moving(Mode.SHADOW), ALIVE, None),
        (about(), SUSPENDED, replace(ALIVE, suspended=True), JobState.MOVING),
        (about(), moving(cordon=DONE, suspend=DONE, resume=DONE), ALIVE, JobState.MOVING),
        (about(), BACK, ALIVE, JobState.RUNNING),
        (resolved(), BACK, ALIVE, JobState.RUNNING),
        (about(), GAVE_UP, replace(ALIVE, suspended=True), JobState.LEFT),
        (about(), UNSEEN, ALIVE, JobState.LEFT),
        (about(moved_s=30), None, replace(ALIVE, failed=True, finished=True), JobState.LEFT),
        (resolved(moved_s=30), None, ALIVE, JobState.RUNNING),
        (resolved(), None, ALIVE, None),
        (about(), moving(), replace(ALIVE, finished=True), None),
        (about(), None, None, None),
    ],
    ids=[
        "goes on and will be stopped", "waits for approval", "hangs, run begins", "hangs, shadow", "hangs, no run",
        "goes on, no run", "goes on, shadow", "suspended", "resumed and not seen yet", "seen again", "seen again, over",
        "resume failed", "not seen again", "failed", "went on by itself", "over, no sign of it", "completed", "unknown job",
    ],
)  # fmt: skip
def test_what_an_incident_means_for_a_job(
    subject: Incident, run: Run | None, fact: JobFact | None, state: JobState | None
) -> None:
    assert state_of(subject, run, JOB, fact) is state


def told(
    subject: Incident, run: Run | None, posted: frozenset[str] = frozenset(), fact: JobFact = ALIVE
) -> list[Message]:
    runs = [run] if run is not None else []
    jobs, owners = {JOB.key: fact}, JobOwners()
    found = owner_messages(subject, subject.jobs, runs, jobs, owners, posted, NOW, buttons=True)
    return [one.message for one in found]


@pytest.mark.parametrize(
    ("subject", "run", "text"),
    [
        (
            about(moved_s=30),
            ASKING,
            "Your job research/llm-70b will be stopped and started again on other nodes, because of GPU 3 of gpu-17 (GPU fell "
            "off the bus). This may happen at any moment. What it did since its last checkpoint will be lost; it was last seen "
            "at step 48,213, at 05:05 UTC. If you can, save a checkpoint now.",
        ),
        (
            about(certainty=Certainty.LIKELY),
            None,
            "Your job research/llm-70b stopped at step 48,213 (last seen 05:05 UTC) probably because of GPU 3 of gpu-17 (GPU "
            "fell off the bus). Nothing is done automatically; the people who look after the cluster see the same.",
        ),
        (
            about(),
            BACK,
            "Your job research/llm-70b stopped because of GPU 3 of gpu-17 (GPU fell off the bus); it runs again since 05:06 UTC, "
            "from its last checkpoint. Nothing for you to do.",
        ),
        (
            about(step=None),
            GAVE_UP,
            "Your job research/llm-70b stopped because of GPU 3 of gpu-17 (GPU fell off the bus), and nothing starts it again by "
            "itself. Please start it again from its last checkpoint.",
        ),
        (
            replace(about(moved_s=30), checkpoints=(Checkpoint(JOB, NOW, NOW, 48000),)),
            ASKING,
            "Your job research/llm-70b will be stopped and started again on other nodes, because of GPU 3 of gpu-17 (GPU fell "
            "off the bus). This may happen at any moment. What it did since its last checkpoint (step 48,000, saved 05:06 UTC) "
            "will be lost; it was last seen at step 48,213, at 05:05 UTC. If you can, save a checkpoint now.",
        ),
        (
            replace(about(), checkpoints=(Checkpoint(JOB, NOW, NOW),)),
            BACK,
            "Your job research/llm-70b stopped because of GPU 3 of gpu-17 (GPU fell off the bus); it runs again since 05:06 UTC, "
            "from its last checkpoint (saved 05:06 UTC). Nothing for you to do.",
        ),
    ],
    ids=["warned", "stopped", "running", "left", "warned, with a checkpoint", "running, with a checkpoint"],
)  # fmt: skip
def test_it_is_told_in_words_and_in_figures_that_are_known(
    subject: Incident, run: Run | None, text: str
) -> None:
    (message,) = told(subject, run)
    assert message.summary == text


def test_what_was_started_again_is_not_said_to_be_left_standing() -> None:
    (message,) = told(about(), UNSEEN)
    assert message.summary.endswith("it was started again, but was not seen to run. Please look after it.")


def test_a_warning_says_until_when_it_waits() -> None:
    asked = replace(
        ASKING,
        steps=(ASKING.steps[0], replace(ASKING.steps[1], deadline_at=LATER), *ASKING.steps[2:]),
    )
    (waiting,) = told(about(moved_s=30), asked)
    assert "may come at any moment until 05:16 UTC" in waiting.summary
    (snoozed,) = told(about(moved_s=30), replace(moving(), snooze=Snooze("bob", NOW, LATER)))
    assert "bob put it off until 05:16 UTC" in snoozed.summary


def test_the_warning_has_its_button_until_it_can_put_nothing_off() -> None:
    (warning,) = told(about(moved_s=30), moving())
    assert [block for block in warning.blocks if isinstance(block, Buttons)]
    (snoozed,) = told(about(moved_s=30), replace(moving(), snooze=Snooze("bob", NOW, LATER)))
    assert not [block for block in snoozed.blocks if isinstance(block, Buttons)]
    slot = _slot(about(moved_s=30), moving())
    now, former = told(about(moved_s=30), SUSPENDED, frozenset({slot}))
    assert "It is being started again" in now.summary
    assert not [block for block in former.blocks if isinstance(block, Buttons)]


def _slot(subject: Incident, run: Run) -> str:
    (one,) = owner_messages(subject, subject.jobs, [run], {JOB.key: ALIVE}, JobOwners(), frozenset(), NOW)
    return one.slot


def test_an_owner_is_called_once_and_again_only_when_needed() -> None:
    before = frozenset({_slot(about(), moving())})
    assert _called(told(about(), SUSPENDED, before)[0]) == ()
    assert _called(told(about(), BACK, before)[0]) == ()
    assert _called(told(about(), GAVE_UP, before)[0]) == ("U0ALICE1",)
    assert _called(told(about(), BACK)[0]) == ("U0ALICE1",)


def _called(message: Message) -> tuple[str, ...]:
    (notice,) = [block for block in message.blocks if isinstance(block, Notice)]
    return notice.who


ROWS = JobOwners(
    [
        OwnerRow(owner="@vision", slack="S0VISION"),
        OwnerRow(namespace="research", job="llm-*", slack="U0BOB123"),
        OwnerRow(namespace="research*", slack="S0RESEARCH"),
    ]
)


@pytest.mark.parametrize(
    ("job", "owner", "who"),
    [
        (JOB, "U0ALICE1", "U0ALICE1"),
        (JOB, "@vision", "S0VISION"),
        (JOB, None, "U0BOB123"),
        (replace(JOB, name="tts"), "somebody", "S0RESEARCH"),
        (JobRef("Job", "web", "shop"), "somebody", None),
        (JobRef("Job", "web", "shop"), "<!channel>", None),
    ],
)
def test_an_owner_is_whom_the_job_names_else_the_first_row_that_fits_else_nobody(
    job: JobRef, owner: str | None, who: str | None
) -> None:
    assert ROWS.slack_id(job, JobFact("c1", job, NOW, owner=owner)) == who


def test_nobody_is_told_about_a_job_without_an_owner_or_without_the_setting() -> None:
    assert told(about(), None, fact=replace(ALIVE, owner="somebody")) == []
    for owners, count in ((None, 0), (JobOwners(), 1)):
        sources = ThreadSources(owners=owners)
        sources.take_incident(about())
        sources.take_job("c1", JOB.key, ALIVE)
        slots = sources.slots_of(about(), Thread(about().id, "c1", "C1", NOW, NOW), NOW)
        assert sum(slot.name.startswith("owner/") for slot in slots) == count


def test_of_forty_incidents_of_one_summary_that_stop_a_job_one_tells_its_owner() -> None:
    sources = ThreadSources(owners=JobOwners())
    members = [about(id=f"inc-{n:02}", opened_at=NOW + timedelta(seconds=n)) for n in range(40)]
    for one in members:
        sources.take_incident(one)
    sources.take_job("c1", JOB.key, ALIVE)
    summary = Thread("sum-1", "c1", "C1", NOW, NOW)
    names = {one.id: None for one in members}
    slots = [
        (one.id, slot.name)
        for one in members
        for slot in sources.slots_of(
            one, Thread(one.id, "c1", "C1", NOW, NOW, parent="sum-1"), NOW, summary, names
        )
    ]
    assert [name for name, slot in slots if slot.startswith("owner/")] == ["inc-00"]
    assert sum(slot.startswith("member/") for _, slot in slots) == 40


@pytest.mark.parametrize(
    "text",
    [
        "- {slack: U0ALICE1}",
        "- {owner: a, slack: alice}",
        "- {owner: a, slack: U0ALICE1, team: x}",
        "a: b",
        "- [",
    ],
)
def test_a_file_that_is_wrong_stops_the_start(text: str, tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"owners\.yaml"):
        JobOwners.load(path)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "owners.yaml"
    path.write_text(
        "- {owner: alice@example.test, slack: U0ALICE1}\n- {namespace: 'vision-*', slack: S0VISION}\n"
    )
    assert JobOwners.load(path).slack_id(JobRef("Job", "vision-a", "x"), None) == "S0VISION"


def test_the_mention_stands_where_it_calls_and_hostile_names_call_nobody() -> None:
    (message,) = told(about(title="<!channel> <@U0EVIL99>"), BACK)
    assert decode(Message, encode(message)) == message
    shown = render(message, answers=True)
    _check_content(shown)
    assert shown["text"].startswith("<@U0ALICE1> Your job")
    assert shown["blocks"][0]["text"]["text"] == shown["text"]
    assert f"<!date^{int(NOW.timestamp())}^{{time}}|05:06 UTC>" in shown["text"]
    assert "<!channel>" not in shown["text"]
    assert "<@U0EVIL99>" not in shown["text"]
    forged = Message("s", (Notice(("U0ALICE1> <!channel", "!here"), ("hello",)),))
    assert render(forged)["text"] == "hello"
