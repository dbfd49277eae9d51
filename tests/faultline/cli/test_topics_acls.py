"""`faultline topics acls`: the same table in three forms."""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from click.testing import CliRunner

from faultline.checks.kafka_acls import acls_of
from faultline.checks.kafka_rights import EVERYBODY
from faultline.cli.main import cli
from streams.config.settings import KafkaSettings
from streams.kafka.topics import RAW


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["topics", "acls", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_json_and_kafka_users_say_the_same() -> None:
    wanted = {
        (who, acl.kind, acl.name, acl.prefixed, operation)
        for who in EVERYBODY
        for acl in acls_of(who, KafkaSettings())
        for operation in acl.words
    }
    commands = set()
    for line in printed().splitlines():
        words = shlex.split(line)
        at = next(i for i, word in enumerate(words) if word in ("--topic", "--group", "--transactional-id"))
        who = words[words.index("--allow-principal") + 1].removeprefix("User:faultline-")
        for i, word in enumerate(words):
            if word == "--operation":
                commands.add(
                    (who, words[at].removeprefix("--"), words[at + 1], "prefixed" in words, words[i + 1])
                )
    assert commands == wanted
    from_json = {
        (
            one["principal"].removeprefix("User:faultline-"),
            one["resource"],
            one["name"],
            one["pattern"] == "prefixed",
            operation,
        )
        for one in json.loads(printed("--format", "json"))
        for operation in one["operations"]
    }
    assert from_json == wanted
    users = list(yaml.safe_load_all(printed("--format", "strimzi", "--login", "tls")))
    kinds = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
    assert {
        (
            user["metadata"]["name"].removeprefix("faultline-"),
            kinds[acl["resource"]["type"]],
            acl["resource"]["name"],
            acl["resource"]["patternType"] == "prefix",
            operation,
        )
        for user in users
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
    } == wanted


def test_no_principal_has_a_right_on_the_cluster_or_by_wildcard() -> None:
    for who in EVERYBODY:
        for acl in acls_of(who, KafkaSettings(topic_prefix="east.")):
            assert acl.kind in ("topic", "group", "transactional-id")
            assert acl.name.startswith("east."), acl


def test_a_shipper_writes_its_own_raw_topic_and_nothing_else() -> None:
    for topic in RAW:
        (acl,) = acls_of(f"shipper-{topic.name.removeprefix('raw.')}", KafkaSettings())
        assert (acl.name, sorted(acl.words)) == (topic.name, ["Describe", "Write"])


def test_only_the_one_who_binds_topics_to_a_cluster_may_write_that() -> None:
    writers = {
        who
        for who in EVERYBODY
        for acl in acls_of(who, KafkaSettings())
        if acl.name == "installation" and "Write" in acl.words
    }
    assert writers == {"topics"}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["detecto"], "did you mean detector"),
        (["--principal", "User:all"], "expected {name}"),
    ],
)
def test_what_would_open_too_much_is_refused(arguments: list[str], fault: str) -> None:
    result = CliRunner().invoke(cli, ["topics", "acls", *arguments])
    assert result.exit_code == 2 or fault in str(result.exception)
    assert fault in result.output + str(result.exception)
