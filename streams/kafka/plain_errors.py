"""Errors of the Kafka client in plain words: aiokafka's own texts are names of classes, numbers and tuples of addresses."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from aiokafka.errors import (
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from streams.config.settings import KafkaSettings
from streams.model.errors import Denied

_WORDY = "Returned by the broker when "

LOGIN_REFUSED = "the login is refused (SASL_AUTHENTICATION_FAILED)"

_DENIALS = {
    # What an idempotent producer gets, with its first request, whose user may write to no topic at all.
    ClusterAuthorizationFailedError: "write to any topic",
    GroupAuthorizationFailedError: "use the consumer group",
    TopicAuthorizationFailedError: "use the topic",
    TransactionalIdAuthorizationFailed: "use the transactional id",
}
"""What Kafka's ACLs deny, by the error that says so."""


def plain(error: BaseException, *, user: str = "", operation: str = "") -> str:
    """Why a call to Kafka failed, for people; a refusal says who may not do what, as far as the caller knows that."""
    match error:
        case socket.gaierror():
            return "the name is not known"
        case ConnectionRefusedError():
            return "connection refused"
        case TimeoutError() | KafkaTimeoutError():
            return "no answer in time"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case ssl.SSLError():
            return f"TLS failed ({getattr(error, 'reason', None) or error.strerror})"
        case KafkaConnectionError():
            return "the connection was closed; does kafka.security_protocol fit?"
        case CorruptRecordException():
            return (
                "a record fails its checksum (CORRUPT_MESSAGE). The demo's broker writes such ones: name the settings file that "
                "`faultline demo --stay` prints, with --config"
            )
        case SaslAuthenticationFailed():
            return LOGIN_REFUSED
        case BrokerResponseError() if type(error) in _DENIALS:
            what = _DENIALS[type(error)]
            what = what.replace("use the", operation, 1) if operation else what
            return (
                f"{f'user {user}' if user else 'this user'} may not {what}{_named(error)} ({error.message}); "
                "`faultline topics acls` prints the rights that each process and each kind of user needs"
            )
        case BrokerResponseError():
            # `description` is the protocol's text for the code, `message` the code's name.
            words = str(error.description or "").removeprefix(_WORDY).rstrip(".")
            return f"{words} ({error.message})" if words else str(error.message)
        case OSError() if error.errno:
            return os.strerror(error.errno).lower()
        case _:
            return str(error) or type(error).__name__


@contextmanager
def named_refusals(settings: KafkaSettings, operation: str = "") -> Iterator[None]:
    """What Kafka refuses inside is raised with the user of these settings, and with the operation where all inside are one.

    Raises:
        Denied: Kafka refuses a right.
    """
    try:
        yield
    except BrokerResponseError as error:
        if type(error) not in _DENIALS:
            raise
        why = plain(error, user=settings.sasl_username or "", operation=operation)
        raise Denied(f"Kafka at {settings.bootstrap}: {why}") from error


def is_denial(error: BaseException | None) -> bool:
    """Whether a call failed because Kafka refuses this user, a right or the login: to try again does not help."""
    return error is not None and (
        isinstance(error, Denied) or type(error) in _DENIALS or is_denial(error.__cause__)
    )


def _named(error: BrokerResponseError) -> str:
    """The topics or group that a denial is about, where aiokafka tells."""
    match error.args:
        case (str(name),):
            return f" {name}"
        case (set() | frozenset() | list() | tuple() as names,) if names:
            return f" {', '.join(sorted(names))}"
        case _:
            return ""


@contextmanager
def refusals() -> Iterator[dict[str, str]]:
    """Why brokers cannot be reached meanwhile, by `host:port`. aiokafka only logs it: what it raises has the addresses alone."""
    found: dict[str, str] = {}

    def note(record: logging.LogRecord) -> bool:
        match record.args:
            case (str(host), int(port), BaseException() as error):
                found[f"{host}:{port}"] = plain(error)
        return True

    said = logging.getLogger("aiokafka")
    said.addFilter(note)
    try:
        yield found
    finally:
        said.removeFilter(note)
