from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from streams.model.errors import BadInput

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "docs/examples/gpu-off-bus")


@pytest.fixture(autouse=True)
def replayed_by_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def whatif(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["whatif", *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--set", "responder.killswitch=on"), "did you mean kill_switch?"),
        (("--budget", "cordon=0"), "did you mean cordons?"),
        (("--format", "sarif"), "--format is that of one --out FILE"),
        (("--out", "change.doc"), "change.doc: what format?"),
        (("--from", "2h"), "is a capture, with times of its own"),
        (
            ("--set", "responder.mode=approve", "--out", "nowhere/o.md"),
            "nowhere/o.md: there is no directory nowhere",
        ),
        (("--budget", "cordons=0"), "nothing is edited: give --set, --settings"),
        (("--fail-on-difference",), "nothing is edited"),
        (("--out", "o.md"), "nothing is edited"),
        (("--spares", "4", "--fail-on-difference"), "nothing is edited"),
    ],
)
def test_a_wrong_argument_is_told_before_anything_is_replayed(arguments: tuple[str, ...], told: str) -> None:
    result = whatif(EXAMPLE, *arguments)
    assert isinstance(result.exception, BadInput)
    assert told in str(result.exception)


def test_a_source_that_is_compared_with_itself_is_said_to_be() -> None:
    result = whatif(EXAMPLE)
    assert result.exit_code == 0
    assert "nothing is edited: give --set, --settings" in result.stderr


def test_an_edit_that_changes_nothing_is_a_check_that_passes_and_says_so() -> None:
    result = whatif(EXAMPLE, "--set", "responder.mode=shadow", "--fail-on-difference")
    assert result.exit_code == 0
    assert "the edit changes nothing" in result.stderr


@pytest.mark.parametrize("length", ["0", "soon", "-5m", "5 m"])
def test_no_length_of_time_is_a_usage_error(length: str) -> None:
    result = whatif(EXAMPLE, f"--checkpoint-every={length}")
    assert result.exit_code == 2
    assert "300, 90s, 20m, 6h or 2d" in result.output


def test_over_budget_is_exit_code_1_and_what_is_printed_stays_json(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.md", "a.html", "a.xml", "a.sarif")]
    result = whatif(
        EXAMPLE, "--set", "responder.mode=approve", "--budget", "pages=0,cordons=0", "--output", "json",
        *(part for file in files for part in ("--out", str(file))),
    )  # fmt: skip
    assert result.exit_code == 1
    assert "over budget: pages more: 1, budget 0" in result.stderr
    lines = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert [line["record"] for line in lines] == ["summary", "edit", "incident"]
    assert (lines[0]["schema"], lines[0]["pages"]) == (1, {"before": 0, "added": 1, "removed": 0})
    assert lines[0]["decision_hash_before"] == lines[0]["decision_hash_after"]
    assert all(file.read_text() for file in files)


def test_a_question_of_structure_without_an_edit_replays_once_and_says_what_is_not_known() -> None:
    result = whatif(EXAMPLE, "--checkpoint-every", "20m", "--output", "json")
    assert result.exit_code == 0
    summary, structure = map(orjson.loads, result.stdout.splitlines())
    assert summary["differing"] == 0
    assert structure["record"] == "structure"
    assert structure["ettr"]["before"] == pytest.approx(1 - 8.0 / structure["held"], abs=0.01)
    assert (structure["unknown_repeated"], structure["bases"][0]["known"]) == (1, 0)
