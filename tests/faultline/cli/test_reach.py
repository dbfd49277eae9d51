"""Commands that need the broker alone work while a settings file is broken: the kill switch above all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from faultline.cli.main import cli
from faultline.cli.reach import settings_to_reach
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation, provisioning
from streams.kafka.topics import CONTROLS, Topic, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.control import Control, Switch
from streams.model.errors import ConfigError, Unreachable
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

BROKEN = """
cluster: east-1
kafka: {bootstrap: kafka-1:9092, topic_prefix: gpu., security_protocol: SASL_SSL, sasl_username: us, sasl_password: of-the-broker}
responder: {mode: auot}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "faultline.yaml"
    file.write_text(text)
    return file


def test_what_is_wrong_elsewhere_is_said_and_broker_and_cluster_are_as_the_file_has_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_to_reach(written(tmp_path, BROKEN))
    assert (settings.cluster, settings.kafka.bootstrap) == ("east-1", "kafka-1:9092")
    assert settings.kafka.topic_prefix == "gpu."
    assert settings.kafka.sasl_password is not None
    assert settings.kafka.sasl_password.get_secret_value() == "of-the-broker"
    told = capsys.readouterr().err
    assert "only cluster and kafka are used" in told
    assert "auot" in told


def test_variables_count_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_KAFKA__BOOTSTRAP", "kafka-2:9092")
    assert settings_to_reach(written(tmp_path, BROKEN)).kafka.bootstrap == "kafka-2:9092"


def test_settings_that_are_whole_are_all_there_and_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_to_reach(written(tmp_path, BROKEN.replace("auot", "auto")))
    assert settings.responder.mode.value == "auto"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "wrong", ["kafka: {bootstrap: []}", "kafka: {bootstrpa: kafka-1:9092}", "cluster: ''"]
)
def test_a_broker_or_cluster_that_is_wrong_is_never_guessed(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ConfigError):
        settings_to_reach(written(tmp_path, wrong))


def test_what_nobody_tells_is_the_default_where_nothing_can_be_meant_for_it(tmp_path: Path) -> None:
    settings = settings_to_reach(
        written(tmp_path, "kafka: {bootstrap: 'kafka-1:9092'}\nresponder: {mode: auot}\n")
    )
    assert (settings.cluster, settings.kafka.bootstrap) == ("default", "kafka-1:9092")


@pytest.mark.parametrize("text", ["responder: {mode: [", "- a list", "\0"])
def test_variables_are_enough_where_the_file_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("FAULTLINE_CLUSTER", "east-1")
    with pytest.raises(ConfigError, match="env -u FAULTLINE_CONFIG FAULTLINE_CLUSTER="):
        settings_to_reach(written(tmp_path, text))
    monkeypatch.setenv("FAULTLINE_KAFKA__BOOTSTRAP", "kafka-2:9092")
    settings = settings_to_reach(written(tmp_path, text))
    assert (settings.cluster, settings.kafka.bootstrap) == ("east-1", "kafka-2:9092")


def test_what_contradicts_a_default_elsewhere_is_no_reason_to_refuse(tmp_path: Path) -> None:
    text = "cluster: east-1\nkafka: {bootstrap: 'kafka-1:9092', session_timeout_ms: 6000}\nresponder: {lease_s: 6, mode: auot}\n"
    assert settings_to_reach(written(tmp_path, text)).kafka.session_timeout_ms == 6000


def test_the_command_without_the_file_has_all_that_the_file_says_of_the_broker_but_its_secrets(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError) as refused:
        settings_to_reach(written(tmp_path, BROKEN.replace("cluster:", "clutser:")))
    command = str(refused.value).splitlines()[-1]
    assert (
        "FAULTLINE_CLUSTER=… FAULTLINE_KAFKA__BOOTSTRAP=kafka-1:9092 FAULTLINE_KAFKA__TOPIC_PREFIX=gpu."
        in command
    )
    assert "FAULTLINE_KAFKA__SASL_USERNAME=us" in command
    assert "FAULTLINE_KAFKA__SASL_PASSWORD=…" in command
    assert "of-the-broker" not in str(refused.value)


def test_a_misspelt_variable_is_no_default_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_CLUSTRE", "east-1")
    with pytest.raises(ConfigError, match="FAULTLINE_CLUSTRE"):
        settings_to_reach(written(tmp_path, "kafka: {bootstrap: 'kafka-1:9092'}\nresponder: {mode: auot}\n"))


@pytest.mark.parametrize("stops", ["kill", "freeze", "thaw"])
def test_what_holds_back_or_lets_go_gets_as_far_as_the_broker(tmp_path: Path, stops: str) -> None:
    file = written(tmp_path, "cluster: east-1\nkafka: {bootstrap: '127.0.0.1:1'}\nresponder: {mode: auot}\n")
    with pytest.raises(Unreachable):
        cli.main(["--config", str(file), "guard", stops, "--reason", "x"], standalone_mode=False)


@pytest.mark.kafka
async def test_what_commands_have_set_is_shown_and_no_limit_that_nobody_can_read(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = kafka.settings("reach")
    await provisioning.apply(own)
    control = Control("east-1", kill_switch=Switch("ada", utc_now(), "storage is down"))
    await produce(own, CONTROLS, control)
    file = written(
        tmp_path,
        f"cluster: east-1\nkafka: {{bootstrap: '{own.bootstrap}', topic_prefix: {own.topic_prefix}}}\n"
        "responder: {mode: auot}\n",
    )

    async def told(*words: str) -> str:
        await asyncio.to_thread(cli.main, ["--config", str(file), *words], standalone_mode=False)
        return capsys.readouterr().out

    shown = await told("guard", "status")
    assert "ON: storage is down" in shown
    assert "not known" in shown
    assert "shadow" not in shown, "a default stands for nothing"
    told_all = orjson.loads(await told("guard", "status", "-o", "json"))
    assert (told_all["kill_switch"]["on"], told_all["mode"], told_all["limits"]) == (True, None, None)
    assert "no runs" in (await told("runs", "list")).lower()
    await produce(own, CONTROLS, Control("east-1", revision=1))
    assert "kill switch" in (shown := await told("guard", "status"))
    assert "off" not in shown, "the settings may have it on"
    assert orjson.loads(await told("guard", "status", "-o", "json"))["kill_switch"]["on"] is None


@pytest.mark.kafka
async def test_another_clusters_topics_are_not_shown_as_calm(kafka: Kafka, tmp_path: Path) -> None:
    own = kafka.settings("reach")
    await provisioning.apply(own)
    await installation.claim(own, "east-1", "topics apply")
    file = written(
        tmp_path,
        f"cluster: west-1\nkafka: {{bootstrap: '{own.bootstrap}', topic_prefix: {own.topic_prefix}}}\n",
    )
    for words in (
        ("guard", "status"), ("runs", "list"), ("nodes", "list"), ("incidents", "list"), ("guard", "kill"),
        ("incidents", "approve", "inc-5d55"), ("incidents", "resolve", "inc-5d55"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="belong to cluster east-1"):
            await asyncio.to_thread(cli.main, ["--config", str(file), *words], standalone_mode=False)


@pytest.mark.kafka
async def test_a_list_of_incidents_says_that_it_does_not_know_what_holds_them_back(
    kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = kafka.settings("reach")
    await provisioning.apply(own)
    file = written(
        tmp_path,
        f"kafka: {{bootstrap: '{own.bootstrap}', topic_prefix: {own.topic_prefix}, cluster_partitions: 2}}\n",
    )
    listing = ["--config", str(file), "incidents", "list"]
    await asyncio.to_thread(cli.main, listing, standalone_mode=False)
    assert capsys.readouterr().err == ""
    client = await clients.started(clients.admin(own), own)
    try:
        await client.delete_topics([clients.topic_name(own, CONTROLS)])
    finally:
        await client.close()

    async def told() -> bool:
        await asyncio.to_thread(cli.main, listing, standalone_mode=False)
        return "not known what the kill switch, freezes and breaker hold back" in capsys.readouterr().err

    await eventually(told, "the missing topic is told")


async def produce(settings: KafkaSettings, topic: Topic, control: Control) -> None:
    writer = await clients.started(clients.producer(settings), settings)
    try:
        place = partition_of(control.cluster, settings.cluster_partitions)
        name = clients.topic_name(settings, topic)
        await writer.send_and_wait(name, encode(control), key=control.cluster.encode(), partition=place)
    finally:
        await writer.stop()


def test_a_key_of_the_broker_that_is_there_twice_is_never_guessed(tmp_path: Path) -> None:
    for more in ("cluster: west-1\n", "kafka: {bootstrap: 'kafka-2:9092'}\n"):
        with pytest.raises(ConfigError, match="the key is there twice"):
            settings_to_reach(written(tmp_path, BROKEN + more))
    inner = BROKEN.replace("topic_prefix: gpu.", "topic_prefix: gpu., topic_prefix: cpu.")
    with pytest.raises(ConfigError, match="the key is there twice"):
        settings_to_reach(written(tmp_path, inner))


@pytest.mark.parametrize(
    ("key", "misspelt"), [("cluster:", "clutser:"), ("kafka:", "kafak:"), ("bootstrap:", "bootstrpa:")]
)
def test_no_default_stands_in_for_a_misspelt_key(tmp_path: Path, key: str, misspelt: str) -> None:
    """The switch of a cluster called `default` would be thrown, and the operator would believe that this one stands still."""
    with pytest.raises(ConfigError, match=misspelt.rstrip(":")):
        settings_to_reach(written(tmp_path, BROKEN.replace(key, misspelt)))
