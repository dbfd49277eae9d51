"""Arguments that nobody types by mistake: times before 1970, a key inside of what is given away, marks that turn a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.commands.capture import _order, learning_of
from faultline.cli.main import cli
from faultline.cli.names import picked
from faultline.runtime.settings import Settings
from faultline.why.tree import branch, lines
from streams.model.clock import EPOCH
from streams.model.errors import BadInput
from streams.model.message import plain

EXAMPLE = "docs/examples/gpu-off-bus"
HOSTILE = "\x07\r\n\u202e\u200b" + "x" * 5000


def asked(begin: str, end: str = "now") -> dict[str, str]:
    return {"from": begin, "to": end, "lead": ""}


def test_records_of_a_capture_begin_at_1970_at_the_earliest() -> None:
    assert _order(Settings(), asked("1970-01-01T00:00:00Z"), None, None).lead == EPOCH
    with pytest.raises(BadInput, match="before 1970"):
        _order(Settings(), asked("0001-01-01T00:00:00Z"), None, None)


def test_what_is_still_to_come_cannot_be_taken(capsys: pytest.CaptureFixture[str]) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert _order(Settings(), asked("2h", later), None, None).end <= datetime.now(UTC)
    assert "still to come" in capsys.readouterr().err


def test_a_key_is_not_put_into_what_is_given_away(tmp_path: Path) -> None:
    directory = tmp_path / "given-away"
    with pytest.raises(BadInput, match="given away with it"):
        learning_of("c1", directory, directory / "keys" / "key.hex")
    assert not directory.exists()


def test_an_empty_id_is_no_incident() -> None:
    found = CliRunner().invoke(cli, ["explain", "", "--capture", EXAMPLE])
    assert isinstance(found.exception, BadInput)
    assert "empty" in str(found.exception)


def test_what_was_typed_is_escaped_and_cut_in_an_error() -> None:
    with pytest.raises(BadInput) as refused:
        picked({"inc-1": 1}, HOSTILE, what="incident", prefix="inc-")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_no_node_has_a_name_of_thousands_of_characters() -> None:
    found = CliRunner().invoke(cli, ["why-not", HOSTILE, "--capture", EXAMPLE])
    assert isinstance(found.exception, BadInput)
    assert len(str(found.exception)) < 200


def test_a_name_in_a_tree_turns_no_line_around() -> None:
    shown = "".join(lines(branch("node", "a\u202eb\u200bc\x07")))
    assert shown == r"a\u202eb\u200bc\x07"
    assert plain("a\u202eb", 10) == "ab"
