"""A person at the command line starts a runbook, follows it, looks back at it: real commands, a real responder, a broker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from streams.model.clock import utc_now
from streams.model.incident import Incident
from streams.model.run import RunState
from tests.runbooks.engine.responder_child import BOOK
from tests.runbooks.engine.test_people_embedded import NODE, Answer, Site, book, cordons, site
from tests.runbooks.scenes import CLUSTER, JOB, incident
from tests.testbed.waiting import PATIENCE_S, patience

pytestmark = [pytest.mark.nightly, pytest.mark.embedded]


def about() -> Incident:
    return incident(updated_at=utc_now(), opened_at=utc_now(), jobs=(JOB,))


async def type_(here: Site, *words: str, mode: str = "auto") -> Answer:
    """`faultline …` with the runbooks and the mode of the responder, and without a terminal."""
    (here.folder / "books").mkdir(exist_ok=True)
    (here.folder / "books" / "book.yaml").write_text(BOOK)
    env = {name: value for name, value in os.environ.items() if not name.startswith("FAULTLINE_")}
    env |= {
        "FAULTLINE_CLUSTER": CLUSTER,
        "FAULTLINE_KAFKA__BOOTSTRAP": here.settings.bootstrap,
        "FAULTLINE_KAFKA__CHECK_CRCS": "false",
        "FAULTLINE_KAFKA__MANAGED_TOPICS": "false",
        "FAULTLINE_KAFKA__CLUSTER_PARTITIONS": str(here.settings.cluster_partitions),
        "FAULTLINE_RESPONDER__MODE": mode,
        "FAULTLINE_RESPONDER__RUNBOOK_DIRS": json.dumps([str(here.folder / "books")]),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "faultline", *words, env=env, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), patience(PATIENCE_S))
    assert process.returncode is not None
    return Answer(process.returncode, out.decode(), err.decode())


async def test_a_runbook_is_shown_started_followed_and_looked_back_at(tmp_path: Path) -> None:
    name, one = book().id, about()
    async with site(tmp_path) as here:
        await here.publish(one)
        async with here.responder(book(), mode="approve"):
            await here.until(RunState.AWAITING_APPROVAL)
            rival = await type_(here, "runbook", "run", name, "--incident", one.id, "--yes", mode="approve")
            assert (rival.code, f"is at work for {one.id}" in rival.err) == (1, True), rival
            assert (await type_(here, "incidents", "stop", one.id)).code == 0
            await here.until(RunState.CANCELLED)

            asked = await type_(here, "runbook", "run", name, "--incident", one.id, mode="approve")
            assert (asked.code, "--yes" in asked.err) == (2, True), asked
            assert "cordon_node *" in asked.out
            assert "approved by you" in asked.out

            other = await type_(here, "runbook", "run", name, "--incident", one.id, "--yes", mode="auto")
            assert other.code == 1, other
            assert "the plan has changed since it was shown: no longer:" in other.out
            assert "in mode auto" in other.out
            assert cordons(tmp_path) == 0

            words = ("runbook", "run", name, "--incident", one.id, "--as", "ada", "--yes", "-o", "json")
            started = await type_(here, *words, "--reason", "I saw it", mode="approve")
            assert started.code == 0, started
            said = started.lines[-1]
            assert said["accepted"] is True
            assert said["text"] == f"ada started runbook {name} by hand: I saw it"
            followed = await type_(here, "runs", "follow", said["run"])
            assert followed.code == 0, followed
            assert f"{said['run']} is succeeded" in followed.out
            assert cordons(tmp_path) == 1

            listed = await type_(here, "runs", "--incident", one.id, "-o", "json")
            assert [(row["started_by"], row["outcome"]) for row in listed.lines] == [
                ("ada", "succeeded"),
                ("", "cancelled"),
            ]
            told = await type_(here, "runbook", "replay", said["run"], "-o", "json")
            kinds = [row["kind"] for row in told.lines[1:]]
            assert kinds[0] == "planned"
            assert {"call", "answer", "approval", "said", "state"} <= set(kinds)
            assert next(row for row in told.lines if row.get("kind") == "call")["key"]

            over = await type_(here, "runbook", "continue", said["run"], "--yes", mode="approve")
            assert (over.code, "ended as planned" in over.err) == (1, True), over
            typo = await type_(here, "runbook", "run", f"{name}x", "--incident", one.id, "--yes")
            assert (typo.code, name in typo.err) == (2, True), typo


async def test_a_stopped_run_is_taken_up_from_another_machine(tmp_path: Path) -> None:
    one = about()
    async with site(tmp_path) as here:
        await here.publish(one)
        async with here.responder(book(), mode="approve"):
            run = await here.until(RunState.AWAITING_APPROVAL)
            assert (await type_(here, "incidents", "stop", one.id)).code == 0
            await here.until(RunState.CANCELLED)
        async with here.responder(book(), mode="approve"):
            words = ("runbook", "continue", run.id, "--as", "ada", "--yes", "--follow")
            both = await asyncio.gather(*(type_(here, *words, mode="approve") for _ in range(2)))
            assert sorted(answer.code for answer in both) == [0, 1], both
            assert any(
                "came after" in answer.out + answer.err or "is at work" in answer.err for answer in both
            )
            assert cordons(tmp_path) == 1
            shown = await type_(here, "runs", "list", "--node", NODE, "-o", "json")
            assert [row["continues"] for row in shown.lines] == [run.id, ""]
