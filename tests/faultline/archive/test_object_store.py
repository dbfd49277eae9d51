"""An archive in an object store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from faultline.archive.daily_state import state_at
from faultline.archive.folder import Archive
from faultline.archive.reader import ArchivedRecords
from faultline.archive.upkeep import keep_up
from faultline.replay.archived import open_archive
from sandbox.fake_services.object_store import ObjectStoreStandin
from sandbox.fake_services.server import InjectedFault
from streams.kafka.topics import INVENTORY, SIGNALS
from streams.model.errors import Unreachable
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, T0, batch, node, one_of_each, xid
from tests.faultline.archive.writing import parts, write

pytestmark = pytest.mark.server

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ObjectStoreStandin]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "standin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "standin")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    async with ObjectStoreStandin() as running:
        yield running


async def test_what_is_written_is_listed_read_merged_and_deleted_as_in_a_folder(
    store: ObjectStoreStandin,
) -> None:
    def story() -> None:
        archive = Archive.at(store.uri("faultline-archive/gpu-east-1"))
        signals = [batch(n, xid(n), at=T0 + n * HOUR) for n in range(30)]
        for start in range(0, 30, 3):
            write(archive, signals[start : start + 3])
        write(archive, [*one_of_each(), node(1, "gpu-0008")])
        assert list(ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)) == signals
        keep_up(archive, SIGNALS, 0, T0 + 9 * DAY)
        assert [(part.first, part.last) for part in parts(archive, SIGNALS.name)] == [
            (0, 1),
            (2, 25),
            (26, 29),
        ]
        keep_up(archive, INVENTORY, 0, T0 + 9 * DAY)
        assert len(state_at(archive, INVENTORY, CLUSTER, T0 + 10 * DAY)) == 2
        capture = open_archive(archive.url, CLUSTER, T0 + 5 * HOUR, T0 + 9 * HOUR)
        assert list(capture.records[SIGNALS.name]) == signals[5:9]
        assert len(capture.state[INVENTORY.name]) == 2
        keep_up(archive, SIGNALS, 0, T0 + 9 * DAY, keep_days=8)
        assert [part.first for part in parts(archive, SIGNALS.name)] == [2, 26]

    await asyncio.to_thread(story)
    assert all(name.startswith("faultline-archive/gpu-east-1/") for name in store.objects)
    assert not store.uploads


async def test_an_upload_that_breaks_off_leaves_no_file_and_is_done_again(store: ObjectStoreStandin) -> None:
    records: list[RawRecord] = [batch(n, xid(n)) for n in range(3)]

    def story() -> None:
        archive = Archive.at(store.uri("faultline-archive/a"))
        store.fail(InjectedFault("part-", "status", times=1, status=403))
        with pytest.raises(Unreachable, match="faultline-archive"):
            write(archive, records)
        assert parts(archive, SIGNALS.name) == []
        store.heal()
        write(archive, records)
        assert list(ArchivedRecords(archive, SIGNALS.name, CLUSTER, None, None).of(0)) == records

    await asyncio.to_thread(story)
