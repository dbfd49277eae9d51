"""The examples for CI are run as they are: their shell steps with bash, git, curl and jq, and a forge on the loopback."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MISSING = [tool for tool in ("bash", "git", "curl", "jq") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")

TICKET_ONLY = """\
id: gpu-ticket
revision: 1
owner: gpu-platform
mode: approve
priority: 500
description: A GPU that fell off the bus gets a ticket only.
match: incident.family == "gpu_off_bus"
steps:
  - {id: ticket, action: open_ticket, target: incident, describe: have the GPU looked at}
"""
WITH_A_CORDON = TICKET_ONLY + "  - {id: close, action: cordon_node, target: root_node, describe: close it}\n"


@dataclass
class Forge:
    """Comments on one change, over HTTP as GitHub and GitLab have it."""

    url: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def forge() -> Iterator[Forge]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            found.asked.append((self.command, self.path))
            if "secret" not in (
                self.headers.get("Authorization", "") + self.headers.get("PRIVATE-TOKEN", "")
            ):
                self.send_error(401)
                return
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size))["body"] if size else ""
            number = self.path.rpartition("/")[2]
            if self.command == "POST":
                new = len(found.comments) + 1
                url = f"{found.url}{self.path}/{new}"
                found.comments.append({"id": new, "url": url, "body": body})
            elif self.command in ("PATCH", "PUT"):
                found.comments[int(number) - 1]["body"] = body
            answer = json.dumps(found.comments).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PATCH = do_PUT = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test's output is for the test."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Forge(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose branch changes a runbook, with a capture beside it."""
    here = tmp_path / "repository"
    (here / "runbooks").mkdir(parents=True)
    shutil.copytree(EXAMPLES / "gpu-off-bus", here / "captures" / "march")
    git(here, "init", "--quiet", "--initial-branch", "main")
    commit(here, TICKET_ONLY)
    git(here, "remote", "add", "origin", str(here))
    git(here, "checkout", "--quiet", "-b", "change")
    commit(here, WITH_A_CORDON)
    return here


def commit(here: Path, runbook: str) -> None:
    (here / "runbooks" / "gpu-ticket.yaml").write_text(runbook)
    git(here, "add", "--all")
    git(
        here, "-c", "user.name=ada", "-c", "user.email=ada@example.test", "commit", "--quiet", "-m", "runbook"
    )


def git(here: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=here, check=True, capture_output=True)


def bash(here: Path, script: str, **environment: str) -> int:
    own = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FAULTLINE": f"{sys.executable} -m faultline",
        **environment,
    }
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=here, env=own, capture_output=True, text=True
    )
    print(done.stdout, done.stderr)
    return done.returncode


def example(name: str) -> Any:
    return yaml.safe_load((EXAMPLES / "ci" / name).read_text())


def is_about_the_change(body: str) -> bool:
    return (
        body.startswith("<!-- faultline what-if -->\n# What if") and "steps.close: new, destructive" in body
    )


def test_the_github_workflow_comments_once_and_edits_its_comment(repository: Path, forge: Forge) -> None:
    job = example("github.yml")["jobs"]["whatif"]
    steps = {step["name"]: step for step in job["steps"] if "run" in step}
    shutil.copytree(repository / "runbooks", repository / "before" / "runbooks")
    (repository / "before" / "runbooks" / "gpu-ticket.yaml").write_text(TICKET_ONLY)
    environment = {
        **{name: value for name, value in job["env"].items() if name != "FAULTLINE"},
        **steps["Compare"]["env"],
        "GITHUB_OUTPUT": str(repository / "output"),
        "GITHUB_TOKEN": "secret",
        "GITHUB_API_URL": forge.url,
        "GITHUB_REPOSITORY": "acme/runbooks",
        "PULL_REQUEST": "7",
    }
    assert bash(repository, steps["Compare"]["run"], **environment) == 0
    assert (repository / "output").read_text() == "code=0\n"
    assert (repository / "whatif.html").exists()
    for _ in range(2):
        assert bash(repository, steps["Comment"]["run"], **environment) == 0
    (comment,) = forge.comments
    assert is_about_the_change(comment["body"])
    assert [method for method, _ in forge.asked] == ["GET", "POST", "GET", "PATCH"]
    assert forge.asked[0][1] == "/repos/acme/runbooks/issues/7/comments?per_page=100"


def test_the_gitlab_job_comments_and_fails_over_budget(repository: Path, forge: Forge) -> None:
    job = example("gitlab.yml")["whatif"]
    environment = {
        **{name: value for name, value in job["variables"].items() if name != "FAULTLINE"},
        "BUDGET": "approvals=0",
        "WHATIF_TOKEN": "secret",
        "CI_API_V4_URL": forge.url,
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "9",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    }
    assert bash(repository, "\n".join(job["script"]), **environment) == 1
    (comment,) = forge.comments
    assert is_about_the_change(comment["body"])
    assert "steps more that people are asked about: 1, budget 0" in comment["body"]
    assert forge.asked[1] == ("POST", "/projects/3/merge_requests/9/notes")
    assert "<failure" in (repository / "whatif.xml").read_text()


def test_a_mistake_in_the_runbook_ends_the_job_without_a_comment(repository: Path, forge: Forge) -> None:
    commit(repository, "id: gpu-ticket\nsteps: nonsense\n")
    job = example("gitlab.yml")["whatif"]
    environment = {
        **{name: value for name, value in job["variables"].items() if name != "FAULTLINE"},
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    }
    assert bash(repository, "\n".join(job["script"]), **environment) == 1
    assert forge.asked == []
