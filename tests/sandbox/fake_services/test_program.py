"""The stand-ins as a program: it says where it listens, answers there, and ends in order."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from tests.testbed.children import Child


def test_both_stand_ins_answer_and_end_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sandbox.fake_services", "--slack-port", "0", "--jira-port", "0"]
    child = Child("stand-ins", command, log=tmp_path / "log")
    try:
        child.wait_until(lambda: b"jira http" in child.log.read_bytes(), "says where it listens")
        where = dict(line.split() for line in child.log.read_text().splitlines())
        with httpx.Client(trust_env=False) as client:
            token = {"Authorization": "Bearer xoxb-standin"}
            assert client.get(f"{where['slack']}/auth.test", headers=token).json()["ok"] is True
            assert client.get(f"{where['jira']}/rest/api/3/issue/GPU-1").status_code == 401
    finally:
        assert child.stop(grace_s=60) == 0


def test_another_ticket_system_is_served_on_request(tmp_path: Path) -> None:
    ports = ["--slack-port", "0", "--jira-port", "0", "--tickets-port", "0"]
    command = [sys.executable, "-m", "sandbox.fake_services", *ports, "--tickets", "gitlab"]
    child = Child("stand-ins", command, log=tmp_path / "log")
    try:
        child.wait_until(lambda: b"gitlab http" in child.log.read_bytes(), "says where it listens")
        where = dict(line.split() for line in child.log.read_text().splitlines())
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"{where['gitlab']}/api/v4/projects/a%2Fb/issues").status_code == 401
    finally:
        assert child.stop(grace_s=60) == 0
