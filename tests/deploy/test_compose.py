"""The compose file, held against what the command line and the settings really know. No container engine is needed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.processes import PROCESSES
from faultline.settings import Settings
from faultline.standins.__main__ import main as standins

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_every_process_is_a_service() -> None:
    commands = {tuple(service.get("command", ())) for service in SERVICES.values()}
    assert {("run", name) for name in PROCESSES} <= commands


@pytest.mark.parametrize("name", SERVICES)
def test_every_setting_of_a_service_exists(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    for variable in (v for v in environment if v.startswith("FAULTLINE_")):
        model: Any = Settings
        for part in variable.removeprefix("FAULTLINE_").lower().split("__"):
            assert part in model.model_fields, f"{name}: {variable}"
            model = model.model_fields[part].annotation


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_exists_and_can_be_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if how["condition"] == "service_healthy":
            assert "test" in SERVICES[other]["healthcheck"]
        else:
            assert SERVICES[other]["restart"] == "no"


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_stand_ins_run_only_when_asked_for() -> None:
    assert SERVICES["standins"]["profiles"] == ["standins"]
    assert all(not service.get("profiles") for name, service in SERVICES.items() if name != "standins")


def test_volumes_that_are_used_are_declared() -> None:
    named = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if volume[0] not in "$./~"
    }
    assert named == set(COMPOSE["volumes"])


def test_the_processes_know_the_stand_ins_by_what_they_expect() -> None:
    command = SERVICES["standins"]["command"]
    ports = {command[command.index(flag) + 1] for flag in ("--slack-port", "--jira-port")}
    slack, jira = SERVICES["chat"]["environment"], SERVICES["responder"]["environment"]
    told = {
        port
        for value in (slack["FAULTLINE_SLACK__BASE_URL"], jira["FAULTLINE_JIRA__BASE_URL"])
        for port in ports
        if f"standins:{port}" in value
    }
    assert told == ports
    expected = {option.name: option.default for option in standins.params}
    assert f"-{expected['slack_token']}}}" in slack["FAULTLINE_SLACK__TOKEN"]
    assert f"-{expected['channel']}}}" in slack["FAULTLINE_SLACK__CHANNEL"]
    assert f"-{expected['jira_user']}}}" in jira["FAULTLINE_JIRA__USER"]
    assert f"-{expected['jira_token']}}}" in jira["FAULTLINE_JIRA__TOKEN"]
