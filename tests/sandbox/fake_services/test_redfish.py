"""The stand-in of a BMC does what DMTF's documents say of one, and the bad things that real ones do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sandbox.fake_services.redfish import MOST_SESSIONS, RESET, ROOT, SYSTEM, UUID, RedfishStandin

SESSIONS = f"{ROOT}/SessionService/Sessions"
LOGIN = {"UserName": "faultline", "Password": "secret"}


@pytest.fixture
async def bmc() -> AsyncIterator[RedfishStandin]:
    async with RedfishStandin() as standin:
        yield standin


@pytest.fixture
async def client(bmc: RedfishStandin) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=bmc.url, auth=("faultline", "secret")) as made:
        yield made


async def reset(client: httpx.AsyncClient, kind: str) -> httpx.Response:
    return await client.post(RESET, json={"ResetType": kind})


async def test_the_root_is_open_and_everything_else_needs_a_login(bmc: RedfishStandin) -> None:
    async with httpx.AsyncClient(base_url=bmc.url) as stranger:
        assert (await stranger.get(f"{ROOT}/")).json()["RedfishVersion"]
        for path in (f"{ROOT}/Systems", SYSTEM, f"{ROOT}/TaskService/TaskMonitors/1"):
            assert (await stranger.get(path)).status_code == 401
        refused = await reset(stranger, "On")
        assert refused.status_code == 401
        assert refused.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].startswith("Base.1.")
    assert not bmc.resets


async def test_a_session_opens_it_until_it_is_deleted_and_there_are_few(bmc: RedfishStandin) -> None:
    async with httpx.AsyncClient(base_url=bmc.url) as client:
        assert (await client.post(SESSIONS, json=LOGIN | {"Password": "x"})).status_code == 401
        made = await client.post(SESSIONS, json=LOGIN)
        assert made.status_code == 201
        token = {"X-Auth-Token": made.headers["X-Auth-Token"]}
        assert (await client.get(SYSTEM, headers=token)).json()["UUID"] == UUID
        for _ in range(MOST_SESSIONS - 1):
            await client.post(SESSIONS, json=LOGIN)
        assert (await client.post(SESSIONS, json=LOGIN)).status_code == 503
        assert (await client.delete(made.headers["Location"], headers=token)).status_code == 204
        assert (await client.get(SYSTEM, headers=token)).status_code == 401


async def test_the_system_tells_its_power_and_what_it_can_do(
    bmc: RedfishStandin, client: httpx.AsyncClient
) -> None:
    (member,) = (await client.get(f"{ROOT}/Systems")).json()["Members"]
    found = (await client.get(member["@odata.id"])).json()
    action = found["Actions"]["#ComputerSystem.Reset"]
    assert (found["PowerState"], action["target"]) == ("On", RESET)
    assert "PowerCycle" in action["ResetType@Redfish.AllowableValues"]
    bmc.info = True
    action = (await client.get(SYSTEM)).json()["Actions"]["#ComputerSystem.Reset"]
    assert "ResetType@Redfish.AllowableValues" not in action
    (parameter,) = (await client.get(action["@Redfish.ActionInfo"])).json()["Parameters"]
    assert parameter["AllowableValues"] == list(bmc.allowed)


async def test_power_goes_off_and_on_and_the_machine_boots(
    bmc: RedfishStandin, client: httpx.AsyncClient
) -> None:
    boots, offs = [], []
    bmc.powers, bmc.stays_off = (lambda: boots.append(1)), (lambda: offs.append(1))
    for kind, power in (("ForceOff", "Off"), ("ForceRestart", "Off"), ("On", "On"), ("PowerCycle", "On")):
        assert (await reset(client, kind)).status_code == 204
        assert (await client.get(SYSTEM)).json()["PowerState"] == power
    assert (len(boots), len(offs)) == (2, 1)


async def test_what_is_not_supported_or_moot_is_refused(
    bmc: RedfishStandin, client: httpx.AsyncClient
) -> None:
    bmc.allowed, bmc.refuses_moot = ("On", "ForceOff"), True
    assert (await reset(client, "PowerCycle")).status_code == 400
    assert (await reset(client, "On")).status_code == 409
    assert not bmc.resets


async def test_a_task_monitor_is_202_until_it_is_over_and_then_read_once(
    bmc: RedfishStandin, client: httpx.AsyncClient
) -> None:
    bmc.tasks = True
    taken = await reset(client, "PowerCycle")
    assert taken.status_code == 202
    monitor = taken.headers["Location"]
    assert (await client.get(monitor)).status_code == 202
    bmc.finish_tasks()
    assert (await client.get(monitor)).json()["TaskState"] == "Completed"
    assert (await client.get(monitor)).status_code == 404


async def test_a_task_can_fail_a_bmc_can_be_busy_and_deaf(
    bmc: RedfishStandin, client: httpx.AsyncClient
) -> None:
    boots: list[int] = []
    bmc.powers = lambda: boots.append(1)
    bmc.busy = 1
    busy = await reset(client, "PowerCycle")
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "1")
    assert not bmc.resets
    bmc.tasks = bmc.fails = True
    monitor = (await reset(client, "PowerCycle")).headers["Location"]
    bmc.finish_tasks()
    failed = (await client.get(monitor)).json()
    assert (failed["TaskState"], failed["TaskStatus"]) == ("Exception", "Critical")
    bmc.tasks, bmc.fails, bmc.deaf = False, False, True
    assert (await reset(client, "PowerCycle")).status_code == 204
    assert not boots
