"""Every rule of the three lints finds what it is for, with its file and line; what ships has nothing to find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.lint import catalog, rules
from faultline.lint.cases import catalog_cases
from faultline.lint.table_source import TableSource
from runbooks.language.lint import LintFinding
from sandbox.scenario_lint import lint_scenarios, play_scenarios
from sandbox.simulation.scenario import load, pick
from streams.config.settings import CorrelatorSettings
from streams.config.table_overlay import VARIABLE
from streams.correlate.policy.families import Families, families
from streams.model.errors import BadInput

ROOT = Path(__file__).parents[3]
SCENARIOS = ROOT / "bench/scenarios.yaml"


@pytest.fixture(autouse=True)
def _no_overlay_stays() -> Iterator[None]:
    """A command in this process sets the variable; tables that were read before stay as they are."""
    yield
    os.environ.pop(VARIABLE, None)


def shipped(name: str) -> Any:
    """The content of a table that ships."""
    root = catalog.CATALOG if (catalog.CATALOG / f"{name}.yaml").is_file() else rules.CORRELATE
    return yaml.safe_load((root / f"{name}.yaml").read_text())


def table(tmp_path: Path, name: str, content: Any) -> dict[str, TableSource]:
    """A table of this content, as if it shipped."""
    file = tmp_path / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(deepcopy(content), sort_keys=False, allow_unicode=True))
    return {name: TableSource(file, None)}


def test_what_ships_is_clean() -> None:
    found, faults = catalog.tables(None)
    assert faults == []
    assert catalog.lint_catalog(found, families(), ()) == []
    found, faults = rules.tables(None)
    assert faults == []
    assert rules.lint_rules(found, CorrelatorSettings(), ()) == []
    assert lint_scenarios([SCENARIOS])[0] == []


def test_every_case_that_ships_passes() -> None:
    catalog_results = [(table, one) for table, run in catalog_cases().items() for one in run()]
    assert {table for table, _ in catalog_results} == catalog_cases().keys()
    results = [*catalog_results, *(("families", one) for one in rules.rule_cases(families()))]
    assert [(name, one.name, one.differences) for name, one in results if not one.passed] == []
    assert len(results) > 2000


def one_row(**changes: Any) -> dict[str, Any]:
    """A sheet of one row that is right, but for the changes."""
    row = {
        "id": "a", "kind": "gpu.ecc", "severity": "error", "hint": "ECC lost", "opens": "ECC lost", "source": "tests",
        "samples": [{"text": "kernel: ECC lost on GPU"}], "look_alikes": ["ECC is well"],
    }  # fmt: skip
    return {"rows": [row | changes]}


def two_rows(**changes: Any) -> dict[str, Any]:
    first, second = one_row()["rows"], one_row(**changes)["rows"]
    return {"rows": [*first, *second]}


XID_TWICE = {**shipped("xid"), "codes": [*shipped("xid")["codes"], shipped("xid")["codes"][0]]}
XID_FAMILY = {**shipped("xid"), "codes": [{**shipped("xid")["codes"][0], "family": "gpu_gone"}]}
SXID_TWICE = {**shipped("sxid"), "effects": [*shipped("sxid")["effects"], shipped("sxid")["effects"][0]]}


@pytest.mark.parametrize(
    ("name", "content", "level", "says", "line"),
    [
        ("lines/a", one_row(severity="grave"), "fault", "row a: severity", 4),
        ("lines/a", one_row(color="red"), "fault", "row a: color", 12),
        ("lines/a", one_row(opens="ECC (lost"), "fault", "RE2 refuses", 6),
        ("lines/a", one_row(fields=["(?P<x>a)", "(?<=x)b"]), "fault", "RE2 refuses", 14),
        ("lines/a", two_rows(), "fault", "there are two rows a", 12),
        ("lines/a", two_rows(id="b"), "fault", "b is never found: a opens with the same words", 16),
        (
            "lines/a",
            two_rows(id="b", opens="lost on", samples=[{"text": "kernel: ECC lost on GPU"}]),
            "fault",
            "a takes a sample of b",
            16,
        ),
        ("xid", XID_TWICE, "fault", "has two rows", None),
        ("sxid", SXID_TWICE, "fault", "has two rows", None),
        ("xid", XID_FAMILY, "fault", "'gpu_gone'", None),
    ],
    ids=["schema", "unknown key", "pattern", "pattern in a list", "same id", "same words", "takes a sample",
         "xid twice", "sxid twice", "unknown family"],
)  # fmt: skip
def test_the_lint_of_the_catalog_finds(
    tmp_path: Path, name: str, content: Any, level: str, says: str, line: int | None
) -> None:
    found = catalog.lint_catalog(table(tmp_path, name, content), families(), ())
    hits = [one for one in found if says in one.message]
    assert hits, found
    finding = hits[0]
    assert finding.level == level
    file, number, _ = finding.place.rsplit(":", 2)
    assert Path(file) == tmp_path / f"{name}.yaml"
    if line is not None:
        assert int(number) == line


def test_a_row_whose_signals_no_family_has_is_a_warning(tmp_path: Path) -> None:
    content = shipped("policy/families")
    content["signals"] = [row for row in content["signals"] if "gpu.ecc" not in row["kinds"]]
    found = catalog.lint_catalog(table(tmp_path, "lines/a", one_row()), Families.model_validate(content), ())
    ((level, line, message),) = [(one.level, one.place.rsplit(":", 2)[1], one.message) for one in found]
    assert (level, line) == ("warning", "3")
    assert "speaks of gpu.ecc" in message


def test_a_code_whose_family_no_runbook_handles_is_a_warning(tmp_path: Path) -> None:
    found = catalog.lint_catalog(table(tmp_path, "xid", shipped("xid")), families(), ("gpu_memory",))
    assert found
    assert {(one.level, one.message) for one in found} == {
        ("warning", "no runbook of its own handles the family gpu_memory")
    }


def linted(tmp_path: Path, **changes: Any) -> list[LintFinding]:
    """The findings in the tables of correlation with these changes: `families` or `policy` of a path and a value."""
    contents = {"policy/families": shipped("policy/families"), "policy/policy": shipped("policy/policy")}
    uncovered = changes.pop("uncovered", ())
    settings = changes.pop("settings", CorrelatorSettings())
    for name, change in changes.items():
        change(contents[f"policy/{name}"])
    found = {
        name: source
        for part, content in contents.items()
        for name, source in table(tmp_path, part, content).items()
    }
    return rules.lint_rules(found, settings, uncovered)


def set_at(*path: Any, value: Any) -> Any:
    def change(content: Any) -> None:
        for part in path[:-1]:
            content = content[part]
        content[path[-1]] = value

    return change


def add_rule(**row: Any) -> Any:
    return lambda content: content["signals"].append({"family": "gpu_fault", "says": "it", **row})


def drop_family(content: Any) -> None:
    content["families"]["unheard"] = {**content["families"]["hang"], "rank": 1}


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({"families": set_at("families", "hang", "rank", value="high")}, "fault", "families.hang.rank"),
        ({"families": add_rule(kinds=["gpu.sparkle"])}, "fault", "'gpu.sparkle'"),
        ({"families": add_rule(kinds=["gpu.slow"])}, "fault", "it is never reached for gpu.slow"),
        ({"families": add_rule(kinds=["node.thermal"], subtypes=["fan"], severities=["error"])}, "fault", "node.thermal fan"),
        ({"families": add_rule(kinds=["fabric.pfc_storm"], says="{a.b}")}, "fault", "cannot be filled in"),
        ({"families": drop_family}, "fault", "families.unheard: 'unheard'"),
        ({"families": lambda c: c["families"]["hang"].update(explains=["node_down"])}, "fault", "ranks as high or higher"),
        ({"families": set_at("families", "hang", "rank", value=100)}, "warning", "the same rank"),
        ({"families": set_at("families", "hang", "title", value="{job!r}")}, "fault", "cannot be filled in"),
        ({"uncovered": ("hang",)}, "warning", "no runbook of its own handles the family hang"),
        ({"policy": set_at("deadly", value=["gpu_gone"])}, "fault", "'gpu_gone'"),
        ({"policy": lambda c: c["severity"].append({"families": ["node_down"], "is": "info"})}, "fault", "never reached"),
        ({"policy": set_at("bursts", "silence_s", value=20_000)}, "fault", "is not shorter than bursts.sticky_s"),
        ({"policy": set_at("starts", "apart_s", value=1000)}, "fault", "starts.patience_s"),
        ({"settings": CorrelatorSettings(retention_minutes=2)}, "fault", "correlator.retention_minutes"),
    ],
    ids=["schema", "unknown kind", "never reached", "never reached with a severity", "words of a signal", "unknown family",
         "explains upwards", "same rank", "words of a family", "no runbook", "unknown family of policy", "severity never reached",
         "bursts", "starts", "settings"],
)  # fmt: skip
def test_the_lint_of_rules_finds(tmp_path: Path, changes: dict[str, Any], level: str, says: str) -> None:
    found = linted(tmp_path, **changes)
    hits = [one for one in found if says in one.message]
    assert hits, found
    assert hits[0].level == level
    assert hits[0].file.endswith(".yaml")
    assert int(hits[0].place.rsplit(":", 2)[1]) > 1


def test_a_row_that_another_one_hides_fails_its_case() -> None:
    content = shipped("policy/families")
    content["signals"].append({"kinds": ["gpu.slow"], "family": "straggler", "says": "hidden"})
    failed = [one for one in rules.rule_cases(Families.model_validate(content)) if not one.passed]
    assert [one.name.partition(": ")[2] for one in failed] == ["gpu.slow"]


OFF_BUS: dict[str, Any] = {"kinds": ["gpu_off_bus"]}
SCENARIO = {"name": "a", "about": "tests", "campaign": OFF_BUS}


@pytest.mark.parametrize(
    ("items", "level", "says"),
    [
        ([{**SCENARIO, "plant": {"nodes": 1}}], "fault", "plant.nodes"),
        ([{**SCENARIO, "colour": "red"}], "fault", "colour"),
        ([SCENARIO, deepcopy(SCENARIO)], "fault", "a is there twice"),
        ([{**SCENARIO, "campaign": {"kinds": ["gpu_of_bus"]}}], "fault", "did you mean gpu_off_bus"),
        ([{**SCENARIO, "look_alikes": {"kinds": ["nothing"]}}], "fault", "there is no kind 'nothing'"),
        ([{**SCENARIO, "background": {"rates": {"notebok": 1}}}], "fault", "did you mean notebook"),
        ([{**SCENARIO, "site": "moon"}], "fault", "there is no site 'moon'"),
        ([{**SCENARIO, "campaign": {}}], "fault", "nothing happens"),
        ([{**SCENARIO, "campaign": {**OFF_BUS, "faults": 0, "per_hundred_nodes": 0}}], "fault", "no fault is injected"),
        ([{**SCENARIO, "jobs": {"nodes": [64]}}], "warning", "no job ever starts"),
    ],
    ids=["schema", "unknown key", "twice", "unknown kind", "unknown look-alike", "unknown rate", "unknown site",
         "nothing happens", "no fault", "no job"],
)  # fmt: skip
def test_the_lint_of_scenarios_finds(
    tmp_path: Path, items: list[dict[str, Any]], level: str, says: str
) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(yaml.safe_dump(deepcopy(items)))
    found, count = lint_scenarios([file])
    assert count == len(items)
    hits = [one for one in found if says in one.message]
    assert hits, found
    assert (hits[0].level, hits[0].file) == (level, str(file))


def test_a_fault_that_its_site_cannot_have_is_named(tmp_path: Path) -> None:
    from sandbox.simulation import faults, sites

    kind, site = next(
        (kind, name)
        for kind in sorted(faults.KINDS)
        for name, one in sorted(sites.sites().items())
        if not faults.needs(kind) <= one.features
    )
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump({**SCENARIO, "site": site, "campaign": {"kinds": [kind]}}))
    assert f"no fault of it can happen at {site}" in lint_scenarios([file])[0][0].message
    file.write_text(yaml.safe_dump({**SCENARIO, "site": site, "campaign": {"kinds": ["gpu_off_bus", kind]}}))
    assert f"{kind} never happens at {site}" in lint_scenarios([file])[0][0].message


def test_a_scenario_is_played_twice_and_one_that_finds_no_place_fails(tmp_path: Path) -> None:
    assert [one.passed for _, one in play_scenarios([SCENARIOS], ("gpu_off_bus",), 3, 16)] == [True]
    with pytest.raises(BadInput, match="no scenario other"):
        list(play_scenarios([SCENARIOS], ("other",), 1, None))
    file = tmp_path / "crowded.yaml"
    file.write_text(
        yaml.safe_dump(
            {**SCENARIO, "plant": {"nodes": 4}, "jobs": {"busy": 0}, "campaign": {"kinds": ["cuda_oom"]}}
        )
    )
    ((_, result),) = play_scenarios([file], (), 1, None)
    assert not result.passed


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    "command", [["catalog", "lint"], ["rules", "lint"], ["scenario", "lint", str(SCENARIOS)]]
)
def test_a_lint_of_what_ships_ends_well_and_counts(command: list[str]) -> None:
    ran = run(*command, "-o", "json")
    assert ran.exit_code == 0, ran.output
    *rest, summary = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rest == []
    assert (summary["record"], summary["faults"], summary["warnings"]) == ("summary", 0, 0)


def test_findings_of_a_folder_are_those_in_its_files_and_sarif_has_their_lines(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/nvrm.yaml").write_text("rows:\n  - id: mine\n    kind: gpu.ecc\n")
    (tmp_path / "other.yaml").write_text("{}\n")
    ran = run("catalog", "lint", str(tmp_path))
    assert ran.exit_code == 1
    assert f"{tmp_path}/lines/nvrm.yaml:2:5: fault: row mine: " in ran.stdout
    assert f"{tmp_path}/other.yaml:1:1: fault: there is no table other.yaml" in ran.stdout
    told = json.loads(run("catalog", "lint", str(tmp_path), "-o", "sarif").stdout)
    places = [one["locations"][0]["physicalLocation"] for one in told["runs"][0]["results"]]
    assert {place["region"]["startLine"] for place in places} == {1, 2}
    assert all(one["level"] == "error" for one in told["runs"][0]["results"])


def test_a_warning_fails_only_a_strict_lint(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump({**SCENARIO, "jobs": {"nodes": [64]}}))
    assert run("scenario", "lint", str(file)).exit_code == 0
    assert run("scenario", "lint", str(file), "--strict").exit_code == 1


def test_a_folder_whose_families_cannot_be_read_is_linted_with_their_place(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/families.yaml").write_text("families:\n  gpu_off_buss: {rank: 3}\n")
    linted = subprocess.run(
        [sys.executable, "-m", "faultline", "rules", "lint", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert linted.returncode == 1
    assert linted.stdout == (
        f"{tmp_path}/policy/families.yaml:2:3: fault: families.gpu_off_buss: 'gpu_off_buss' is not a known value; "
        "did you mean gpu_off_bus?\n"
    )


def test_every_fault_of_a_scenario_is_told_in_plain_words(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nabout: tests\nsite: nvl27\nplnt: {nodes: 64}\n"
        "campaign: {kinds: [tensor_rank_hng]}\nbackground: {rates: {notebok: 40}}\n"
    )
    found = {one.place: one.message for one in lint_scenarios([file])[0]}
    assert found == {
        f"{file}:4:1": "plnt: there is no such key; did you mean plant?",
        f"{file}:3:1": "there is no site 'nvl27'; did you mean nvl72?",
        f"{file}:5:20": "there is no kind 'tensor_rank_hng'; did you mean tensor_rank_hang?",
        f"{file}:6:22": "there is no background kind 'notebok'; did you mean notebook?",
    }
    with pytest.raises(BadInput, match=r"mine.yaml: plnt: there is no such key; did you mean plant\?"):
        load(file)
    file.write_text("")
    (fault,) = lint_scenarios([file])[0]
    assert fault.message == "must be a mapping of keys; it is empty"


def test_a_misspelt_name_of_a_scenario_is_guessed() -> None:
    with pytest.raises(BadInput) as raised:
        pick(SCENARIOS, "gpu_of_bus")
    assert str(raised.value).endswith("there is no gpu_of_bus; did you mean gpu_off_bus?")
