"""Names and ids that people type."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.cli.names import picked, unknown_name
from streams.model.errors import BadInput

ROOT = Path(__file__).parents[3]
KNOWN = {"inc-5d55a0": 1, "inc-5d55b1": 2, "inc-9": 3, "inc-97": 4}


@pytest.mark.parametrize(
    ("given", "found"), [("inc-5d55a0", 1), ("5d55b", 2), ("inc-9", 3), ("9", 3), ("97", 4)]
)
def test_an_id_may_be_cut_to_a_unique_prefix_and_a_whole_one_is_itself(given: str, found: int) -> None:
    assert picked(KNOWN, given, what="incident", prefix="inc-") == found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("5d55", "5d55 matches 2 incidents: inc-5d55a0, inc-5d55b1"),
        (
            "inc-5d55c0",
            "no incident inc-5d55c0 (`faultline incidents list` lists them); did you mean 5d55a0?",
        ),
        ("zz", "no incident zz (`faultline incidents list` lists them)"),
    ],
)
def test_one_that_is_none_or_several_is_told_what_there_is(given: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        picked(KNOWN, given, what="incident", prefix="inc-", see="`faultline incidents list` lists them")
    assert str(refused.value) == said


def test_a_mistyped_name_is_told_the_known_ones_and_the_one_it_may_mean() -> None:
    said = str(unknown_name("pool", "h10", {"h100", "a100"}))
    assert said == "no pool h10; known: a100, h100; did you mean h100?"
    many = str(unknown_name("node", "zz", {f"gpu-{n:02}" for n in range(30)}))
    assert many.endswith("gpu-18, gpu-19, …")
    assert str(unknown_name("pool", "x", set())) == "no pool x; there is none"


def test_an_unknown_incident_of_a_capture_is_answered_with_those_it_has() -> None:
    asked = ["explain", "inc-0", "--capture", str(ROOT / "docs/examples/gpu-off-bus")]
    ended = CliRunner().invoke(cli, asked)
    assert isinstance(ended.exception, BadInput)
    assert "gpu-off-bus has inc-f4d032989b073d92" in str(ended.exception)
    assert "incidents list" not in str(ended.exception)
