"""Each test is in exactly one tier, and each tier is run by a command."""

from __future__ import annotations

import tomllib
from functools import partial
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.side_by_side import PARTS
from tests.tiers import SERVERS, Tier, may_hold, tier_of, wanted_markers

ROOT = Path(__file__).parents[1]
PURPOSES = {"nightly", "machinery"}
SETS = [*chain.from_iterable(combinations(sorted(SERVERS | PURPOSES), n) for n in range(4))]


def test_every_marker_says_which_tier() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    registered = {line.partition(":")[0] for line in tool["pytest"]["ini_options"]["markers"]}
    assert registered == SERVERS | PURPOSES


@pytest.mark.parametrize("tested", [True, False])
def test_whatever_its_markers_a_test_runs_in_one_tier(tested: bool) -> None:
    for markers in SETS:
        tier = tier_of(markers, machinery_tested=tested)
        assert (tier is Tier.QUICK) == (not markers), markers
        assert "nightly" not in markers or tier is Tier.NIGHTLY, markers


def test_what_needs_a_server_runs_with_every_commit_unless_it_is_for_the_night() -> None:
    for marker in SERVERS:
        assert tier_of({marker}, machinery_tested=True) is Tier.SERVER
        assert tier_of({marker, "nightly"}, machinery_tested=False) is Tier.NIGHTLY


def test_the_machinery_is_tested_when_it_changed_and_at_night() -> None:
    assert tier_of({"machinery", "kafka"}, machinery_tested=False) is Tier.SERVER
    assert tier_of({"machinery", "kafka"}, machinery_tested=True) is Tier.NIGHTLY


def test_every_tier_is_run_by_a_command() -> None:
    commands = (ROOT / "Makefile").read_text()
    assert "--tier quick" in commands
    for tier in set(Tier) - {Tier.QUICK}:
        assert f"tests.side_by_side {tier}" in commands


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("containers", {"containers"}),
        ("kafka and not cluster and not containers", {"kafka"}),
        ("not kafka and not cluster", set()),
        ("kafka or cluster", set()),
        ("not (kafka and cluster)", set()),
        ("", set()),
    ],
)
def test_files_are_left_out_only_by_what_every_wanted_test_has(expression: str, wanted: set[str]) -> None:
    assert wanted_markers(expression) == wanted
    of_nothing = Expression.compile(expression).evaluate(lambda name, /, **_: False)
    assert not (wanted and of_nothing), "a test without markers is not wanted then"


def test_a_file_is_read_for_what_it_and_the_fixtures_beside_it_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text("@pytest.mark.kafka\nasync def test_a(): ...\n")
    assert may_hold(file, {"kafka"})
    assert not may_hold(file, {"cluster"})
    quick = tmp_path / "test_quick.py"
    quick.write_text("def test_a(): ...\n")
    assert not may_hold(quick, set())
    assert may_hold(ROOT / "tests" / "connectors" / "kubernetes" / "test_nodes_contract.py", {"cluster"}), (
        "by its fixture"
    )


def test_side_by_side_each_test_is_in_one_part() -> None:
    parts = [Expression.compile(marks) for marks in PARTS.values()]
    for markers in SETS:
        of_them = partial(_is_one_of, markers)
        assert sum(part.evaluate(of_them) for part in parts) == 1, markers


def _is_one_of(markers: tuple[str, ...], name: str, /, **_: str | int | bool | None) -> bool:
    return name in markers
