from pathlib import Path

import pytest

from faultline.runtime.settings import load
from streams.model.errors import ConfigError
from streams.model.run import Mode


def test_a_new_installation_touches_nothing() -> None:
    assert load().responder.mode is Mode.SHADOW


def test_the_environment_wins_over_the_file_key_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text("cluster: east\nkafka: {bootstrap: 'a:1', raw_partitions: 3}\n")
    monkeypatch.setenv("FAULTLINE_KAFKA__BOOTSTRAP", "b:2")
    settings = load(file)
    assert (settings.cluster, settings.kafka.bootstrap, settings.kafka.raw_partitions) == ("east", "b:2", 3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kafka: {bootstrp: 'a:1'}", r"kafka\.bootstrp"),
        ("responder: {mode: yolo}", r"responder\.mode"),
        ("responder: {blast_radius: {max_share: 2}}", r"responder\.blast_radius\.max_share"),
        ("responder: {lease_s: 2}", r"responder\.lease_s: 2 s must exceed the 2 s"),
        ("responder: {lease_s: 14.1}", r"lease_s: 14\.1 s is too long .* 15000: .* set it to 14 or less"),
        ("kafka: {session_timeout_ms: 6000}", r"responder\.lease_s: 12 s .* set it to 6\.8 or less"),
        ("notifier: {sinks: {oncall: {kind: pagerduty}}}", r"notifier\.sinks\.oncall\.key: not set"),
        ("notifier: {sinks: {On Call: {kind: pagerduty, key: k}}}", r"'On Call' is not a name of a sink"),
        (
            "notifier: {sinks: {mail: {kind: email}}}",
            r"posts\.email\.host: not set, and notifier\.sinks\.mail",
        ),
        ("notifier: {sinks: {am: {kind: alertmanager}}}", r"notifier\.sinks\.am\.url: not set"),
        (
            "notifier: {sinks: {am: {kind: alertmanager, url: 'http://am:9093', matchers: ['instance={node}']}}}",
            "is not a matcher",
        ),
        (
            "notifier: {sinks: {p: {kind: jsm, key: k, hours: [{cron: '0 8 * *', duration_s: 60}]}}}",
            "has 4 fields",
        ),
        ("colour: blue", "colour"),
        ("- a list", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load(file)


def test_a_mistyped_variable_is_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_KAFK__BOOTSTRAP", "b:2")
    with pytest.raises(ConfigError, match="FAULTLINE_KAFK__BOOTSTRAP"):
        load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redfish: {address: 'https://bmc.example'}", r"redfish\.address: .* is not https://"),
        ("redfish: {address: 'http://{node}.example'}", r"redfish\.address: .* is not https://"),
        (
            "redfish: {address: 'https://{node}.example'}",
            r"redfish\.user_file: not set, and address needs a login",
        ),
        (
            "redfish: {annotation: a/b, user_file: /u, password_file: /p}",
            r"redfish\.hosts: not set, and an annotation may name any host",
        ),
        ("hook: {url: 'https://tool.example', actions: [replace_node]}", r"hook\.secret: not set"),
        ("hook: {actions: [replace_node]}", r"hook\.url: not set"),
        (
            "redfish: {address: 'https://{node}.example', user_file: /u, password_file: /p}\n"
            "  hook: {url: 'https://tool.example', secret: 'whsec_YSBzZWNyZXQgb2YgdGhlIHRvb2wncyB2ZXJ5IG93bi4=', "
            "actions: [power_cycle_node]}",
            r"hook\.actions: power_cycle_node is set up twice",
        ),
    ],
)
def test_power_that_cannot_work_is_refused_at_the_start(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(f"node_work:\n  {text}\n")
    with pytest.raises(ConfigError, match=complaint):
        load(file)
