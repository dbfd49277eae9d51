"""Certificates and tokens that end soon, where a file of ours says so: nothing is asked of anybody.

Services that tell when a token ends are asked by `http_probe`; Slack's bot tokens and PagerDuty's keys do not end.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from faultline.checks.finding import CheckFinding
from faultline.checks.http_probe import SOON
from faultline.runtime.settings import Settings
from streams.config.connector_settings import KubernetesSettings
from streams.model.clock import to_the_second, utc_now


async def probe_expiry(settings: Settings) -> list[CheckFinding]:
    """Every certificate and token of these settings that has ended, or ends within two weeks."""
    now = utc_now()
    found: list[CheckFinding] = []
    for key in ("ssl_certfile", "ssl_cafile"):
        path = getattr(settings.kafka, key)
        if path is not None:
            found += _of_file(f"kafka.{key}", path, now)
    return [*found, *_of_kubeconfig(settings.kubernetes, now)]


def _of_file(where: str, path: Path, now: datetime) -> Iterator[CheckFinding]:
    try:
        content = path.read_bytes()
    except OSError:
        return  # told of by the check of files
    yield from certificate_findings(f"{where} {path}", content, now)


def certificate_findings(where: str, pem: bytes, now: datetime) -> Iterator[CheckFinding]:
    """A finding where the first of these certificates has ended or soon will. Pure."""
    try:
        from cryptography import x509
    except ImportError:
        return  # a base installation can do without; the broker refuses an expired one all the same
    try:
        until = x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc
    except (ValueError, IndexError):
        return
    yield from _ending(where, "certificate", until, now)


def token_findings(where: str, token: str, now: datetime) -> Iterator[CheckFinding]:
    """A finding where a JSON web token has ended or soon will; none for a token that tells no end. Pure."""
    parts = token.split(".")
    if len(parts) != 3:
        return
    try:
        told: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        until = datetime.fromtimestamp(told["exp"], UTC)
        since = datetime.fromtimestamp(told["iat"], UTC) if "iat" in told else None
    except (ValueError, KeyError, TypeError, OverflowError):
        return
    if until > now and since is not None and until - since < SOON:
        return  # made anew by whoever gave it
    yield from _ending(where, "token", until, now)


def _ending(where: str, what: str, until: datetime, now: datetime) -> Iterator[CheckFinding]:
    if until > now + SOON:
        return
    past = until <= now
    told = f"the {what} {'ended' if past else 'ends'} at {to_the_second(until)}"
    yield CheckFinding(
        "fault" if past else "warning", where, told, f"make a new {what} and mount it",
        "kubectl -n faultline get secret faultline-secrets -o jsonpath='{.metadata.creationTimestamp}'",
    )  # fmt: skip


def _of_kubeconfig(wanted: KubernetesSettings, now: datetime) -> Iterator[CheckFinding]:
    """The client certificate and the token of the context in use."""
    if wanted.kubeconfig is None:
        return
    try:
        document: Any = yaml.safe_load(wanted.kubeconfig.read_text(encoding="utf-8"))
        context = wanted.context or document.get("current-context")
        user_name = next(c["context"]["user"] for c in document["contexts"] if c["name"] == context)
        user = next(u["user"] for u in document["users"] if u["name"] == user_name)
    except (OSError, yaml.YAMLError, StopIteration, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        return  # told of by the check of files
    where = f"kubernetes.kubeconfig {wanted.kubeconfig}"
    if data := user.get("client-certificate-data"):
        yield from certificate_findings(where, base64.b64decode(data), now)
    if token := user.get("token"):
        yield from token_findings(where, str(token), now)
