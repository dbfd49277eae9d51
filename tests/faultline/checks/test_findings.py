"""What the probes of `doctor` make of what they read: pure, so that every state of a cluster can be shown to them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka import TopicPartition
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from faultline.checks.broker_probe import replication
from faultline.checks.controls_probe import letter_findings
from faultline.checks.expiry_probe import certificate_findings, token_findings
from faultline.checks.finding import CheckFinding
from faultline.checks.group_probe import PartitionLag, findings, versions
from faultline.checks.kafka_protocol import BrokerState, GroupState, PartitionCopies
from faultline.checks.pods_probe import pod_findings
from streams.config.settings import KafkaSettings

NOW = datetime(2026, 3, 2, 3, 0, tzinfo=UTC)
MEMBER = GroupState("Stable", (("faultline-0.1.0", "10.0.0.7"),))
PLACE = TopicPartition("raw.node-logs", 0)


def levels(found: Any) -> list[tuple[str, str]]:
    rows: list[CheckFinding] = list(found)
    assert all(one.command for one in rows)
    return [(one.level, one.where) for one in rows]


@pytest.mark.parametrize(
    ("leader", "in_sync", "level", "told"),
    [
        (-1, (), "fault", "no leader"),
        (1, (1,), "fault", "fewer than 2 copies in sync"),
        (1, (1, 2), "warning", "not in sync: signals/0; brokers 3 are not there"),
    ],
)
def test_copies_that_are_missing(leader: int, in_sync: tuple[int, ...], level: str, told: str) -> None:
    state = BrokerState("k1", (1, 2, 4), (PartitionCopies("signals", 0, leader, (1, 2, 3), in_sync),))
    (finding,) = replication(state, KafkaSettings())
    assert finding.level == level
    assert told in finding.what


def test_all_copies_in_sync_are_nothing_to_find() -> None:
    state = BrokerState("k1", (1, 2, 3), (PartitionCopies("signals", 0, 1, (1, 2, 3), (3, 1, 2)),))
    assert list(replication(state, KafkaSettings())) == []


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (PartitionLag(PLACE, 0, 90, 90, moved=False), []),
        (PartitionLag(PLACE, 0, 91, 90, moved=False), []),
        (PartitionLag(PLACE, 0, 90, 10, moved=True, oldest=NOW - timedelta(seconds=9)), []),
        (PartitionLag(PLACE, 0, 90, 10, moved=True, oldest=NOW - timedelta(hours=1)), ["warning"]),
        (PartitionLag(PLACE, 0, 90, 10, moved=False, oldest=NOW - timedelta(hours=1)), ["fault"]),
        (PartitionLag(PLACE, 50, 90, 10, moved=True, oldest=NOW), ["warning"]),
        (PartitionLag(PLACE, 0, 0, 10, moved=False), ["fault"]),
    ],
    ids=["idle", "a marker behind the last record", "busy", "behind", "stuck", "retention", "went back"],
)
def test_stuck_is_told_from_idle_and_from_busy(lag: PartitionLag, expected: list[str]) -> None:
    assert [level for level, _ in levels(findings("detector", MEMBER, [lag], NOW))] == expected


def test_members_of_another_release_are_told_by_the_names_of_their_clients() -> None:
    old = GroupState("Stable", (("faultline-0.0.1", "10.0.0.8"), ("rdkafka", "10.0.0.9")))
    (finding,) = versions({"detector": MEMBER, "responder": old})
    assert "0.0.1: responder; 0.1.0: detector" in finding.what
    assert finding.level == "warning"


def test_a_shipper_that_changed_its_format_is_seen_by_the_dead_letters_of_an_hour() -> None:
    assert list(letter_findings(0, 5000)) == []
    assert list(letter_findings(200, 24 * 190)) == [], "as many as ever"
    assert levels(letter_findings(200, 24 * 10)) == [("warning", "dead letters")]


def _pod(name: str, image: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name}, "spec": {"containers": [{"image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], **status},
    }  # fmt: skip


def test_pods_that_die_wait_or_run_another_image() -> None:
    killed = {"restartCount": 1, "lastState": {"terminated": {"reason": "OOMKilled"}}, "state": {}}
    restarts = {
        "restartCount": 9,
        "lastState": {"terminated": {"reason": "Error", "exitCode": 2}},
        "state": {},
    }
    waiting = {"restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pods = [
        _pod("detector-1", "faultline:1", containerStatuses=[killed]),
        _pod("detector-2", "faultline:1", containerStatuses=[restarts]),
        _pod("chat-1", "faultline:2", conditions=[], containerStatuses=[waiting]),
    ]
    found = list(pod_findings(pods))
    assert [one.level for one in found] == ["fault", "fault", "fault", "warning"]
    assert "ImagePullBackOff" in found[2].what
    assert "exit code 2" in found[1].what
    assert next(pod_findings(pods[:1])).what.startswith("pod detector-1 was killed for its memory")


def _token(**claims: int) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize(
    ("begins", "ends", "expected"),
    [
        (timedelta(days=-360), timedelta(days=5), ["warning"]),
        (timedelta(days=-360), timedelta(days=-1), ["fault"]),
        (timedelta(minutes=-5), timedelta(minutes=55), []),
        (timedelta(days=-5), timedelta(days=360), []),
    ],
    ids=["soon", "past", "made anew every hour", "next year"],
)
def test_tokens_that_end(begins: timedelta, ends: timedelta, expected: list[str]) -> None:
    token = _token(iat=int((NOW + begins).timestamp()), exp=int((NOW + ends).timestamp()))
    assert [one.level for one in token_findings("kubeconfig", token, NOW)] == expected
    assert list(token_findings("kubeconfig", "no-json-web-token", NOW)) == []


def test_certificates_that_end() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "detector")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(7).not_valid_before(NOW - timedelta(days=300)).not_valid_after(NOW + timedelta(days=3))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = made.public_bytes(serialization.Encoding.PEM)
    assert levels(certificate_findings("kafka.ssl_certfile", pem, NOW)) == [("warning", "kafka.ssl_certfile")]
    assert levels(certificate_findings("kafka.ssl_certfile", pem, NOW + timedelta(days=4))) == [
        ("fault", "kafka.ssl_certfile")
    ]
    assert list(certificate_findings("kafka.ssl_certfile", b"no PEM", NOW)) == []
