"""The correlator process on the embedded broker: works, says what it cannot read, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.emulated import broker as embedded
from streams.kafka.topics import INVENTORY, SIGNALS
from streams.model.incident import Incident, IncidentState
from tests.streams.correlate.emitter import Stage, present, stage
from tests.streams.correlate.world import CLUSTER, FOUR, at, cluster, run, timeouts, xid
from tests.testbed.waiting import PATIENCE_S, eventually, patience

pytestmark = [pytest.mark.nightly, pytest.mark.embedded]


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Stage]:
    with present():
        async with (
            embedded.running(log=tmp_path / "broker.log") as broker,
            stage(broker.settings, tmp_path) as found,
        ):
            yield found


async def test_it_opens_an_incident_restarts_and_closes_the_same_one(scene: Stage) -> None:
    await scene.tell(*cluster({"llama": FOUR}))
    await scene.see(xid("n2", 79, 0))
    with scene.correlator() as first:

        async def opened() -> bool:
            return [i.root.node for i in (await scene.latest()).values()] == ["n2"]

        await eventually(opened, "the incident is open")
        assert first.stop(grace_s=60) == 0
    incident = scene.published[-1]
    await scene.see(*timeouts("llama", range(8, 32), 600), run("finished", incident.id, 610, "succeeded"))
    with scene.correlator():

        async def closed() -> bool:
            latest = await scene.latest()
            return [i.state for i in latest.values()] == [IncidentState.RESOLVED]

        await eventually(closed, "the same incident is resolved, and no other was opened")
    told: dict[int, Incident] = {}
    for one in scene.published:
        # What the first said last the second may say once more, but never otherwise.
        assert told.setdefault(one.revision, one) == one
    assert list(told) == list(range(1, len(told) + 1))


async def test_what_cannot_be_read_is_buried_and_the_next_is_handled(scene: Stage) -> None:
    await scene.tell(*cluster({"llama": FOUR}))
    bad = [b"", b"\xff\xfe", b'{"cluster": "east"', b"[" * 20_000, b'{"cluster":"west","signals":[]}', None]
    for value in bad:
        await scene.write(SIGNALS, CLUSTER, value, key=CLUSTER)
    await scene.write(INVENTORY, CLUSTER, b"{}", key="no-slashes")
    await scene.see(xid("n2", 79, 0))
    with scene.correlator() as child:

        async def handled() -> bool:
            return bool(await scene.latest()) and len(scene.buried) >= len(bad) + 1

        await eventually(handled, "all are accounted for")
        assert child.exit_code is None
    assert {letter.stage for letter in scene.buried} == {"correlator"}
    assert all(letter.reason for letter in scene.buried)


async def test_a_fault_of_its_own_ends_the_process_and_loses_nothing(scene: Stage) -> None:
    await scene.tell(*cluster({"llama": FOUR}))
    await scene.see(xid("n2", 79, 0))
    with scene.correlator(fail_on=79) as child:
        assert child.wait(timeout_s=patience(PATIENCE_S)) != 0
        assert "a fault of ours" in child.tail()
    with scene.correlator():

        async def opened() -> bool:
            return bool(await scene.latest())

        await eventually(opened, "the signal is read again")


async def test_lines_of_three_days_ago_are_logged_and_put_on_the_timeline_of_the_cluster(
    scene: Stage,
) -> None:
    await scene.tell(*cluster({"llama": FOUR}))
    await scene.see(*(replace(xid("n2", 79, i), occurred_at=at(i - 3 * 86_400)) for i in range(20)))
    with scene.correlator() as child:

        async def told() -> bool:
            await scene.read()
            return any(entry.event == "reports.late" for _, entry in scene.timeline)

        await eventually(told, "they are told of")
        assert "reports.late" in child.tail()
    ((key, entry),) = [(key, entry) for key, entry in scene.timeline if entry.event == "reports.late"]
    assert (key, entry.incident, entry.attributes["left_out"]) == (CLUSTER, "", 20)
    assert not scene.published
