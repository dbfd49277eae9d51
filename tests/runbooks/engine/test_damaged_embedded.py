"""A record of its own that a responder cannot read any more: it goes on where that is safe, and says where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.run_summaries import finished_header, read_finished_header
from streams.kafka.topics import CONTROLS, DEAD_LETTERS, INVENTORY, RUNS, TIMELINE
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.run import Mode, Run, RunState
from tests.runbooks.engine.test_people_embedded import Site, book, cordons, fresh, site
from tests.runbooks.herd import calls, over
from tests.runbooks.scenes import CLUSTER, JOB, cluster, incident
from tests.runbooks.topics import committed, committed_records, write
from tests.testbed.waiting import PATIENCE_S, eventually, patience

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def inhabited(folder: Path) -> AsyncIterator[Site]:
    """A site with enough nodes that closing one or two is within every limit."""
    async with site(folder) as here:
        nodes = cluster().nodes.values()
        records = ((node.key, encode(FactRecord(node))) for node in nodes)
        await write(here.settings, INVENTORY, here.partition, *records)
        yield here


async def _said(here: Site, event: str) -> list[TimelineEntry]:
    values = [value for _, value in await committed(here.settings, TIMELINE, here.partition) if value]
    return [line for value in values if (line := decode(TimelineEntry, value)).event == event]


def _elsewhere() -> Incident:
    return incident(root=Entity(CLUSTER, node="node-04"), jobs=(), updated_at=utc_now(), opened_at=utc_now())


async def _finished(here: Site) -> Run:
    """A run that has done everything, and its responder is gone."""
    await here.publish(fresh())
    async with here.responder(book(), mode=Mode.AUTO):
        # Not only its outcome: a ticket may be slower than all the rest.
        return await eventually(lambda: over(here.settings, here.partition), "it is done")


async def _closed(folder: Path, node: str) -> bool:
    return any(call[1:3] == ["cordon_node", node] for call in calls(folder))


async def _damage(here: Site, run: Run, *, headers: bool) -> int:
    """The run's record as it would be with a broken disk; its offset."""
    kept = finished_header(run) if headers else ()
    await write(here.settings, RUNS, here.partition, (run.id, b"\xff\x00"), headers=kept)
    offset: int = (await committed_records(here.settings, RUNS, here.partition))[-1].offset
    return offset


@pytest.mark.nightly
async def test_a_finished_run_that_is_damaged_stops_nobody_and_is_not_done_again(tmp_path: Path) -> None:
    async with inhabited(tmp_path) as here:
        run = await _finished(here)
        before = calls(tmp_path)
        await _damage(here, run, headers=True)
        again = replace(fresh(), revision=2)
        async with here.responder(book(), mode=Mode.AUTO):
            (lost,) = await eventually(lambda: _said(here, "run.lost"), "it is said")
            assert (lost.incident, run.id in lost.text) == (run.incident, True)
            await here.publish(again)
            none = await eventually(lambda: _said(here, "run.none"), "a person is told")
            assert {line.incident for line in none} == {run.incident}
            await here.publish(_elsewhere())
            await eventually(lambda: _closed(tmp_path, "node-04"), "the other incident is seen to")
        assert calls(tmp_path)[: len(before)] == before
        assert all(call[2] not in ("node-03", JOB.name) for call in calls(tmp_path)[len(before) :])


async def test_the_record_of_a_finished_run_says_so_and_that_of_a_run_under_way_does_not(
    tmp_path: Path,
) -> None:
    async with inhabited(tmp_path) as here:
        run = await _finished(here)
        marks = [record.headers for record in await committed_records(here.settings, RUNS, here.partition)]
        assert [read_finished_header(mark) is not None for mark in marks] == [False] * (len(marks) - 1) + [
            True
        ]
        assert read_finished_header(marks[-1]) == read_finished_header(finished_header(run))


@pytest.mark.nightly
async def test_a_run_of_which_nobody_can_tell_that_it_is_over_stops_the_responder_with_its_place(
    tmp_path: Path,
) -> None:
    async with inhabited(tmp_path) as here:
        run = await _finished(here)
        before = calls(tmp_path)
        offset = await _damage(here, run, headers=False)
        with pytest.raises(BadInput, match=rf"runs:{here.partition}:{offset} with the key '{run.id}'"):
            async with here.responder(book(), mode=Mode.AUTO) as process:
                await asyncio.wait_for(process, patience(PATIENCE_S))
        assert calls(tmp_path) == before


@pytest.mark.nightly
async def test_a_run_under_a_key_that_is_not_its_own_stops_the_responder_with_its_place(
    tmp_path: Path,
) -> None:
    async with inhabited(tmp_path) as here:
        run = await _finished(here)
        ((_, raw), *_) = await committed(here.settings, RUNS, here.partition)
        await write(here.settings, RUNS, here.partition, ("run-of-somebody", raw))
        with pytest.raises(BadInput, match=rf"key 'run-of-somebody' .*the document of {run.id}"):
            async with here.responder(book(), mode=Mode.AUTO) as process:
                await asyncio.wait_for(process, patience(PATIENCE_S))


async def test_a_control_that_is_damaged_throws_the_kill_switch_until_a_person_takes_it_back(
    tmp_path: Path,
) -> None:
    async with inhabited(tmp_path) as here:
        await write(here.settings, CONTROLS, here.partition, (CLUSTER, b"\xff\x00"))
        await here.publish(fresh())
        async with here.responder(book(), mode=Mode.AUTO):
            held = await eventually(lambda: _said(here, "step.blocked"), "the run is held")
            assert "kill switch" in held[0].text
            (said,) = await _said(here, "control.unreadable")
            assert f"controls:{here.partition}:0" in said.text
            back = await here.type("guard", "unkill", "--as", "ada", "--reason", "seen")
            assert back.code == 0, back.err
            await here.until(RunState.SUCCEEDED)
        assert cordons(tmp_path) == 1
        values = [value for _, value in await committed(here.settings, CONTROLS, here.partition)][1:]
        switches = [decode(Control, value).kill_switch for value in values if value]
        assert [switch is not None for switch in switches] == [True, False]
        assert [value for _, value in await committed(here.settings, DEAD_LETTERS, 0)] == [b"\xff\x00"]

        # The damaged record is still there, and what a person has said since counts.
        async with here.responder(book(), mode=Mode.AUTO, blast_radius={"max_share": 1.0}):
            await here.publish(_elsewhere())
            await eventually(lambda: _closed(tmp_path, "node-04"), "it acts again")
        assert len(await _said(here, "control.unreadable")) == 1


async def test_a_damaged_control_of_nobody_knows_which_cluster_stops_the_responder(tmp_path: Path) -> None:
    async with inhabited(tmp_path) as here:
        await write(here.settings, CONTROLS, here.partition, ("\x00west", b"\xff\x00"))
        with pytest.raises(BadInput, match=rf"controls:{here.partition}:0 with the key"):
            async with here.responder(book(), mode=Mode.AUTO) as process:
                await asyncio.wait_for(process, patience(PATIENCE_S))
