"""A gateway's HTTP side on a real socket, with what it would write to Kafka kept in lists instead."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession
from pydantic import SecretStr

from faultline.gateway.app import GatewayParts, build_app
from faultline.gateway.raw_records import RawRecords, RawValue
from faultline.gateway.server import served
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings
from streams.kafka.topics import RAW_ALERTS, Topic
from streams.model.conversation import Command
from streams.model.errors import Temporary
from tests.connectors.chat import thread_documents

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TOKEN = "token-of-the-hook-1"
NEXT_TOKEN = "token-of-the-hook-2"
SECRET = "secret-of-the-hook-1"
NEXT_SECRET = "secret-of-the-hook-2"
PASSWORD = "password-of-the-hook"
INCIDENT = thread_documents.incident()

HOOKS: dict[str, dict[str, object]] = {
    "alertmanager": {"token": TOKEN, "token_next": NEXT_TOKEN, "user": "prometheus", "password": PASSWORD},
    "events": {"token": TOKEN, "secret": SECRET, "secret_next": NEXT_SECRET},
    "pagerduty": {"secret": SECRET, "secret_next": NEXT_SECRET, "own_user": "PBOT"},
    "jira": {"secret": SECRET, "own_user": "account-of-faultline"},
    "servicenow": {"token": TOKEN, "secret": SECRET, "own_user": "faultline.bot"},
}


class KeptRecords(RawRecords):
    """Keeps what is written; `away`: Kafka takes nothing."""

    def __init__(self) -> None:
        super().__init__(KafkaSettings())
        self.values: list[RawValue] = []
        self.away = False

    async def write(self, values: Sequence[RawValue], topic: Topic = RAW_ALERTS) -> None:
        if self.away:
            raise Temporary("Kafka does not answer at 127.0.0.1:9092")
        self.values += values

    @property
    def documents(self) -> list[Any]:
        return [orjson.loads(one.value) for one in self.values]


class KeptDecisions(Decisions):
    """Keeps what is sent; `away`: Kafka takes nothing."""

    def __init__(self, view: LiveView) -> None:
        super().__init__(KafkaSettings(), view)
        self.commands: list[Command] = []
        self.away = False

    async def send(self, command: Command) -> None:
        if self.away:
            raise Temporary("Kafka does not answer at 127.0.0.1:9092")
        self.commands.append(command)


@dataclass
class Served:
    """A served gateway: its parts, and a client."""

    parts: GatewayParts
    records: KeptRecords
    decisions: KeptDecisions
    port: int
    client: ClientSession
    now: datetime = NOW
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: object = b"", **headers: str) -> tuple[int, str]:
        """The status and text of the answer."""
        answer = await self.answer(path, body, **headers)
        return answer.status, await answer.text()

    async def answer(self, path: str, body: object = b"", **headers: str) -> ClientResponse:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        async with self.client.post(self.url + path, data=raw, headers=sent) as answer:
            await answer.read()
            return answer


def settings(**changes: object) -> GatewaySettings:
    return GatewaySettings.model_validate({"port": 1, **HOOKS, **changes})


@asynccontextmanager
async def serving(
    wanted: GatewaySettings | None = None, *, ready: bool = True, off_s: float = 0.0
) -> AsyncIterator[Served]:
    """Serve with every hook on. The clock stands at `NOW`, `off_s` seconds from the senders' clock."""
    wanted = (wanted or settings()).model_copy(update={"port": 0})
    view = LiveView()
    view.take_incident(INCIDENT)
    view.ready = ready
    records, decisions = KeptRecords(), KeptDecisions(view)
    parts = GatewayParts(
        settings=wanted,
        view=view,
        decisions=decisions,
        records=records,
        cluster="c1",
        slack=SlackSettings(),
        clock=lambda: NOW + timedelta(seconds=off_s),
    )
    async with served(build_app(parts), wanted) as port, ClientSession() as client:
        yield Served(parts, records, decisions, port, client)


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(user: str = "prometheus", password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def standard(
    body: bytes, *, secret: str = SECRET, name: str = "msg_1", at: datetime = NOW, version: str = "v1"
) -> dict[str, str]:
    """The headers of a Standard Webhooks signature."""
    stamp = str(int(at.timestamp()))
    signature = _hmac(secret, f"{name}.{stamp}.".encode() + body)
    return {
        "webhook-id": name,
        "webhook-timestamp": stamp,
        "webhook-signature": f"{version},{base64.b64encode(signature).decode()}",
    }


def pagerduty(body: bytes, *secrets: str) -> dict[str, str]:
    found = ",".join(f"v1={_hmac(secret, body).hex()}" for secret in secrets or (SECRET,))
    return {"X-PagerDuty-Signature": found}


def jira(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature": f"sha256={_hmac(secret, body).hex()}"}


def secret_str(text: str) -> SecretStr:
    return SecretStr(text)


def _hmac(secret: str, body: bytes) -> bytes:
    return hmac.new(secret.encode(), body, hashlib.sha256).digest()
