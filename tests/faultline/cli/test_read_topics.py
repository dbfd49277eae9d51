"""The command line reads past what is damaged, and says so."""

from __future__ import annotations

import pytest
from aiokafka import ConsumerRecord

from faultline.cli.read_topics import control_after, readable
from streams.model.codec import encode
from streams.model.control import Control


def record(value: bytes | None) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("controls", 1, 7, 0, 0, b"east", value, 0, 0, 0, ())


@pytest.mark.parametrize("value", [b"", b"\xff", b'{"cluster": 1}', b"[" * 100_000])
def test_a_record_that_cannot_be_read_is_left_out_and_its_place_is_told(
    value: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert readable(Control, record(value)) is None
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("faultline: skipping unreadable record controls:1:7: ")


def test_a_tombstone_says_nothing_and_what_is_right_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert readable(Control, record(None)) is None
    assert readable(Control, record(encode(Control("east")))) == Control("east")
    assert capsys.readouterr().err == ""


def test_a_damaged_control_is_a_kill_switch_until_a_later_one_takes_its_place() -> None:
    before = Control("east", revision=4)
    damaged = control_after(before, record(b"\xff"))
    assert damaged.kill_switch is not None
    assert "controls:1:7" in damaged.kill_switch.reason
    later = Control("east", revision=damaged.revision)
    assert control_after(damaged, record(encode(later))) == later
    assert control_after(later, record(encode(before))) == later
    assert control_after(later, record(None)) == later
