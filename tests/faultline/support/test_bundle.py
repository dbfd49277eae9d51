"""The bundle: names are replaced or nothing is written, it is bounded, its owner's alone, and never written over anything."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faultline.replay.kafka_capture.proof import NamesLeft
from faultline.replay.redaction.pseudonyms import KEY_BYTES
from faultline.replay.redaction.redaction import Learning, Redaction
from faultline.runtime.settings import Settings, edited
from faultline.support import bundle
from faultline.support.bundle import Gathered, name_of, redact, write
from faultline.support.gather import add_logs, add_settings, learn_settings
from streams.kafka.topics import INCIDENTS
from streams.model.codec import encode, encode_plain
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from tests.runbooks.scenes import CLUSTER, incident

AT = datetime(2026, 3, 2, 3, 0, tzinfo=UTC)
SECRET = "xoxb-very-secret-token"


def learning() -> Learning:
    return Learning(CLUSTER, b"k" * KEY_BYTES)


def gathered(learned: Learning) -> Gathered:
    about = incident()
    learned.learn(RawRecord(INCIDENTS.name, 0, 0, AT, about.id.encode(), encode(about)))
    learned.learn_host("gpu-prod-0417")
    found = Gathered()
    found.add_rows("incidents.jsonl", [encode_plain(about)])
    found.add(
        "logs/1.log",
        b'{"event": "call", "target": "Node/gpu-prod-0417"}\nplain text of gpu-prod-0417, 10.20.30.40\n',
    )
    return found


def test_every_known_name_is_replaced_the_same_everywhere() -> None:
    learned = learning()
    parts = redact(gathered(learned), learned)
    whole = b"".join(parts.values()).decode()
    assert "gpu-prod-0417" not in whole
    assert "10.20.30.40" not in whole
    first, second = parts["logs/1.log"].decode().splitlines()
    name = json.loads(first)["target"].removeprefix("Node/")
    assert f"plain text of {name}," in second
    assert json.loads(parts["incidents.jsonl"])["family"] == incident().family


def test_with_a_name_left_nothing_may_be_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = learning()
    found = gathered(learned)

    def forgetful(value: bytes, text: object) -> bytes:
        return value

    monkeypatch.setattr(bundle, "redacted", forgetful)
    with pytest.raises(NamesLeft, match=r"logs/1.log:1: gpu-prod-0417"):
        redact(found, learned)


def test_settings_hold_what_decides_and_never_a_secret_or_an_address() -> None:
    pairs = ["slack.channel=C0INCIDENTS", f"slack.token={SECRET}", "kafka.bootstrap=broker-7.corp.example.test:9092",
             "responder.blast_radius.max_nodes=7"]  # fmt: skip
    settings, found, learned = edited(Settings(), pairs), Gathered(), learning()
    add_settings(found, settings, "0123456789ab")
    (content,) = found.parts.values()
    assert json.loads(content)["settings"]["responder"]["blast_radius"]["max_nodes"] == 7
    assert SECRET.encode() not in content
    assert b"broker-7" not in content
    learn_settings(learned, settings)
    found.add("logs/1.log", b"Kafka does not answer at broker-7.corp.example.test:9092\n")
    assert b"broker-7.corp" not in redact(found, learned)["logs/1.log"]


def test_the_archive_is_its_owners_alone_the_same_for_the_same_parts_and_never_over_another(
    tmp_path: Path,
) -> None:
    parts, file = {"versions.jsonl": b"{}\n", "logs/1.log": b"a line\n"}, tmp_path / name_of(AT)
    assert file.name == "faultline-support-20260302T030000Z.tar.gz"
    size = write(file, parts, {"lags.jsonl": "could not be read"}, {"config": "0123456789ab"}, AT)
    assert (file.stat().st_size, stat.S_IMODE(file.stat().st_mode)) == (size, 0o600)
    with tarfile.open(file) as archive:
        names = archive.getnames()
        manifest = json.load(archive.extractfile(names[0]) or io.BytesIO())
    top = "faultline-support-20260302T030000Z"
    assert names == [f"{top}/manifest.json", f"{top}/logs/1.log", f"{top}/versions.jsonl"]
    assert manifest["left_out"] == {"lags.jsonl": "could not be read"}
    again = tmp_path / "again"
    again.mkdir()
    write(again / file.name, parts, {"lags.jsonl": "could not be read"}, {"config": "0123456789ab"}, AT)
    assert (again / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(BadInput, match="is not written over"):
        write(file, parts, {}, {}, AT)


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    elsewhere, file = tmp_path / "elsewhere", tmp_path / name_of(AT)
    file.symlink_to(elsewhere)
    with pytest.raises(BadInput):
        write(file, {}, {}, {}, AT)
    assert not elsewhere.exists()


def test_a_long_log_is_cut_to_its_end_and_names_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.support.gather.MAX_PART_BYTES", 100)
    log = tmp_path / "..%2Fetc%2Fpasswd.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    found = Gathered()
    add_logs(found, [log, tmp_path / "not-there.log"])
    assert list(found.parts) == ["logs/1.log"]
    lines = found.parts["logs/1.log"].decode().splitlines()
    assert lines[-1] == "line 99"
    assert all(line.startswith("line ") for line in lines)
    assert list(found.left_out) == ["logs/2.log"]


def test_a_bundle_that_is_full_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 50)
    found = Gathered()
    found.add("one", b"x" * 40)
    found.add("two", b"x" * 40)
    assert list(found.parts) == ["one"]
    assert list(found.left_out) == ["two"]


def test_lines_that_nobody_can_read_are_left_out_and_counted() -> None:
    learned, found = learning(), Gathered()
    found.add("logs/1.log", b"\xff\xfe\x00\x9a\nreadable\n")
    assert redact(found, learned) == {"logs/1.log": b"readable\n"}
    assert found.left_out == {"logs/1.log": "1 lines that nobody can read"}
    assert isinstance(learned.learned(), Redaction)
