import pytest
from pydantic import SecretStr

from faultline.runtime.settings import Settings, edited
from streams.config.settings import KafkaSettings
from streams.model.errors import ConfigError
from streams.model.run import Mode


def test_only_what_is_set_changes() -> None:
    before = Settings(cluster="east", kafka=KafkaSettings(bootstrap="broker:1"))
    after = edited(before, ["responder.mode=auto", "responder.blast_radius.max_nodes=5"])
    assert (after.responder.mode, after.responder.blast_radius.max_nodes) == (Mode.AUTO, 5)
    assert (after.cluster, after.kafka) == (before.cluster, before.kafka)
    assert after.responder.blast_radius.max_share == before.responder.blast_radius.max_share


def test_a_value_is_yaml() -> None:
    after = edited(
        Settings(), ['responder.closed_times=[{name: x, kind: freeze, cron: "0 8 * * *", duration_s: 60}]']
    )
    assert [one.name for one in after.responder.closed_times] == ["x"]


def test_secrets_stay_as_they_are() -> None:
    login = KafkaSettings(security_protocol="SASL_SSL", sasl_username="u", sasl_password=SecretStr("secret"))
    after = edited(Settings(kafka=login), ["responder.kill_switch=true"])
    assert after.kafka.sasl_password is not None
    assert after.kafka.sasl_password.get_secret_value() == "secret"


def test_every_wrong_pair_is_named_with_what_was_meant() -> None:
    pairs = [
        "responder.blast_radius.nodes=5",
        "responder.killswitch=on",
        "correlator.tick_s=fast",
        "oops",
        "a=[",
        "responder.lease_s=1",
    ]
    with pytest.raises(ConfigError) as error:
        edited(Settings(), pairs)
    told = str(error.value).splitlines()
    assert told[0] == "settings that are set are not usable:"
    assert [line.split(": ")[0].strip() for line in told[1:]] == [
        "oops", "a", "correlator.tick_s", "responder.blast_radius.nodes", "responder.killswitch", "responder.lease_s",
    ]  # fmt: skip
    assert "did you mean max_nodes?" in told[4]
    assert "did you mean kill_switch?" in told[5]
