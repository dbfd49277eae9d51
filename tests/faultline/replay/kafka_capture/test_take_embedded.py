"""What is taken out of a broker decides what was put into it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faultline.replay import partition_writer
from faultline.replay.capture import read
from faultline.replay.integrity import differences
from faultline.replay.kafka_capture.take import Order, take
from faultline.replay.manifest import MANIFEST, read_manifest
from faultline.replay.partition_writer import as_it_is
from faultline.replay.redaction.pseudonyms import KEY_BYTES
from faultline.replay.redaction.redaction import Learning
from faultline.replay.replay import replay_capture
from faultline.runtime.settings import Settings
from runbooks.language.loader import load
from sandbox.emulated import broker
from sandbox.emulated.broker import Broker
from streams.config.settings import KafkaSettings
from streams.kafka.topics import INVENTORY, RAW_JOB_LOGS, RAW_NODE_LOGS
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from tests.faultline.replay.kafka_capture.published import publish, with_facts
from tests.faultline.replay.test_replay import LIBRARY, capture, decided_once

pytestmark = pytest.mark.embedded

MADE = capture()
BEGIN, END = MADE.meta.begin, MADE.meta.end
CLUSTER = MADE.meta.cluster
ORDER = Order(BEGIN, END, BEGIN)
PARTITIONS = KafkaSettings(raw_partitions=3, cluster_partitions=2)


class Killed(Exception):
    """Ends a capture in the middle, as a kill would: nothing is written any more."""


class Bar:
    """Counts what it is told."""

    total: int | None = None
    done = 0

    def advance(self, by: int = 1) -> None:
        self.done += by


def settings_of(running: Broker) -> Settings:
    return Settings(cluster=CLUSTER).model_copy(update={"kafka": running.settings})


async def test_what_is_taken_decides_what_was_there(tmp_path: Path) -> None:
    directory, bar = tmp_path / "taken", Bar()
    async with broker.running(PARTITIONS, log=tmp_path / "broker.log") as running:
        await publish(running.settings, with_facts(MADE), CLUSTER)
        manifest = await take(settings_of(running), directory, ORDER, bar)
        again = await take(settings_of(running), directory, ORDER, bar)
    taken = read(directory)
    for topic, records in MADE.records.items():
        assert sorted(r.value or b"" for r in taken.records[topic]) == sorted(r.value or b"" for r in records)
    assert replay_capture(taken, runbooks=LIBRARY).decision_hash == decided_once().decision_hash
    assert bar.done == bar.total
    assert again == manifest
    assert list(differences(directory, manifest)) == []
    assert taken.runbooks is not None
    assert load([taken.runbooks], shipped=False) == load()
    assert manifest.versions.runbooks == {book.id: str(book.revision) for book in load()}


async def test_a_capture_that_was_stopped_goes_on_and_reads_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "FRAME_BYTES", 300)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    seen: list[str] = []

    def killed(record: RawRecord) -> RawRecord:
        seen.append(record.coordinates)
        if len(seen) == 15:
            raise Killed
        return record

    def counted(record: RawRecord) -> RawRecord:
        seen.append(record.coordinates)
        return record

    async with broker.running(PARTITIONS, log=tmp_path / "broker.log") as running:
        await publish(running.settings, with_facts(MADE), CLUSTER)
        settings = settings_of(running)
        expected = await take(settings, whole, ORDER, Bar())
        with pytest.raises(Killed):
            await take(settings, stopped, replace(ORDER, record=killed), Bar())
        with pytest.raises(BadInput, match="is not complete"):
            read(stopped)
        await publish(running.settings, with_facts(MADE), CLUSTER)  # the topics go on growing
        manifest = await take(settings, stopped, replace(ORDER, record=counted), Bar())
    assert manifest.topics == expected.topics
    assert manifest.state == expected.state
    assert len(seen) < 2 * sum(len(records) for records in read(whole).records.values())


async def test_another_range_is_refused_and_the_same_words_are_not(tmp_path: Path) -> None:
    async with broker.running(PARTITIONS, log=tmp_path / "broker.log") as running:
        await publish(running.settings, with_facts(MADE), CLUSTER)
        settings, directory = settings_of(running), tmp_path / "taken"
        later = replace(ORDER, end=END + timedelta(seconds=5))
        first = await take(settings, directory, replace(ORDER, asked={"from": "2h"}), Bar())
        assert await take(settings, directory, replace(later, asked={"from": "2h"}), Bar()) == first
        for other, why in (
            (later, "its end is"),
            (replace(ORDER, lead=BEGIN - timedelta(hours=1)), "its lead is"),
            (replace(ORDER, topics=(RAW_NODE_LOGS,)), "its list of topics is"),
            (replace(ORDER, incident="inc-1"), "its incident is none"),
            (replace(ORDER, learning=Learning(CLUSTER, b"k" * KEY_BYTES)), "its redaction is none"),
        ):
            with pytest.raises(BadInput, match=why):
                await take(settings, directory, other, Bar())
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "notes.txt").write_text("mine")
        with pytest.raises(BadInput, match="is not empty"):
            await take(settings, tmp_path / "other", ORDER, Bar())


async def test_compacted_topics_are_taken_as_they_stood(tmp_path: Path) -> None:
    def fact(key: str, minutes: int, value: bytes | None) -> RawRecord:
        return RawRecord(INVENTORY.name, 0, 0, BEGIN + timedelta(minutes=minutes), key.encode(), value)

    told = [
        fact("a", -60, b"old"),
        fact("b", -50, b"kept"),
        fact("c", -40, b"gone"),
        fact("a", -30, b"new"),
        fact("c", -20, None),
        fact("a", 1, b"later"),
        fact("d", 2, b"unknown before"),
    ]
    async with broker.running(PARTITIONS, log=tmp_path / "broker.log") as running:
        await publish(running.settings, told, CLUSTER)
        manifest = await take(settings_of(running), tmp_path / "taken", ORDER, Bar())
        redacted, bar = replace(ORDER, learning=Learning(CLUSTER, b"k" * KEY_BYTES)), Bar()
        await take(settings_of(running), tmp_path / "redacted", redacted, bar)
    assert bar.done == bar.total, "though more is read for its names than for its records"
    taken = read(tmp_path / "taken")
    assert [(r.key, r.value) for r in taken.state[INVENTORY.name]] == [(b"b", b"kept"), (b"a", b"new")]
    assert [(r.key, r.value) for r in taken.records[INVENTORY.name]] == [
        (b"a", b"later"),
        (b"d", b"unknown before"),
    ]
    state = manifest.state[INVENTORY.name]
    assert (state.records, state.unknown_keys) == (2, 0), "nothing was ever deleted: what is new is new"
    files = list((tmp_path / "taken").rglob("*.zst"))
    assert [path for path in files if not path.stat().st_size] == [], "zstdcat reads them all"


async def test_topics_that_are_missing_are_said(tmp_path: Path) -> None:
    async with broker.running(PARTITIONS, log=tmp_path / "broker.log") as running:
        await publish(running.settings, with_facts(MADE), CLUSTER)
        other = running.settings.model_copy(update={"topic_prefix": "other."})
        settings = settings_of(running).model_copy(update={"kafka": other})
        order = replace(ORDER, topics=(RAW_NODE_LOGS, RAW_JOB_LOGS), record=as_it_is)
        manifest = await take(settings, tmp_path / "taken", order, Bar())
    assert manifest.missing == (RAW_NODE_LOGS.name, RAW_JOB_LOGS.name)
    assert read_manifest(tmp_path / "taken" / MANIFEST) == manifest
    assert read(tmp_path / "taken").records == {}
