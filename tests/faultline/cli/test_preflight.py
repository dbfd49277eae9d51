"""`faultline preflight`: what is missing is said before anything is asked, and an API server that is down is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from connectors.kubernetes import work_preflight
from connectors.kubernetes.work_preflight import Verdict
from faultline.cli.commands import preflight
from tests.deploy.manifests import COMPONENT_DIR

SESSION = COMPONENT_DIR / "diagnostics" / "session"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""


def call(tmp_path: Path, *arguments: str, diagnostics: bool = True) -> Result:
    """The command with settings of its own, and an API server that nobody runs."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    lines = [f"kubernetes: {{kubeconfig: {tmp_path / 'kubeconfig'}, timeout_s: 1}}"]
    if diagnostics:
        shutil.copytree(SESSION, tmp_path / "session")
        lines.append(f"node_work: {{diagnostics: {tmp_path / 'session'}}}")
    config = tmp_path / "settings.yaml"
    config.write_text("\n".join(lines))
    return CliRunner().invoke(preflight.command, [*arguments], obj=config)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name nodes, --job or --waiting"),
        (["--job", "llm"], "--job llm: KIND/NAMESPACE/NAME"),
        (["--job", "PyTorchJob/llm"], "KIND/NAMESPACE/NAME"),
    ],
)
def test_what_is_not_clear_is_refused_before_anybody_is_asked(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    answer = call(tmp_path, *arguments)
    assert answer.exit_code == 2
    assert said in answer.output


def test_without_diagnostics_there_is_nothing_to_run(tmp_path: Path) -> None:
    answer = call(tmp_path, "gpu-1", diagnostics=False)
    assert answer.exception is not None
    assert "node_work.diagnostics: not set" in str(answer.exception)


def test_an_api_server_that_is_down_ends_it_with_exit_code_1_and_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_preflight, "PATIENCE", work_preflight.PATIENCE * 0)
    answer = call(tmp_path, "gpu-1")
    assert answer.exit_code == 1
    assert "gpu-1  did not pass" in answer.output
    assert "127.0.0.1:1" in answer.output


def test_each_node_is_a_line_with_what_its_diagnostics_found(capsys: pytest.CaptureFixture[str]) -> None:
    preflight._show(Verdict("gpu-1", True, ("dcgm: passed, no figures",), released=True), "table")
    preflight._show(Verdict("gpu-2", False, (), "gpu-2 is not ready"), "table")
    assert capsys.readouterr().out.splitlines() == [
        "gpu-1  passed, and open for pods",
        "    dcgm: passed, no figures",
        "gpu-2  did not pass",
        "    gpu-2 is not ready",
    ]


def test_when_no_node_waits_all_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> list[Verdict]:
        return []

    monkeypatch.setattr(preflight, "_run", nobody)
    answer = call(tmp_path, "--waiting")
    assert answer.exit_code == 0
    assert "no nodes" in answer.output
