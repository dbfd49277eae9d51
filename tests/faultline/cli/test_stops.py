"""What stops everything is written first, and says in one line when it is not in force."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from faultline.cli.main import cli
from faultline.cli.send_command import LOOK_FIRST_S, SEND_S
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.topics import COMMANDS, partition_of
from streams.model.codec import decode
from streams.model.conversation import Command
from streams.model.errors import Unreachable
from tests.testbed.children import free_port
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import patience
from tests.testbed.withholding import FETCH, LIST_OFFSETS, PRODUCE, advertised, withholding

STOPS = [("kill",), ("freeze",), ("freeze", "--scope", "pool:a100"), ("thaw",)]


async def guard(file: Path, *words: str) -> str:
    """What ends `faultline guard`."""
    with pytest.raises(Unreachable) as ended:
        await asyncio.to_thread(cli.main, ["--config", str(file), "guard", *words], standalone_mode=False)
    return str(ended.value)


async def stored(settings: KafkaSettings) -> list[str]:
    place = partition_of("default", settings.cluster_partitions)
    records = await clients.read_to_end(settings, COMMANDS, place)
    return [decode(Command, record.value).verb.value for record in records.values()]


@pytest.mark.kafka
async def test_what_stops_is_written_where_reads_hang(tmp_path: Path) -> None:
    port = free_port()
    with Kafka.running(tmp_path, properties=advertised(port)) as kafka:
        async with withholding(port, kafka.bootstrap) as withheld:
            for words in STOPS:
                own = kafka.settings("stops")
                await provisioning.apply(own)
                file = written(tmp_path, own.bootstrap, own.topic_prefix)
                withheld |= {FETCH, LIST_OFFSETS}
                began = time.monotonic()
                ended = await guard(file, *words, "--wait", "1")
                # Each of two looks, the writing, the waiting for an answer.
                assert time.monotonic() - began < patience(2 * LOOK_FIRST_S + 4)
                assert f"{words[0]} stored as cmd-" in ended
                assert "no responder answered" in ended
                withheld.clear()
                assert await stored(own) == [words[0]]

            withheld |= {PRODUCE}
            ended = await guard(file, "kill")
            assert "the kill switch is NOT in force, not known to be stored" in ended


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("kill",),
            "the kill switch is NOT in force, nothing is stored: Kafka does not answer at 127.0.0.1:1",
        ),
        (("freeze",), "the freeze is NOT in force, nothing is stored"),
        (("freeze", "--scope", "pool:a100"), "the freeze is NOT in force, nothing is stored"),
        (("unkill",), "unkill: nothing is stored"),
    ],
)
async def test_without_kafka_it_says_in_one_line_that_nothing_is_in_force(
    tmp_path: Path, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await guard(written(tmp_path, "127.0.0.1:1", "x."), *words)
    assert told in ended
    assert "\n" not in ended
    if words == ("kill",):
        assert "kubectl -n faultline set env deploy/responder FAULTLINE_RESPONDER__KILL_SWITCH=true" in ended
        assert "kubectl -n faultline scale deploy/responder --replicas=0" in ended
        assert capsys.readouterr().err == "", "what could not be read besides is no news then"


async def test_a_broker_that_takes_connections_and_answers_nothing_is_told_in_time(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        ended = await guard(written(tmp_path, f"127.0.0.1:{port}", "x."), "kill")
        assert time.monotonic() - began < patience(LOOK_FIRST_S + SEND_S + 4)
    assert "the kill switch is NOT in force, nothing is stored" in ended


def written(folder: Path, bootstrap: str, prefix: str) -> Path:
    file = folder / "faultline.yaml"
    file.write_text(f"kafka: {{bootstrap: '{bootstrap}', topic_prefix: {prefix}, cluster_partitions: 2}}\n")
    return file
