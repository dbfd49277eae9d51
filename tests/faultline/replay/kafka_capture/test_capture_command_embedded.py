"""`faultline capture` as it is typed: of one incident, and redacted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
import zstandard
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from faultline.replay.capture import read
from faultline.replay.replay import replay_capture
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka.topics import INCIDENTS, RUNS, TIMELINE
from streams.model.clock import rfc3339
from streams.model.codec import encode
from streams.model.record import RawRecord
from tests.faultline.replay.kafka_capture.published import publish, with_facts
from tests.faultline.replay.test_replay import LIBRARY, capture, decided_once

pytestmark = pytest.mark.embedded

MADE = capture()
CLUSTER = MADE.meta.cluster
NOISE = 3000
END = MADE.meta.end + timedelta(minutes=10)
"""Decisions are made when nothing more comes."""
RANGE = ["--from", rfc3339(MADE.meta.begin), "--to", rfc3339(END), "--lead", "0m"]


def decided_records() -> Iterator[RawRecord]:
    """What correlator and responder would have written."""
    decided = decided_once()
    for incident in decided.incidents.values():
        yield RawRecord(INCIDENTS.name, 0, 0, incident.updated_at, incident.id.encode(), encode(incident))
    for run in decided.runs:
        yield RawRecord(RUNS.name, 0, 0, run.updated_at, run.id.encode(), encode(run))
    for incident in decided.incidents.values():
        said = b'{"incident":"%s","cluster":"%s","actor":"Ada Byron (U0000001)","event":"person.ack"}'
        told = said % (incident.id.encode(), CLUSTER.encode())
        yield RawRecord(TIMELINE.name, 0, 0, incident.updated_at, incident.id.encode(), told)
    for entry in decided.revisions:
        yield RawRecord(TIMELINE.name, 0, 0, entry.at, (entry.incident or "").encode(), encode(entry))


def noise() -> Iterator[RawRecord]:
    """What other nodes say at the same time."""
    one = next(iter(MADE.records["raw.node-logs"]))
    for number in range(NOISE):
        at = MADE.meta.begin + timedelta(milliseconds=100 * number)
        value = b'{"host":"other-%03d","msg":"NVRM: Xid (PCI:0000:3b:00): 31, pid=%d"}' % (
            number % 500,
            number,
        )
        yield one._replace(timestamp=at, value=value)


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    """Settings of a broker with production on it."""
    base = KafkaSettings(raw_partitions=3, cluster_partitions=2)
    async with broker.running(base, log=tmp_path / "broker.log") as running:
        await publish(running.settings, [*noise(), *with_facts(MADE), *decided_records()], CLUSTER)
        kafka = running.settings.model_dump(mode="json", exclude_defaults=True)
        path = tmp_path / "faultline.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "cluster": CLUSTER,
                    "kafka": kafka,
                    "responder": {"lease_s": 6, "approvers": ["slack:S0ONCALL"]},
                    "kubernetes": {"kubeconfig": str(tmp_path / "kubeconfig")},
                }
            )
        )
        yield path


async def typed(config: Path, *words: str) -> Result:
    """A call of the command line, beside the loop that the broker needs."""
    return await asyncio.to_thread(CliRunner().invoke, cli, ["--config", str(config), *words])


async def typed_alone(*words: str) -> Result:
    """The same on a machine that has no settings."""
    return await asyncio.to_thread(CliRunner().invoke, cli, list(words))


def content(directory: Path) -> bytes:
    """All files of a capture, unpacked."""
    read_ = [
        zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True).read()
        if path.suffix == ".zst"
        else path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    ]
    return b"\n".join(read_)


async def test_what_one_incident_needs_is_small_and_decides_it_again(config: Path, tmp_path: Path) -> None:
    (wanted,) = [i for i in decided_once().incidents.values() if i.root.gpu]
    directory = tmp_path / "ticket"
    asked = await typed(config, "capture", str(directory), "--incident", wanted.id[:9])
    assert asked.exit_code == 0, asked.output
    assert f"decides {wanted.id} the same" in asked.output
    taken = read(directory)
    again = replay_capture(taken, runbooks=LIBRARY).incidents[wanted.id]
    assert (again.root, again.family, again.certainty) == (wanted.root, wanted.family, wanted.certainty)
    assert sum(len(taken.records[topic]) for topic in MADE.records) < NOISE / 20
    alone = await typed_alone("replay", str(directory), "--against")
    assert "0 only here, 0 only there" in alone.output, alone.output
    again_asked = await typed(config, "capture", str(directory), "--incident", wanted.id[:9])
    assert "is complete already" in again_asked.output


async def test_a_redacted_capture_holds_no_name_and_decides_the_same(config: Path, tmp_path: Path) -> None:
    directory, key = tmp_path / "redacted", tmp_path / "key.hex"
    asked = await typed(config, "capture", str(directory), *RANGE, "--redact", "--redaction-key", str(key))
    assert asked.exit_code == 0, asked.output
    taken, plain = read(directory), replay_capture(MADE, runbooks=LIBRARY)
    again = replay_capture(taken, runbooks=LIBRARY)
    nodes = {node for incident in plain.incidents.values() for node in incident.nodes}
    assert nodes
    found = content(directory)
    assert [name for name in nodes if name.encode() in found] == []
    assert "left in plain text, words that rules look for: ml, train" in asked.output
    assert sorted(i.family for i in again.incidents.values()) == sorted(
        i.family for i in plain.incidents.values()
    )
    for secret in ("Ada", "Byron", "U0000001", "S0ONCALL", str(tmp_path)):
        assert secret.encode() not in found, secret
    alone = await typed_alone("replay", str(directory))
    assert alone.exit_code == 0, alone.output
    recorded = {record.key for record in taken.records[INCIDENTS.name]}
    assert {name.encode() for name in again.incidents} == recorded, "ids are those of the pseudonyms"
    assert key.stat().st_mode & 0o077 == 0
    (directory / "settings.yaml").write_text(f"cluster: {CLUSTER}\nnoname: {{}}\n")
    broken = await typed(config, "capture", str(directory), *RANGE, "--redact", "--redaction-key", str(key))
    assert (broken.exit_code, "CANNOT BE REPLAYED" in broken.output) == (1, True), broken.output
    refused = await typed(config, "capture", str(directory), *RANGE, "--redact")
    assert refused.exit_code != 0
    assert "--redaction-key" in str(refused.exception)


async def test_times_that_make_no_sense_are_refused(config: Path, tmp_path: Path) -> None:
    for words, why in (
        (["--from", "1h", "--to", "2h"], "is not before"),
        (["--from", "soon"], "--from 'soon'"),
        ([], "--from has to say"),
        (["--from", "2h", "--topics", "raw.nothing"], "raw.nothing"),
        (["--from", "2h", "--redaction-key", "x"], "--redact"),
    ):
        asked = await typed(config, "capture", str(tmp_path / "never"), *words)
        assert why in str(asked.exception), words
        assert not (tmp_path / "never").exists()
