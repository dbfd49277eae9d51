"""Errors of the Kafka client as people read them."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from unittest.mock import patch

import pytest
from aiokafka.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)

from faultline.cli import main as front
from streams.config.settings import KafkaSettings
from streams.kafka.plain_errors import named_refusals, plain
from streams.model.errors import Denied

NOBODY = ["-m", "faultline", "incidents", "list"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the name is not known"),
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1, 0, 0)"), "connection refused"),
        (OSError(113, "Connect call failed ('10.0.0.1', 9092)"), "no route to host"),
        (TimeoutError(), "no answer in time"),
        (KafkaTimeoutError(), "no answer in time"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "TLS failed"),
        (KafkaConnectionError("Connection at h:1 closed"), "does kafka.security_protocol fit?"),
        (
            TopicAuthorizationFailedError({"raw.b", "raw.a"}),
            "this user may not use the topic raw.a, raw.b (TOPIC_",
        ),
        (
            GroupAuthorizationFailedError("ours"),
            "may not use the consumer group ours (GROUP_AUTHORIZATION_FAILED)",
        ),
        (CorruptRecordException(), "settings file that `faultline demo --stay` prints"),
    ],
)
def test_an_error_is_told_without_classes_tuples_and_numbers(error: Exception, said: str) -> None:
    told = plain(error)
    assert said in told
    assert not any(raw in told for raw in ("Errno", "Error(", "('", "AF_INET", "Returned by"))


def test_a_refusal_names_who_may_not_do_what_where_that_is_known() -> None:
    settings = KafkaSettings().model_copy(update={"sasl_username": "looker"})
    with (
        pytest.raises(Denied, match=r"user looker may not Read topic raw\.a \(TOPIC_"),
        named_refusals(settings, "Read"),
    ):
        raise TopicAuthorizationFailedError("raw.a")
    with pytest.raises(KafkaTimeoutError), named_refusals(settings, "Read"):
        raise KafkaTimeoutError


@pytest.mark.parametrize(
    ("bootstrap", "why"),
    [("127.0.0.1:1", "127.0.0.1:1: connection refused")],
)
def test_without_a_broker_the_command_line_says_one_line(bootstrap: str, why: str) -> None:
    done = subprocess.run(
        [sys.executable, *NOBODY],
        env={"FAULTLINE_KAFKA__BOOTSTRAP": bootstrap, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert done.stderr == f"faultline: Kafka does not answer at {bootstrap} (kafka.bootstrap): {why}\n"


def test_what_a_broker_refuses_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        patch.object(front.cli, "main", side_effect=TopicAuthorizationFailedError()),
        pytest.raises(SystemExit) as ended,
    ):
        front.main()
    assert ended.value.code == 1, "Kafka is not away"
    assert capsys.readouterr().err.startswith("faultline: Kafka: this user may not use the topic (TOPIC_")
