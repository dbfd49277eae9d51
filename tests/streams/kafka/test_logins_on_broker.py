"""Every way to log in, on a real broker: it works for who is known, is refused for who is not, and outlives its rotation."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError
from joserfc.jwk import RSAKey
from pydantic import SecretStr

from faultline.checks.kafka_acls import acls_of
from sandbox.fake_services.oidc import OidcStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.topics import DEAD_LETTERS, RAW_NODE_LOGS
from streams.model.errors import Denied, Unreachable
from tests.testbed.certificates import Authority
from tests.testbed.children import free_port
from tests.testbed.secured_kafka import SecuredKafka, password, principal
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

NAME = "dead-letters"
"""Who may write raw.node-logs and read dead-letters."""
PROVIDER_PORT = free_port()
ISSUER = f"http://127.0.0.1:{PROVIDER_PORT}"
CLIENT_SECRET = "the secret of a service"


@pytest.fixture(scope="module")
def keys() -> list[RSAKey]:
    """Of the identity provider, over all its starts."""
    return OidcStandin(clock=time.time)._keys


@pytest.fixture(scope="module")
def broker(keys: list[RSAKey], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    # The broker ends a connection with the token it began with, as KIP-368 has it.
    limits = {"listener.name.login.oauthbearer.connections.max.reauth.ms": "3600000"}
    folder = tmp_path_factory.mktemp("logins")
    jwks = folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [key.as_dict(private=False) for key in keys]}))
    with SecuredKafka.running(folder, issuer=ISSUER, jwks=jwks, **limits) as running:
        yield running


@pytest.fixture(scope="module")
def settings(broker: SecuredKafka) -> KafkaSettings:
    """The topics, as the administrator made them."""
    made = broker.administrator("logins")
    asyncio.run(provisioning.apply(made))
    broker.give(acls_of(NAME, made))
    return made


@pytest.fixture
async def provider(keys: list[RSAKey]) -> AsyncIterator[OidcStandin]:
    """The identity provider, at the address that is in its tokens."""
    standin = OidcStandin(clock=time.time)
    standin._keys = keys
    standin.services = {principal(NAME): CLIENT_SECRET}
    await standin.start(port=PROVIDER_PORT)
    yield standin
    await standin.stop()


def by_token(broker: SecuredKafka, settings: KafkaSettings, **changes: Any) -> KafkaSettings:
    oauth = {
        "token_url": f"{ISSUER}/token",
        "client_id": principal(NAME),
        "client_secret": CLIENT_SECRET,
        "audience": "kafka",
    }
    return broker.by_token(settings, **(oauth | changes))


async def passes_a_record(settings: KafkaSettings) -> None:
    """Write a record and read from another topic, as the one principal that may."""
    producer = await clients.started(clients.producer(settings), settings)
    try:
        await producer.send_and_wait(clients.topic_name(settings, RAW_NODE_LOGS), b"a line")
    finally:
        await producer.stop()
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        place = TopicPartition(clients.topic_name(settings, DEAD_LETTERS), 0)
        async for _ in clients.batches_to_end(reader, place):
            pass
    finally:
        await reader.stop()


@pytest.mark.parametrize("how", ["certificate", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_each_way_to_log_in_carries_records(
    broker: SecuredKafka, settings: KafkaSettings, provider: OidcStandin, how: str
) -> None:
    if how == "certificate":
        mine = broker.by_certificate(settings, NAME)
    elif how == "OAUTHBEARER":
        mine = by_token(broker, settings)
    else:
        mine = broker.by_password(settings, NAME, how)

    async def counts() -> bool:
        try:
            await passes_a_record(mine)
        except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
            return False  # an ACL counts some moments after it was made
        return True

    await eventually(counts, "the ACLs count and a record passes")


@pytest.mark.parametrize("how", ["stranger's certificate", "stranger's broker", "PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_proof_is_refused_with_its_reason(
    broker: SecuredKafka, settings: KafkaSettings, tmp_path: Path, how: str
) -> None:
    stranger = Authority(tmp_path / "stranger", "Another CA")
    if how == "stranger's certificate":
        certificate, key = stranger.issue(principal(NAME))
        mine = broker.by_certificate(settings, NAME)
        mine = mine.model_copy(update={"ssl_certfile": certificate, "ssl_keyfile": key})
        reason = "Kafka does not answer at"
    elif how == "stranger's broker":
        mine = broker.by_certificate(settings, NAME).model_copy(update={"ssl_cafile": stranger.file})
        reason = "its certificate is not trusted"
    else:
        mine = broker.by_password(settings, NAME, how)
        mine = mine.model_copy(update={"sasl_password": SecretStr("guessed")})
        reason = f"refuses the login of {mine.sasl_username}"
    with pytest.raises(Unreachable, match=reason):
        await clients.started(clients.producer(mine), mine)


LIES: dict[str, dict[str, Any]] = {
    "for another service": {"aud": "another-service"},
    "of another provider": {"iss": "http://127.0.0.1:2"},
    "that has ended": {"iat": int(time.time()) - 120, "exp": int(time.time()) - 60},
    "signed by a stranger": {},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_token_is_refused(
    broker: SecuredKafka, settings: KafkaSettings, provider: OidcStandin, lie: str
) -> None:
    provider.lies = LIES[lie]
    if not provider.lies:
        same_name: Any = {"kid": "key-1", "use": "sig", "alg": "RS256"}
        provider.forger = RSAKey.generate_key(2048, same_name, private=True)
    # A scope of its own: no token of another test is kept for it.
    mine = by_token(broker, settings, scope=lie)
    with pytest.raises(Denied, match="refuses the token"):
        await clients.started(clients.producer(mine), mine)


async def test_a_wrong_client_secret_names_the_provider_and_not_the_secret(
    broker: SecuredKafka, settings: KafkaSettings, provider: OidcStandin
) -> None:
    mine = by_token(broker, settings, client_secret="guessed-secret")
    with pytest.raises(Unreachable) as caught:
        await clients.started(clients.producer(mine), mine)
    assert f"no token from {ISSUER}/token: it answered 401 (invalid_client)" in str(caught.value)
    assert "guessed" not in str(caught.value)


async def test_tokens_are_renewed_before_they_end_and_nothing_is_lost_when_the_broker_ends_a_connection(
    broker: SecuredKafka, settings: KafkaSettings, provider: OidcStandin, tmp_path: Path
) -> None:
    """A token lives three seconds here and the broker closes what began with it. The secret is rotated meanwhile."""
    provider.service_token_s = 3.0
    secret = tmp_path / "secret"
    secret.write_text(CLIENT_SECRET + "\n")
    mine = by_token(broker, settings, client_secret=None, client_secret_file=secret)
    tokens = asked_for(provider)
    producer = await clients.started(clients.producer(mine), mine)
    name, written = clients.topic_name(mine, RAW_NODE_LOGS), list[int]()
    try:

        async def written_over(count: int) -> bool:
            written.append((await producer.send_and_wait(name, b"a line", partition=0)).offset)
            return len(tokens) >= count

        await eventually(lambda: written_over(2), "a second token was used", timeout_s=30)
        provider.services = {principal(NAME): "another secret"}
        secret.write_text("another secret")
        await eventually(lambda: written_over(4), "tokens of the new secret were used", timeout_s=30)
    finally:
        await producer.stop()
    assert written == list(range(written[0], written[0] + len(written))), "lost or doubled"


def asked_for(provider: OidcStandin) -> list[str]:
    """Grows by one with each token that the provider gives."""
    given, signed = list[str](), provider._signed

    def counted(claims: dict[str, Any]) -> str:
        given.append(signed(claims))
        return given[-1]

    provider._signed = counted  # type: ignore[method-assign]
    return given


async def test_a_password_that_is_rotated_in_its_file_is_used_for_the_next_connection(
    broker: SecuredKafka, settings: KafkaSettings, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text(password(NAME) + "\n")
    mine = broker.by_password(settings, NAME, "SCRAM-SHA-512")
    mine = mine.model_copy(update={"sasl_password": None, "sasl_password_file": file})
    producer = await clients.started(clients.producer(mine), mine)
    name = clients.topic_name(mine, RAW_NODE_LOGS)
    try:
        await producer.send_and_wait(name, b"before")
        broker.set_password(NAME, to="rotated")
        file.write_text("rotated\n")
        drop_connections(producer)
        await producer.send_and_wait(name, b"after")
    finally:
        await producer.stop()
        broker.set_password(NAME)


def drop_connections(producer: AIOKafkaProducer) -> None:
    """As when brokers restart."""
    for connection in list(producer.client._conns.values()):
        connection.close()
