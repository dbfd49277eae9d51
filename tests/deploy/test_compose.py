"""The compose file, held against what the command line and the settings really know. No container engine is needed."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.runtime.processes import OPTIONAL, PROCESSES
from faultline.runtime.settings import Settings, load
from sandbox.fake_services.__main__ import main as standins

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MONITORING = ("prometheus", "grafana")


def test_every_process_is_a_service() -> None:
    commands = {tuple(service.get("command", ())) for service in SERVICES.values()}
    assert {("run", name) for name in PROCESSES.keys() - OPTIONAL} <= commands


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
    others = {name: service for name, service in SERVICES.items() if name not in {"standins", *MONITORING}}
    assert all(not service.get("profiles") for service in others.values())


def test_prometheus_and_grafana_run_only_when_asked_for_and_nothing_waits_for_them() -> None:
    assert all(SERVICES[name]["profiles"] == ["monitoring"] for name in MONITORING)
    assert not any(set(MONITORING) & set(service.get("depends_on", {})) for service in SERVICES.values())


def test_prometheus_scrapes_every_process_and_reads_every_rule() -> None:
    config = yaml.safe_load((ROOT / "k8s/monitoring/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    processes = {name for name, service in SERVICES.items() if service.get("command", [""])[0] == "run"}
    environment = SERVICES["detector"]["environment"]
    assert environment["FAULTLINE_HTTP_HOST"] == "0.0.0.0"
    port = environment["FAULTLINE_HTTP_PORT"]
    assert set(job["static_configs"][0]["targets"]) == {f"{name}:{port}" for name in processes}
    assert config["rule_files"] == [f"{mounts('prometheus')['./k8s/monitoring/rules']}/*.yaml"]


def test_grafana_finds_the_dashboards_where_its_provider_looks_and_prometheus_where_its_source_does() -> None:
    provisioning = ROOT / "k8s/monitoring/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/faultline.yaml").read_text())["providers"]
    assert provider["options"]["path"] == mounts("grafana")["./k8s/monitoring/dashboards"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{SERVICES['prometheus']['ports'][0].rpartition(':')[2]}"


def mounts(name: str) -> dict[str, str]:
    """Where a service has the files and folders of this repository."""
    bound = [volume.split(":") for volume in SERVICES[name]["volumes"] if volume.startswith("./")]
    assert all((ROOT / source).exists() for source, *_ in bound)
    return {source: target for source, target, *_ in bound}


def test_volumes_that_are_used_are_declared() -> None:
    named = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if volume[0] not in "$./~"
    }
    assert named == set(COMPOSE["volumes"])


def env_file() -> dict[str, str]:
    lines = (ROOT / "standins.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_stand_ins_expect_what_their_env_file_says() -> None:
    said, command = env_file(), SERVICES["standins"]["command"]
    expected = {option.name: option.default for option in standins.params}
    ports = {name: command[command.index(f"--{name}-port") + 1] for name in ("slack", "jira")}
    assert said == {
        "FAULTLINE_SLACK__BASE_URL": f"http://standins:{ports['slack']}/api",
        "FAULTLINE_SLACK__TOKEN": expected["slack_token"],
        "FAULTLINE_SLACK__CHANNEL": expected["channel"],
        "FAULTLINE_JIRA__BASE_URL": f"http://standins:{ports['jira']}",
        "FAULTLINE_JIRA__USER": expected["jira_user"],
        "FAULTLINE_JIRA__TOKEN": expected["jira_token"],
    }


def test_what_the_env_file_says_reaches_the_processes_and_nothing_is_posted_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed = {
        variable: value
        for name in ("chat", "responder")
        for variable, value in SERVICES[name]["environment"].items()
        if str(value).startswith("${") and variable in env_file()
    }
    assert set(passed) == set(env_file())
    for variable, value in passed.items():
        monkeypatch.setenv(variable, value.removeprefix("${" + variable + ":-").removesuffix("}"))
    settings = load()
    assert (settings.slack.token, settings.jira.base_url) == (None, None)
