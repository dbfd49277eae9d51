"""Settings in which every secret that there is has a value of its own, to look for it in what a process says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, SecretStr


def canary(number: int) -> str:
    """A value that stands nowhere else, with what the ways to write it down treat differently."""
    return f"canary{number:02d}/Zq8+vX3=w&~5Ks?tR"


def signing(number: int) -> str:
    """One for signatures: 24 bytes."""
    return "whsec_" + base64.b64encode(canary(number).encode()[:24]).decode()


def everything(url: str = "http://127.0.0.1:9") -> dict[str, Any]:
    """Settings with every secret; all services are at `url`."""
    sinks = {
        kind: {
            "kind": kind,
            "url": url,
            "key": canary(10 + n),
            "api_url": url,
            "api_token": canary(20 + n),
            "api_user": "robot",
        }
        for n, kind in enumerate(("pagerduty", "jsm", "alertmanager", "grafana"))
    } | {kind: {"kind": kind} for kind in ("email", "teams", "webhook")}
    return {
        "cluster": "east",
        "kafka": {
            "bootstrap": "127.0.0.1:9",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_username": "faultline",
            "sasl_password": canary(1),
            "oauth": {"client_secret": canary(90)},
        },
        "slack": {
            "base_url": url,
            "token": canary(2),
            "app_token": canary(3),
            "signing_secret": canary(4),
            "channel": "C0INCIDENTS",
        },
        "jira": {"base_url": url, "user": "robot@example.com", "token": canary(5)},
        "tickets": {
            "servicenow": {"base_url": url, "user": "robot", "token": canary(6)},
            "github": {"base_url": url, "token": canary(7), "repository": "site/gpus"},
            "gitlab": {"base_url": url, "token": canary(8), "project": "site/gpus"},
        },
        "notifier": {"sinks": sinks},
        "posts": {
            "email": {
                "host": "127.0.0.1",
                "port": 9,
                "security": "starttls",
                "user": "robot",
                "password": canary(30),
                "sender": "robot@example.com",
                "to": ["oncall@example.com"],
            },
            "teams": {"url": f"{url}/hook/{canary(31).replace('?', '')}"},
            "webhook": {
                "url": f"{url}/{canary(32).replace('?', '')}",
                "secret": signing(33),
                "old_secret": signing(34),
            },
            "apprise": {"urls": [f"json://robot:{quote(canary(35), safe='')}@127.0.0.1:9/"]},
        },
        "node_work": {
            "redfish": {},
            "hook": {
                "url": f"{url}/{canary(36).replace('?', '')}",
                "secret": signing(37),
                "actions": ["replace_node"],
            },
        },
        "gateway": {
            "port": 1,
            "alertmanager": {
                "token": canary(40),
                "token_next": canary(41),
                "user": "am",
                "password": canary(42),
            },
            "events": {
                "secret": canary(43),
                "secret_next": canary(44),
                "token": canary(45),
                "token_next": canary(46),
            },
            "pagerduty": {"secret": canary(47), "secret_next": canary(48), "own_user": "PROBOT"},
            "jira": {"secret": canary(49), "secret_next": canary(50), "own_user": "robot"},
            "servicenow": {
                "secret": canary(51),
                "secret_next": canary(52),
                "token": canary(53),
                "token_next": canary(54),
                "own_user": "robot",
            },
        },
        "console": {
            "session_secret": canary(60) * 2,
            "public_url": "http://127.0.0.1:1",
            "oidc": {"issuer": url, "client_id": "faultline", "client_secret": canary(61)},
        },
        "tracing": {"endpoint": url, "headers": {"Authorization": f"Bearer {canary(70)}"}},
    }


def secret_paths(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The path of every secret setting; `*` stands for a name or a number of the operator's."""
    for name, field in model.model_fields.items():
        yield from _paths(field.annotation, f"{path}{name}")


def _paths(kind: Any, path: str) -> Iterator[str]:
    if kind is SecretStr:
        yield path
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from secret_paths(kind, f"{path}.")
    elif (origin := get_origin(kind)) is not None:
        many = isinstance(origin, type) and issubclass(origin, Mapping | tuple | list)
        inner = get_args(kind)
        for one in inner[-1:] if many and issubclass(origin, Mapping) else inner:
            yield from _paths(one, f"{path}.*" if many else path)


def values(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The path and the value of every secret that is set."""
    if isinstance(value, SecretStr):
        yield path.strip("."), value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from values(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from values(inner, f"{path}.*")
    elif isinstance(value, tuple):
        for inner in value:
            yield from values(inner, f"{path}.*")


def written(secret: str, before: str = "") -> Iterator[str]:
    """The ways in which a secret is found written down, on its own or behind `before` in base64."""
    yield secret
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    for text in (secret, f"{before}:{secret}"):
        yield base64.b64encode(text.encode()).decode().rstrip("=")
        yield base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


USERS = ("faultline", "robot", "robot@example.com", "am", "user")


def found(text: str, secrets: Mapping[str, str]) -> list[str]:
    """The settings whose secret stands in `text`, in any way of writing."""
    return [
        path
        for path, secret in secrets.items()
        if any(form in text for user in USERS for form in written(secret, user))
    ]
