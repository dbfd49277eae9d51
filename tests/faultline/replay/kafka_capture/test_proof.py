"""A name that is left in a redacted capture is told: a leak is never silent."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from urllib.parse import quote

import pytest

from faultline.replay.frames import compressed
from faultline.replay.kafka_capture.proof import NamesLeft, prove
from faultline.replay.record_format import record_line
from tests.faultline.replay.redaction.test_redaction import learned, raw

NAME = "gpu-a01-07"
PACKED = base64.b64encode(gzip.compress(f"x {NAME} y".encode(), mtime=0)).decode()


def written(folder: Path, value: bytes) -> Path:
    (folder / "raw.node-logs").mkdir()
    lines = record_line(raw(b"all is well")) + record_line(raw(value))
    (folder / "raw.node-logs" / "0.jsonl.zst").write_bytes(compressed(lines))
    return folder


@pytest.mark.parametrize(
    "value",
    [
        NAME.upper(),
        f"x{NAME}y",
        quote(quote(f" {NAME}:9100", safe=""), safe=""),
        f'{{"data":"{PACKED}"}}',
        "".join(f"%{ord(char):02x}" for char in NAME),
    ],
)
def test_a_name_that_is_left_is_told_with_its_place(tmp_path: Path, value: str) -> None:
    with pytest.raises(NamesLeft, match=f"raw.node-logs/0.jsonl.zst:2: (?i:{NAME})"):
        prove(written(tmp_path, value.encode()), learned())


def test_a_name_in_bytes_that_are_no_text_is_found(tmp_path: Path) -> None:
    with pytest.raises(NamesLeft, match=NAME):
        prove(written(tmp_path, b"\xff\xfe" + NAME.encode()), learned())


def test_what_was_redacted_is_proved(tmp_path: Path) -> None:
    changed = learned().record(raw(f"{NAME} {PACKED}".encode()))
    assert changed is not None
    assert changed.value is not None
    prove(written(tmp_path, changed.value), learned())
