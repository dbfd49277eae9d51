"""Pages, silences and annotations under the suite that every connector passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from connectors.base import Connector, Effect, NoLease
from connectors.pager.alertmanager import AlertmanagerSilences
from connectors.pager.grafana import GrafanaAnnotations
from connectors.pager.jsm import JsmOperations
from connectors.pager.pagerduty import PagerDuty
from sandbox.fake_services.alertmanager import AlertmanagerStandin
from sandbox.fake_services.grafana import GrafanaStandin
from sandbox.fake_services.jsm import JsmStandin
from sandbox.fake_services.pagerduty import PagerDutyStandin
from streams.model.signal import Attribute
from tests.connectors.pager.effects import INCIDENT, UNTIL, effect, page, secret, silence, sink
from tests.contract.case import Case
from tests.contract.faults import Answer, FaultProxy
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.alertmanager import alertmanager

KEY = f"{INCIDENT}-1"


def pagerduty(
    url: str, *, token: str | None = "standin-token", more: Mapping[str, object] = MappingProxyType({})
) -> PagerDuty:
    api: dict[str, object] = {"api_token": secret(token), "api_url": url} if token else {}
    return PagerDuty(sink("pagerduty", url, key=secret("0123456789abcdef0123456789abcdef"), **api, **more))


def jsm(url: str, *, opsgenie: bool, **more: object) -> JsmOperations:
    if opsgenie:
        return JsmOperations(sink("jsm", url, key=secret("standin-key"), **more))
    api = {
        "api_url": f"{url}/jsm/ops/api/cloud-1",
        "api_user": "faultline@example.test",
        "api_token": secret("standin-token"),
    }
    return JsmOperations(sink("jsm", f"{url}/jsm/ops/integration", key=secret("standin-key"), **api, **more))


class _Case(Case):
    """What the cases here share: a timeout that is short where the proxy will hang."""

    @property
    def timeout(self) -> dict[str, object]:
        return {"timeout_s": 0.4} if self.proxy.will_hang else {}


class PagerDutyCase(_Case):
    def __init__(self, proxy: FaultProxy, server: PagerDutyStandin, update: bool) -> None:
        super().__init__(proxy)
        self.server, self.update = server, update

    def connector(self) -> Connector:
        return pagerduty(self.proxy.url, more=self.timeout)

    def effect(self) -> Effect:
        return (
            effect("update_page", "b" * 32, page("acknowledged"))
            if self.update
            else effect("page", "a" * 32, page())
        )

    async def changes(self) -> int:
        found = self.server.of(KEY)
        # A trigger that the open incident took in woke nobody.
        return sum(one.log.count("acknowledge") for one in found) if self.update else len(found)

    async def snapshot(self) -> object:
        return [(one.key, one.status, list(one.log)) for one in self.server.incidents]


class JsmCase(_Case):
    def __init__(self, proxy: FaultProxy, server: JsmStandin, update: bool) -> None:
        super().__init__(proxy)
        self.server, self.update = server, update

    def connector(self) -> Connector:
        return jsm(self.proxy.url, opsgenie=self.server.opsgenie, **self.timeout)

    def effect(self) -> Effect:
        return (
            effect("update_page", "b" * 32, page("resolved"))
            if self.update
            else effect("page", "a" * 32, page())
        )

    async def changes(self) -> int:
        found = self.server.of(KEY)
        return sum(one.log.count("close") for one in found) if self.update else len(found)

    async def snapshot(self) -> object:
        return [(one.alias, one.status, one.acknowledged, list(one.log)) for one in self.server.alerts]


class SilenceCase(_Case):
    """A silence in an Alertmanager that other cases may share: each has a key of its own."""

    def __init__(self, proxy: FaultProxy, url: str, key: str, update: str = "") -> None:
        super().__init__(proxy)
        self.url, self.key, self.update = url, key, update

    def connector(self) -> Connector:
        return AlertmanagerSilences(sink("alertmanager", self.proxy.url, **self.timeout))

    def effect(self) -> Effect:
        match self.update:
            case "renew":
                later = (UNTIL + timedelta(hours=1)).isoformat()
                return effect("update_silence", self.key, silence(until=later))
            case "lift":
                return effect("update_silence", self.key, silence("lifted"))
            case _:
                return effect("silence", self.key, silence())

    async def rows(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(trust_env=False) as client:
            rows = (await client.get(f"{self.url}/api/v2/silences")).json()
        return [row for row in rows if self.key in row["comment"]]

    async def changes(self) -> int:
        rows = await self.rows()
        live = [row for row in rows if row["status"]["state"] == "active"]
        match self.update:
            case "renew":
                return sum(
                    row["endsAt"].startswith((UNTIL + timedelta(hours=1)).isoformat()[:19]) for row in live
                )
            case "lift":
                return len(rows) - len(live)
            case _:
                return len(live)

    async def foreign_change(self) -> None:
        (row,) = [row for row in await self.rows() if row["status"]["state"] == "active"]
        async with httpx.AsyncClient(trust_env=False) as client:
            taken = {**row, "createdBy": "alice", "comment": f"mine now {row['comment']}"}
            taken.pop("status")
            taken.pop("updatedAt")
            (await client.post(f"{self.url}/api/v2/silences", json=taken)).raise_for_status()

    async def snapshot(self) -> object:
        return [
            (r["id"], r["status"]["state"], r["createdBy"], r["endsAt"], r["comment"])
            for r in await self.rows()
        ]


class AnnotationCase(_Case):
    def __init__(self, proxy: FaultProxy, server: GrafanaStandin, update: bool) -> None:
        super().__init__(proxy)
        self.server, self.update = server, update

    def connector(self) -> Connector:
        return GrafanaAnnotations(
            sink("grafana", self.proxy.url, key=secret("standin-token"), **self.timeout)
        )

    def effect(self) -> Effect:
        params: dict[str, Attribute] = {
            "incident": INCIDENT,
            "tags": ("c1", "gpu_off_bus"),
            "time_ms": 1_700_000_000_000,
        }
        if self.update:
            return effect("update_annotation", "e" * 32, {**params, "end_ms": 1_700_000_600_000})
        return effect("annotate", "e" * 32, params)

    async def changes(self) -> int:
        rows = [row for row in self.server.annotations.values() if INCIDENT in row["tags"]]
        return sum(row["timeEnd"] == 1_700_000_600_000 for row in rows) if self.update else len(rows)

    async def foreign_change(self) -> None:
        (row,) = self.server.annotations.values()
        row["text"] = "alice: this was the switch"

    async def snapshot(self) -> object:
        return [dict(row) for row in self.server.annotations.values()]

    def refusal(self) -> Answer:
        return Answer(403, '{"message":"You will need additional permissions"}')


@pytest.mark.embedded
class TestPagerDuty(EffectContract):
    @pytest.fixture(params=["page", "acknowledge"])
    async def case(self, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        async with PagerDutyStandin() as server, FaultProxy(server.url) as proxy:
            case = PagerDutyCase(proxy, server, request.param == "acknowledge")
            if case.update:
                await _beforehand(pagerduty(server.url), effect("page", "a" * 32, page()))
            yield case


@pytest.mark.embedded
class TestJsmOperations(EffectContract):
    @pytest.fixture(params=["page at JSM", "page at Opsgenie", "close at JSM"])
    async def case(self, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        opsgenie, update = request.param.endswith("Opsgenie"), request.param.startswith("close")
        async with JsmStandin(opsgenie=opsgenie) as server, FaultProxy(server.url) as proxy:
            if update:
                await _beforehand(jsm(server.url, opsgenie=opsgenie), effect("page", "a" * 32, page()))
            yield JsmCase(proxy, server, update)


@pytest.mark.embedded
class TestSilence(ConnectorContract):
    @pytest.fixture(params=["0.34", "0.31"])
    async def case(self, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        async with (
            AlertmanagerStandin(annotations=request.param == "0.34") as server,
            FaultProxy(server.url) as proxy,
        ):
            yield SilenceCase(proxy, server.url, "c" * 32)


@pytest.mark.embedded
class TestRenewAndLift(EffectContract):
    @pytest.fixture(params=["renew", "lift"])
    async def case(self, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        async with AlertmanagerStandin() as server, FaultProxy(server.url) as proxy:
            await _beforehand(
                AlertmanagerSilences(sink("alertmanager", server.url)),
                effect("silence", "d" * 32, silence()),
            )
            yield SilenceCase(proxy, server.url, "d" * 32, request.param)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Alertmanager that the tests of this file share."""
    with alertmanager(Path(tmp_path_factory.mktemp("alertmanager"))) as url:
        yield url


@pytest.mark.alertmanager
class TestSilenceInARealAlertmanager(ConnectorContract):
    @pytest.fixture
    async def case(self, real: str, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        async with FaultProxy(real) as proxy:
            yield SilenceCase(proxy, real, f"key-{request.node.name}".replace("[", "-").replace("]", ""))


@pytest.mark.alertmanager
class TestRenewAndLiftInARealAlertmanager(EffectContract):
    @pytest.fixture(params=["renew", "lift"])
    async def case(self, real: str, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
        key = f"key-{request.node.name}".replace("[", "-").replace("]", "")
        async with FaultProxy(real) as proxy:
            await _beforehand(
                AlertmanagerSilences(sink("alertmanager", real)), effect("silence", key, silence())
            )
            yield SilenceCase(proxy, real, key, request.param)


@pytest.mark.embedded
class TestAnnotation(ConnectorContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with GrafanaStandin() as server, FaultProxy(server.url) as proxy:
            yield AnnotationCase(proxy, server, update=False)


@pytest.mark.embedded
class TestEndOfAnAnnotation(EffectContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        async with GrafanaStandin() as server, FaultProxy(server.url) as proxy:
            connector = GrafanaAnnotations(sink("grafana", server.url, key=secret("standin-token")))
            first = AnnotationCase(proxy, server, update=False).effect()
            await _beforehand(connector, first)
            yield AnnotationCase(proxy, server, update=True)


async def _beforehand(connector: Connector, made: Effect) -> None:
    await connector.apply(made, NoLease())
    await connector.close()
