"""A real broker that asks everybody who they are: mutual TLS on one listener, passwords and tokens over TLS on another.

Its authorizer refuses what no ACL allows. The listener without a login is for the tests alone, as the administrator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from pydantic import SecretStr

from faultline.checks.kafka_acls import Acl
from faultline.checks.kafka_rights import EVERYBODY
from streams.config.settings import KafkaSettings
from tests.testbed.certificates import Authority
from tests.testbed.children import free_port
from tests.testbed.kafka import Kafka

_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_SECURITY = "org.apache.kafka.common.security"
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


def principal(name: str) -> str:
    """How a process or user is called on this broker."""
    return f"faultline-{name}"


def password(name: str) -> str:
    """Its password."""
    return f"secret of {name}"


class SecuredKafka:
    """The broker, and settings for each way to log in. Everybody of `EVERYBODY` has a certificate and a password."""

    def __init__(self, kafka: Kafka, authority: Authority, mtls: str, login: str) -> None:
        self.kafka = kafka
        self.authority = authority
        self._mtls, self._login = mtls, login
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, *, issuer: str = "", jwks: Path | None = None, **properties: str
    ) -> Iterator[SecuredKafka]:
        """Run the broker. With `jwks`, a file of public keys, it takes tokens of `issuer` as well."""
        authority = Authority(folder / "certificates")
        kafka = Kafka(
            folder / "broker",
            java_options=(f"-D{_ALLOWED_URLS}={jwks.as_uri()}",) if jwks is not None else (),
        )
        own = dict(item.split("=", 1) for item in _listeners(kafka, authority))
        if jwks is not None:
            own |= dict(item.split("=", 1) for item in _tokens(issuer, jwks))
        kafka.add(own | properties)
        kafka.start()
        try:
            _, mtls, login = (one.partition("://")[2] for one in own["advertised.listeners"].split(","))
            broker = cls(kafka, authority, mtls, login)
            broker.set_password(*EVERYBODY)
            yield broker
        finally:
            kafka.stop()

    def administrator(self, prefix: str, **changes: Any) -> KafkaSettings:
        """Settings of an installation of its own, for who may do all."""
        return self.kafka.settings(prefix, **changes)

    def by_certificate(self, settings: KafkaSettings, name: str) -> KafkaSettings:
        """The settings for a process that shows its certificate."""
        certificate, key = self.authority.issue(principal(name))
        return settings.model_copy(
            update={
                "bootstrap": self._mtls,
                "security_protocol": "SSL",
                "ssl_cafile": self.authority.file,
                "ssl_certfile": certificate,
                "ssl_keyfile": key,
            }
        )

    def by_password(self, settings: KafkaSettings, name: str, mechanism: str) -> KafkaSettings:
        """The settings for a process with a password: `PLAIN` or `SCRAM-SHA-512`."""
        return self._over_tls(settings, mechanism).model_copy(
            update={"sasl_username": principal(name), "sasl_password": SecretStr(password(name))}
        )

    def by_token(self, settings: KafkaSettings, **oauth: Any) -> KafkaSettings:
        """The settings for a process that gets tokens with `kafka.oauth`."""
        over_tls = self._over_tls(settings, "OAUTHBEARER")
        return KafkaSettings.model_validate({**over_tls.model_dump(), "oauth": oauth})

    def _over_tls(self, settings: KafkaSettings, mechanism: str) -> KafkaSettings:
        return settings.model_copy(
            update={
                "bootstrap": self._login,
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": mechanism,
                "ssl_cafile": self.authority.file,
            }
        )

    def set_password(self, *names: str, to: str | None = None) -> None:
        """Set SCRAM passwords; the usual ones unless `to` is given."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        rows: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(principal(n), info, (to or password(n)).encode()) for n in names
        ]
        for future in self._admin.alter_user_scram_credentials(rows).values():
            future.result()

    def give(self, acls: Iterable[Acl]) -> None:
        """Set ACLs as `faultline topics acls` prints them."""
        rows = [
            AclBinding(
                _KINDS[acl.kind],
                acl.name,
                ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL,
                f"User:{principal(acl.who)}",
                "*",
                AclOperation[operation.name],
                AclPermissionType.ALLOW,
            )
            for acl in acls
            for operation in acl.operations
        ]
        for future in self._admin.create_acls(rows).values():
            future.result()

    def take_all(self, name: str) -> None:
        """Take every right of a process or user."""
        anything: Any = None
        every = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            f"User:{principal(name)}",
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._admin.delete_acls([every]).values():
            future.result()


def _listeners(kafka: Kafka, authority: Authority) -> Iterator[str]:
    mtls, login = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    certificate, key = authority.issue("broker", server=True)
    keystore = authority.folder / "broker-keystore.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    users = " ".join(f'user_{principal(name)}="{password(name)}"' for name in EVERYBODY)
    plaintext, controller = kafka.bootstrap, kafka.controller
    advertised = f"PLAINTEXT://{plaintext},MTLS://{mtls},LOGIN://{login}"
    yield f"listeners={advertised},CONTROLLER://{controller}"
    yield f"advertised.listeners={advertised}"
    yield "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MTLS:SSL,LOGIN:SASL_SSL"
    yield "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    yield "super.users=User:ANONYMOUS"
    yield "ssl.keystore.type=PEM"
    yield f"ssl.keystore.location={keystore}"
    yield "ssl.truststore.type=PEM"
    yield f"ssl.truststore.location={authority.file}"
    yield "listener.name.mtls.ssl.client.auth=required"
    yield "listener.name.mtls.ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/"
    yield "listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512"
    yield f"listener.name.login.plain.sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required {users};"
    yield f"listener.name.login.scram-sha-512.sasl.jaas.config={_SECURITY}.scram.ScramLoginModule required;"


def _tokens(issuer: str, jwks: Path) -> Iterator[str]:
    tokens = "listener.name.login.oauthbearer.sasl"
    yield "listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER"
    yield f"{tokens}.jaas.config={_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
    yield f"{tokens}.server.callback.handler.class={_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    # Kafka 4.1 needs it: its default validator is the client's, which checks neither signature, issuer nor audience. And it needs
    # it just so: where this one key is written with the listener's and mechanism's prefix, the broker does not see it.
    yield f"sasl.oauthbearer.jwt.validator.class={_SECURITY}.oauthbearer.BrokerJwtValidator"
    yield f"{tokens}.oauthbearer.jwks.endpoint.url={jwks.as_uri()}"
    yield f"{tokens}.oauthbearer.expected.issuer={issuer}"
    yield f"{tokens}.oauthbearer.expected.audience=kafka"
    yield f"{tokens}.oauthbearer.clock.skew.seconds=0"
