"""A value that stands nowhere else in every secret setting, every connector refused, and none of it in what a process says."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
import structlog
import yaml

from connectors.base import Connector, Effect, NoLease
from connectors.chat.slack import Slack
from connectors.tickets.systems import ticket_desk
from faultline.runtime.health import health_server
from faultline.runtime.logging_setup import configure
from faultline.runtime.notice_sinks import open_sinks
from faultline.runtime.processes import PROCESSES
from faultline.runtime.settings import Settings, edited, load
from streams.model.pulse import Pulse
from streams.model.run import Target
from streams.telemetry import redaction
from tests.faultline.runtime.as_before import logging_as_before
from tests.faultline.runtime.secret_settings import everything, found, secret_paths, values

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with logging_as_before():
        yield
    redaction.know(())


@contextmanager
def refusing() -> Iterator[str]:
    """A service that answers every request with what it was sent, login included, and refuses it."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = {
                "error": "invalid_auth",
                "message": f"{self.path} {self.headers}",
                "errorMessages": [str(self.headers)],
            }
            body = json.dumps(said).encode()
            self.send_response(401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def settings_file(folder: Path, url: str = "http://127.0.0.1:9") -> Path:
    path = folder / "faultline.yaml"
    path.write_text(yaml.safe_dump(everything(url)))
    return path


def test_every_secret_setting_has_a_value_in_this_test() -> None:
    have = dict(values(Settings(**everything())))
    assert set(secret_paths(Settings)) == set(have)


@pytest.mark.parametrize("form", ["json", "line"])
def test_logs_and_tracebacks_quote_none(tmp_path: Path, capfd: pytest.CaptureFixture[str], form: Any) -> None:
    settings = load(settings_file(tmp_path))
    secrets = dict(values(settings))
    configure("responder", form=form)
    log = structlog.get_logger("test")
    for path, secret in secrets.items():
        login = base64.b64encode(f"robot:{secret}".encode()).decode()
        try:
            raise ConnectionError(
                f"refused: Authorization: Basic {login}, https://u:{quote(secret, safe='')}@host"
            )
        except ConnectionError as error:
            log.exception("connector failed", where=path, headers={"X-Token": secret}, error=repr(error))
            logging.getLogger("library").exception("request to %s failed", f"http://x/?token={secret}")
    said = capfd.readouterr().err
    assert said.count("connector failed") == len(secrets)
    assert found(said, secrets) == []


def test_a_connector_that_is_refused_quotes_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def provoke(settings: Settings) -> list[str]:
        said, log = [], structlog.get_logger("test")
        async with AsyncExitStack() as stack:
            connectors: dict[str, Connector] = {"slack": Slack(settings.slack)}
            for system in ("jira", "jira-dc", "servicenow", "github", "gitlab"):
                desk = ticket_desk(edited(settings, [f"tickets.system={system}"]).tickets, settings.jira)
                assert desk is not None
                connectors[system] = desk
            for connector in connectors.values():
                stack.push_async_callback(connector.close)
            connectors |= {name: sink.connector for name, sink in open_sinks(settings, stack).items()}
            for name, connector in connectors.items():
                for action in sorted(connector.actions):
                    for call in ("lookup", "apply", "undo"):
                        effect = Effect(
                            "key-1", action, Target("Node", "gpu-1"), "east", "inc-1", "run-1", "s", _PARAMS
                        )
                        try:
                            async with asyncio.timeout(5):
                                made = (
                                    await connector.lookup(effect)
                                    if call == "lookup"
                                    else await getattr(connector, call)(effect, NoLease())
                                )
                        except Exception as error:
                            log.exception("connector failed", system=name, action=action)
                            said.append(redaction.clean(repr(error)))
                        else:
                            outcome = redaction.clean_outcome(made)
                            log.info("call", system=name, action=action, outcome=repr(outcome))
                            said.append(repr(outcome))
        return said

    with refusing() as url:
        settings = load(settings_file(tmp_path, url))
        configure("responder", form="json")
        outcomes = asyncio.run(provoke(settings))
    secrets = dict(values(settings))
    logs = capfd.readouterr().err
    assert len(outcomes) > 30
    assert "401" in "".join(outcomes) or "refused" in "".join(outcomes)
    assert found("\n".join([*outcomes, logs]), secrets) == []


_PARAMS = {"message": '{"summary":"one","blocks":[]}', "incident": "inc-1", "title": "one"}


def test_a_probe_quotes_none(tmp_path: Path) -> None:
    settings = load(settings_file(tmp_path))
    secrets = dict(values(settings))

    async def asked() -> str:
        pulse = Pulse(silence_s=-1)
        pulse.state("reasons", [f"https://robot:{secret}@host" for secret in secrets.values()])
        port = _free_port()
        async with health_server(pulse, host="127.0.0.1", port=port):
            return "".join(
                [await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/{p}") for p in ("live", "ready")]
            )

    said = asyncio.run(asked())
    assert "[secret]" in said
    assert found(said, secrets) == []


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


@pytest.mark.parametrize(
    "arguments", [("config", "check"), ("config", "check", "-o", "json"), ("incidents",)]
)
def test_a_command_prints_none(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    _says_none(tmp_path, *arguments)


@pytest.mark.server
@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_a_process_that_cannot_start_prints_none(tmp_path: Path, name: str) -> None:
    assert _says_none(tmp_path, "run", name) != 0


@pytest.mark.server
def test_a_check_of_services_that_refuse_prints_none(tmp_path: Path) -> None:
    with refusing() as url:
        assert _says_none(tmp_path, "config", "check", "--connect", url=url) != 0


def test_a_failure_that_nobody_expected_prints_none(tmp_path: Path) -> None:
    program = (
        "import sys, click, faultline.cli.main as main\n"
        "from faultline.runtime.settings import load\n"
        "@click.command('run')\n"
        "def broken():\n"
        "    raise RuntimeError(str([s.get_secret_value() for s in load().tracing.headers.values()]))\n"
        "main.cli.get_command = lambda *_: broken\n"
        "sys.argv = ['faultline', 'run']\n"
        "main.main()\n"
    )
    said = _run(tmp_path, [sys.executable, "-c", program], "http://127.0.0.1:9")
    assert "RuntimeError" in said
    assert "[secret]" in said
    assert found(said, dict(values(Settings(**everything())))) == []


def _says_none(folder: Path, *arguments: str, url: str = "http://127.0.0.1:9") -> int:
    secrets = dict(values(Settings(**everything(url))))
    said = _run(folder, [sys.executable, "-m", "faultline", *arguments], url)
    assert said.strip()
    assert found(said, secrets) == []
    return 0 if "exit 0" in said.splitlines()[-1] else 1


def _run(folder: Path, command: list[str], url: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("FAULTLINE_")}
    env |= {
        "FAULTLINE_CONFIG": str(settings_file(folder, url)),
        "FAULTLINE_LOG_FORMAT": "json",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return f"{done.stdout}\nexit {done.returncode}"
