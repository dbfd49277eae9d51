"""`faultline runbook`: exit codes, output that others script against, and no broker anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from streams.model.codec import encode
from streams.model.errors import BadInput, ConfigError
from tests.runbooks.language.test_cases import CASES
from tests.runbooks.language.test_includes_and_overrides import FILES
from tests.runbooks.language.test_parameters import BOOK
from tests.runbooks.scenes import incident

OWN = BOOK.replace("mode: auto", "mode: auto\npriority: 1000")
OVERRIDE = "override: gpu-off-bus\nrevision: 1\nmode: approve\n"


def run(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["runbook", *map(str, arguments)], input=given)


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "worked-out.cases.yaml").write_text(CASES)
    return tmp_path


def test_lint_says_no_with_every_fault_at_its_place(own: Path) -> None:
    (own / "own.yaml").write_text(OWN.replace("parameters.only", "parameters.onli"))
    result = run("lint", own, "-o", "json")
    found = lines(result)
    assert result.exit_code == 1
    assert [one["record"] for one in found] == ["fault", "summary"]
    assert found[0]["place"] == f"{own}/own.yaml:24:37"
    assert "there is no `onli`" in found[0]["message"]
    assert found[1]["faults"] == 1


def test_lint_is_content_with_what_ships_and_with_a_warning_unless_it_is_strict(own: Path) -> None:
    assert run("lint").exit_code == 0
    (own / "own.yaml").write_text(
        OWN.replace("  careful:", "  idle: {type: yes_no, default: true}\n  careful:")
    )
    result = run("lint", own)
    assert result.exit_code == 0
    assert result.stdout == f"{own}/own.yaml:12:9: warning: parameter idle is never used\n"
    assert run("lint", own, "--strict").exit_code == 1


NETWORK = OWN.replace("    target: root_node\n", "    target: root_node\n    approval: {group: network}\n", 1)
SETTINGS = "kafka: {managed_topics: false}\nresponder: {runbook_dirs: [%s], approval_groups: {oncall: [ada, eve]%s}}\n"


def test_a_group_that_the_settings_do_not_have_is_a_fault_and_the_responder_does_not_start(own: Path) -> None:
    (own / "own.yaml").write_text(NETWORK)
    assert run("lint", own).exit_code == 0
    config = own / "faultline.yml"
    config.write_text(SETTINGS % (own, ""))
    result = CliRunner().invoke(cli, ["--config", str(config), "runbook", "lint"])
    fault = f"{own}/own.yaml:{NETWORK.splitlines().index('    approval: {group: network}') + 1}:23"
    assert result.exit_code == 1
    assert result.stdout.startswith(
        f"{fault}: fault: steps.cordon.approval: there is no approval group network"
    )
    started = CliRunner().invoke(cli, ["--config", str(config), "run", "responder"])
    assert isinstance(started.exception, ConfigError)
    assert f"{fault}: steps.cordon.approval: there is no approval group" in str(started.exception)
    config.write_text(SETTINGS % (own, ", network: [bo]"))
    assert CliRunner().invoke(cli, ["--config", str(config), "runbook", "lint"]).exit_code == 0


def test_lint_reads_a_file_alone_and_finds_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(FILES["base.yaml"])
    result = run("lint", tmp_path / "base.yaml", "--no-library", "-o", "json")
    assert result.exit_code == 1
    assert "there is no fragment closing" in lines(result)[0]["message"]


def test_a_plan_for_a_family_tells_choice_losers_targets_and_digest(own: Path) -> None:
    result = run("plan", "gpu_off_bus", "--runbooks", own, "--fact", "bare=true", "-o", "json")
    assert result.exit_code == 0
    choice, plan, *steps = lines(result)
    assert (choice["runbook"], plan["runbook"], plan["runbook_revision"]) == ("worked-out", "worked-out", 1)
    assert plan["parameters"]["wait_s"] == 600.0
    assert [(s["id"], s["target"]["name"]) for s in steps] == [("cordon", "node-03"), ("drain", "node-03")]
    assert len(plan["digest"]) == 32
    rejected = {one["runbook"]: one for one in choice["rejected"]}
    assert rejected["gpu-off-bus"]["why"].startswith("priority")
    assert rejected["hang"]["unmet"] == ['incident.family == "hang"']
    again = lines(run("plan", "gpu_off_bus", "--runbooks", own, "--fact", "bare=true", "-o", "json"))
    assert again[1]["digest"] == plan["digest"]


def test_a_plan_tells_which_value_is_from_which_file(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(OVERRIDE)
    found = lines(run("plan", "gpu_off_bus", "--runbooks", tmp_path, "-o", "json"))
    origins = {one["key"]: one["place"] for one in found if one["record"] == "origin"}
    assert origins["mode"] == f"{tmp_path}/site.yaml:3:7"
    text = run("plan", "gpu_off_bus", "--runbooks", tmp_path).stdout
    assert f"{tmp_path}/site.yaml:3:7" in text


def test_a_plan_that_cannot_be_made_is_a_no_with_its_reason(own: Path) -> None:
    result = run("plan", "gpu_off_bus", "--runbooks", own, "-o", "json")
    assert result.exit_code == 1
    assert "no such member in mapping: 'bare'" in lines(result)[1]["reason"]
    assert "not started, manual action required" in run("plan", "gpu_off_bus", "--runbooks", own).stdout


def test_a_plan_is_made_for_incidents_as_the_command_line_prints_them(tmp_path: Path) -> None:
    raw = encode(incident())
    for given in (raw, b'{"incident": %b, "runs": []}' % raw, raw + b"\n" + raw + b"\n"):
        found = lines(run("plan", "-", "-o", "json", given=given))
        assert {one["runbook"] for one in found if one["record"] == "choice"} == {"gpu-off-bus"}
    (tmp_path / "incident.json").write_bytes(raw)
    assert run("plan", tmp_path / "incident.json").exit_code == 0


def test_a_plan_is_made_for_the_incidents_of_a_capture() -> None:
    found = lines(run("plan", "docs/examples/gpu-off-bus", "-o", "json"))
    (choice,) = [one for one in found if one["record"] == "choice"]
    assert choice["runbook"] == "gpu-off-bus"
    assert {
        one["target"]["name"] for one in found if one["record"] == "step" and one["action"] == "cordon_node"
    } == {"gpu-03"}


BAD = {
    "no source": (("plan", "nowhere"), "not a capture, a file or an incident type"),
    "a misspelt type": (("plan", "gpu_of_bus"), "not a capture, a file or an incident type; did you mean gpu_off_bus?"),
    "no incident": (("plan", "docs/examples/gpu-off-bus", "--incident", "inc-none"), "no incident whose id begins with"),
    "no pair": (("plan", "hang", "--fact", "xid"), "xid: expected NAME=VALUE"),
    "no part of a root": (("plan", "hang", "--root", "moon=1"), "root.moon: there is no such key; known here are"),
    "nothing to compare": (("diff", "nowhere", "shipped"), "nowhere: no such file or directory"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_clearly(name: str) -> None:
    arguments, message = BAD[name]
    result = run(*arguments)
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)


@pytest.mark.parametrize("given", [b"", b"{", b"[]", b"3", b'{"id": 1}', b'"\xff"', b"{" * 100_000])
def test_what_is_no_incident_is_bad_input(given: bytes) -> None:
    assert isinstance(run("plan", "-", given=given).exception, BadInput)


def test_cases_pass_or_the_answer_is_no_with_a_readable_difference(own: Path) -> None:
    passed = run("test", own)
    assert (passed.exit_code, passed.stdout) == (0, "1 case, 0 failed\n")
    (own / "worked-out.cases.yaml").write_text(CASES.replace("[cordon, drain]", "[cordon, dry, drain]"))
    failed = run("test", own)
    assert failed.exit_code == 1
    assert failed.stdout.splitlines()[1:5] == [
        "    steps (- expected, + is):", "        cordon", "      - dry", "        drain",
    ]  # fmt: skip
    found = lines(run("test", own / "worked-out.cases.yaml", "-o", "json"))
    assert [(one["record"], one.get("passed", one.get("failed"))) for one in found] == [
        ("case", False),
        ("summary", 1),
    ]


def test_a_diff_tells_dangers_first_and_is_a_no(own: Path) -> None:
    new = own / "new.yaml"
    new.write_text(OWN.replace("undo: true", "undo: false").replace("default: 600", "default: 700"))
    result = run("diff", own / "own.yaml", new, "-o", "json")
    assert result.exit_code == 1
    assert [(one["record"], one.get("where")) for one in lines(result)] == [
        ("danger", "steps.cordon.undo"), ("danger", "revision"), ("note", "parameters.wait_s.default"), ("summary", None),
    ]  # fmt: skip
    assert run("diff", new, new).exit_code == 0


def test_an_override_is_compared_with_what_it_changes(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(OVERRIDE)
    found = lines(run("diff", "shipped", tmp_path, "-o", "json"))
    assert {one["runbook"] for one in found if one["record"] != "summary"} == {"gpu-off-bus"}
    assert ("mode", "auto → approve") in {(one.get("where"), one.get("text")) for one in found}
