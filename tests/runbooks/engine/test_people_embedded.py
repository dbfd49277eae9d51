"""What a person decides from the command line, with no chat anywhere: real commands, a real responder, the embedded broker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from runbooks.engine.process import Responder
from runbooks.language.loader import load_text
from runbooks.language.schema import Runbook
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.topics import INCIDENTS, INVENTORY, TIMELINE, partition_of
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, Run, RunState
from tests.runbooks.engine.responder_child import BOOK, FolderWorld
from tests.runbooks.herd import calls, over, run_of
from tests.runbooks.scenes import CLUSTER, JOB, incident
from tests.runbooks.topics import committed, write
from tests.testbed.waiting import PATIENCE_S, eventually, patience

pytestmark = [pytest.mark.nightly, pytest.mark.embedded]

NODE = "node-03"


@dataclass
class Answer:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on its standard output."""
        (line,) = self.lines
        return line

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The objects on its standard output."""
        return [json.loads(line) for line in self.out.splitlines()]


class Site:
    """A broker with an inventory on it, and a folder for the world outside."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.partition = partition_of(CLUSTER, settings.cluster_partitions)

    async def publish(self, about: Incident) -> None:
        await write(self.settings, INCIDENTS, self.partition, (about.id, encode(about)))

    async def show(self, **changes: Any) -> None:
        node = NodeFact(CLUSTER, NODE, "uid-3", utc_now(), gpus=8, **changes)
        await write(self.settings, INVENTORY, self.partition, (node.key, encode(FactRecord(node))))

    async def type(self, *words: str) -> Answer:
        """`faultline …` as a person types it."""
        kafka = {
            "BOOTSTRAP": self.settings.bootstrap, "CHECK_CRCS": "false", "MANAGED_TOPICS": "false",
            "CLUSTER_PARTITIONS": str(self.settings.cluster_partitions),
        }  # fmt: skip
        env = {k: v for k, v in os.environ.items() if not k.startswith("FAULTLINE_")}
        env |= {f"FAULTLINE_KAFKA__{name}": value for name, value in kafka.items()}
        env["FAULTLINE_CLUSTER"] = CLUSTER
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "faultline", *words,
            env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), patience(PATIENCE_S))
        assert process.returncode is not None
        return Answer(process.returncode, out.decode(), err.decode())

    @asynccontextmanager
    async def responder(self, book: Runbook, **changes: Any) -> AsyncIterator[asyncio.Task[NoReturn]]:
        policy = ResponderSettings.model_validate({"mode": Mode.APPROVE, "lease_s": 5.0, **changes})
        process = Responder(self.settings, policy, [FolderWorld(self.folder)], [book], cluster=CLUSTER)
        task = asyncio.create_task(process.run())
        try:
            yield task
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, state: RunState) -> Run:
        async def stands() -> Run | None:
            run = await run_of(self.settings, self.partition)
            return run if run is not None and run.state is state else None

        return await eventually(stands, f"the run is {state}")


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with broker.running(log=folder / "broker.log") as embedded:
        made = Site(embedded.settings, folder)
        await made.show()
        yield made


def fresh() -> Incident:
    return incident(updated_at=utc_now(), opened_at=utc_now(), jobs=(JOB,))


def cordons(folder: Path) -> int:
    """How often the node was closed."""
    return [call[1] for call in calls(folder)].count("cordon_node")


def book() -> Runbook:
    return load_text(BOOK, "book.yaml")


async def test_without_any_chat_two_people_approve_and_the_node_is_given_back_later(tmp_path: Path) -> None:
    rules = {
        "approval_groups": {"oncall": ["ada", "bob"]},
        "approval_classes": {"close": {"group": "oncall", "quorum": 2}},
    }
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book(), **rules):
            await here.until(RunState.AWAITING_APPROVAL)
            shown = await here.type("incidents", "show", about.id)
            assert "needs approval from 2 of oncall (ada, bob)" in shown.out
            assert f"faultline incidents approve {about.id} --step cordon" in shown.out

            outsider = await here.type("incidents", "approve", about.id, "--as", "eve", "--output", "json")
            assert outsider.code == 1
            assert outsider.json["accepted"] is False
            assert "eve is not among oncall (ada, bob)" in outsider.json["text"]

            first = await here.type("incidents", "approve", about.id, "--as", "ada", "--reason", "seen")
            assert (first.code, cordons(tmp_path)) == (0, 0)
            assert first.out.startswith("accepted: ada approved the plan")
            assert "still needs one more of oncall" in first.out
            again = await here.type("incidents", "approve", about.id, "--as", "ada")
            assert (again.code, "ada has already approved" in again.out) == (1, True)

            second = await here.type("incidents", "approve", about.id, "--as", "bob", "--output", "json")
            assert (second.code, second.json["accepted"]) == (0, True)
            await eventually(lambda: over(here.settings, here.partition), "the run is over")
            assert cordons(tmp_path) == 1

            await here.show(unschedulable=True, owner_incident=about.id)
            listed = await here.type("nodes", "list", "--output", "json")
            assert [hold["incident"] for hold in listed.json["held_for"]] == [about.id]
            back = await here.type(
                "nodes", "release", NODE, "--as", "ada", "--reason", "new GPU", "--output", "json"
            )
            assert back.code == 0, back.err
            assert (back.json["accepted"], back.json["released"]) == (True, True)
            run = await run_of(here.settings, here.partition)
            assert run is not None
            cordon = run.step("cordon").effect
            assert cordon is not None
            assert not (tmp_path / cordon.key).exists()
            twice = await here.type("nodes", "release", NODE, "--as", "ada")
            assert (twice.code, "refused" in twice.out) == (1, True)


async def test_a_word_that_nobody_hears_is_kept_and_said_to_be_unanswered(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book()):
            await here.until(RunState.AWAITING_APPROVAL)
        alone = await here.type(
            "incidents", "approve", about.id, "--as", "ada", "--wait", "1", "--output", "json"
        )
        assert alone.code == 3
        assert (alone.json["answered"], alone.json["accepted"]) == (False, None)
        assert "no responder answered within 1 s" in alone.err
        unasked = await here.type("incidents", "ack", about.id, "--as", "ada", "--wait", "0")
        assert (unasked.code, "stored as" in unasked.err) == (0, True)
        assert cordons(tmp_path) == 0
        async with here.responder(book()):
            await here.until(RunState.SUCCEEDED)
            assert cordons(tmp_path) == 1


async def test_the_kill_switch_of_the_command_line_holds_what_was_approved_until_it_is_taken_back(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book(), approvers=["ada"]):
            await here.until(RunState.AWAITING_APPROVAL)
            thrown = await here.type("guard", "kill", "--as", "eve", "--reason", "smoke", "--output", "json")
            assert (thrown.code, thrown.json["text"]) == (0, "eve engaged the kill switch: smoke")
            status = await here.type("guard", "status", "--output", "json")
            assert status.json["kill_switch"] == {
                "on": True, "by_setting": False, "by": "eve", "reason": "smoke", "at": status.json["kill_switch"]["at"],
            }  # fmt: skip
            assert [limit["used"] for limit in status.json["limits"][:2]] == [0, 0]
            approved = await here.type("incidents", "approve", about.id, "--as", "ada")
            assert (approved.code, "no step is pending" in approved.err) == (2, True), (
                "the switch holds it, nobody is asked"
            )
            refused = await here.type("guard", "unkill", "--as", "eve")
            assert (refused.code, "eve is neither among" in refused.out) == (1, True)
            assert cordons(tmp_path) == 0
            back = await here.type("guard", "unkill", "--as", "ada")
            assert (back.code, back.out) == (0, "accepted: ada released the kill switch\n")
            await here.until(RunState.AWAITING_APPROVAL)
            approved = await here.type("incidents", "approve", about.id, "--as", "ada")
            assert approved.code == 0, approved.out
            await eventually(lambda: over(here.settings, here.partition), "the run is over")
            assert cordons(tmp_path) == 1


async def test_what_a_person_does_beside_a_run_in_shadow_is_in_the_report(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book(), mode=Mode.SHADOW):
            await here.until(RunState.SHADOWED)
            await here.show(unschedulable=True)

            async def told() -> list[str] | None:
                said = await committed(here.settings, TIMELINE, here.partition)
                entries = [decode(TimelineEntry, value) for _, value in said if value is not None]
                found = [e.incident for e in entries if e.event == "observed.node_cordoned"]
                return found or None

            assert await eventually(told, "the cordon is on the timeline") == [about.id]
            answer = await here.type("shadow", "report", "--since", "1d", "--output", "json")
            assert answer.code == 0, answer.err
            run, summary = map(json.loads, answer.out.splitlines())
            assert (run["incident"], run["agreement"]) == (about.id, "same")
            assert [act["act"] for act in run["people"]] == ["node_cordoned"]
            assert (summary["runs"], summary["agreed"], summary["agreed_share"]) == (1, 1, 1.0)
            shown = await here.type("shadow", "report")
            assert "operators did the same in 1 of 1 (100%)" in shown.out
        assert calls(tmp_path) == []


async def test_a_node_that_stays_closed_keeps_its_incident_in_the_list_until_it_is_given_back(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book()):
            await here.until(RunState.AWAITING_APPROVAL)
            waiting = await here.type("incidents", "list", "--output", "json")
            assert waiting.json["waits_for"].startswith(
                f"approval of cordon_node {NODE} by one person until "
            )
            assert (waiting.json["standing"], waiting.json["owed"]) == ("open", [])
            first = await here.type("incidents", "approve", about.id, "--as", "ada")
            assert first.code == 0, first.out
            await here.until(RunState.SUCCEEDED)

            late = await here.type("incidents", "approve", about.id, "--as", "bob", "--output", "json")
            assert (late.code, late.json["accepted"]) == (1, False)
            assert "not accepted: ada approved it at 20" in late.json["text"]

            await here.show(unschedulable=True, owner_incident=about.id)
            over = replace(about, state=IncidentState.RESOLVED, revision=9, closed_at=utc_now())
            await here.publish(over)
            (contained,) = (await here.type("incidents", "list", "--output", "json")).lines
            assert (contained["state"], contained["standing"]) == ("resolved", "contained")
            assert [owed["node"] for owed in contained["owed"]] == [NODE]
            listed = await here.type("incidents")
            assert "1 contained" in listed.out
            assert f"repair: {NODE} stays cordoned" in " ".join(listed.out.split())
            shown = await here.type("incidents", "show", about.id)
            assert f"faultline nodes release {NODE}" in shown.out
            assert "  impact " not in shown.out

            again = await here.type("incidents", "resolve", about.id, "--as", "bob")
            assert (again.code, "has been over since" in again.out) == (1, True)

            back = await here.type("nodes", "release", NODE, "--as", "ada")
            assert back.code == 0, back.out
            await here.show()
            assert (await here.type("incidents", "list", "--output", "json")).lines == []
            assert "no open incident" in (await here.type("incidents")).out


async def test_after_a_rejection_the_list_and_the_late_comer_are_told_who_said_no(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book()):
            await here.until(RunState.AWAITING_APPROVAL)
            no = await here.type("incidents", "reject", about.id, "--as", "ada", "--reason", "tonight")
            assert no.code == 0, no.out
            await here.until(RunState.CANCELLED)
            late = await here.type("incidents", "approve", about.id, "--as", "bob")
            assert (late.code, "ada rejected it at 20" in late.out) == (1, True)
            await here.publish(replace(about, state=IncidentState.AWAITING_HUMAN, revision=2))
            (waits,) = (await here.type("incidents", "list", "--output", "json")).lines
            assert waits["waits_for"] == "manual action: run rejected, rejected by ada: tonight"
            shown = await here.type("incidents", "show", about.id)
            (run,) = (line for line in shown.out.splitlines() if "─ runbook " in line)
            assert run.endswith("mode approve: rejected")


async def test_not_now_silence_a_note_and_taking_over_from_the_command_line(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        about = fresh()
        await here.publish(about)
        async with here.responder(book(), snooze_max_s=3600):
            await here.until(RunState.AWAITING_APPROVAL)
            later = await here.type("incidents", "snooze", about.id, "--for", "20", "--as", "ada")
            assert (later.code, "accepted: snoozed by ada until 2" in later.out) == (0, True)
            held = await here.type("incidents", "list", "--output", "json")
            assert "held: snooze: ada snoozed it until" in held.json["waits_for"]
            more = await here.type("incidents", "snooze", about.id, "--for", "5", "--as", "bob")
            assert (more.code, "ada snoozed it until" in more.out) == (1, True)

            quiet = await here.type(
                "incidents", "silence", about.id, "--as", "ada", "--reason", "known", "--output", "json"
            )
            assert (quiet.code, quiet.json["text"].endswith(": known")) == (0, True)
            noted = await here.type("incidents", "note", about.id, "swapped the riser", "--as", "ada")
            assert noted.out == "accepted: swapped the riser\n"

            mine = await here.type("incidents", "hand-over", about.id, "--as", "ada", "--reason", "on site")
            assert mine.out == "accepted: taken over by ada: on site\n"
            await here.until(RunState.CANCELLED)
            await here.publish(replace(about, state=IncidentState.AWAITING_HUMAN, revision=2))
            (waits,) = (await here.type("incidents", "list", "--output", "json")).lines
            assert waits["waits_for"] == "manual action: run cancelled, taken over by ada: on site"
            shown = await here.type("incidents", "show", about.id)
            assert "swapped the riser" in shown.out
        assert cordons(tmp_path) == 0
