"""A power cycle happens once, to the right machine, to an empty node that is ours, and is believed only when it shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from connectors.base import Absent, Blocked, Done, Refused, Retry, Unknown, Waiting
from connectors.kubernetes.annotations import POWER
from connectors.kubernetes.cordon_ownership import release
from connectors.kubernetes.drain import give_up
from connectors.power.power_cycle import ACTION, NO_SIGN_S, PowerCycle
from connectors.power.power_mark import is_proven_off, mark_of
from sandbox.fake_services.redfish import RedfishStandin
from sandbox.fake_services.server import InjectedFault
from tests.connectors.objects import effect as effect_on
from tests.connectors.objects import made, node, pod
from tests.connectors.power.a_node import NODE, Machine, Played, closed_node, played
from tests.contract.case import when_sent


@pytest.fixture
async def bmc() -> AsyncIterator[RedfishStandin]:
    async with RedfishStandin() as standin:
        yield standin


@pytest.fixture
def machine(bmc: RedfishStandin, tmp_path: Path) -> Machine:
    return Machine(bmc, tmp_path)


def cycle(machine: Machine, **params: Any) -> Played:
    connector: Any = PowerCycle(machine.cluster, machine.settings, machine.clock)  # type: ignore[arg-type]
    return played(connector, ACTION, **params)


async def test_it_is_done_when_the_node_has_another_boot_and_is_ready(machine: Machine) -> None:
    step = cycle(machine)
    assert isinstance(asked := await step.apply(), Waiting)
    assert asked.result["boot_before"] == "boot-1"
    assert machine.bmc.resets == ["PowerCycle"]
    machine.passes(60)
    assert isinstance(await step.apply(), Waiting)
    machine.comes_up()
    done = await step.apply()
    assert isinstance(done, Done)
    assert done.result["boot_id"] == "boot-2"
    assert machine.bmc.resets == ["PowerCycle"]


@pytest.mark.parametrize("auth", ["basic", "session"])
@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("info", [False, True])
async def test_every_way_that_a_bmc_may_answer(
    bmc: RedfishStandin, tmp_path: Path, auth: str, tasks: bool, info: bool
) -> None:
    machine = Machine(bmc, tmp_path, auth=auth)
    bmc.tasks, bmc.info = tasks, info
    step = cycle(machine)
    await step.apply()
    assert "at work" in (await step.apply()).detail or not tasks  # type: ignore[union-attr]
    bmc.finish_tasks()
    await step.apply()
    machine.comes_up()
    assert isinstance(await step.apply(), Done)
    assert bmc.resets == ["PowerCycle"]
    assert not bmc.sessions, "whoever logs in logs out"


async def test_without_a_power_cycle_it_is_switched_off_and_on(machine: Machine) -> None:
    machine.bmc.allowed = ("On", "ForceOff", "ForceRestart")
    machine.bmc.refuses_moot = True
    step = cycle(machine)
    await step.apply()
    assert (machine.bmc.resets, machine.bmc.power) == (["ForceOff"], "Off")
    machine.goes_down()
    await step.apply()
    assert machine.bmc.resets == ["ForceOff", "On"]
    machine.comes_up()
    assert isinstance(await step.apply(), Done)


async def test_a_warm_restart_has_to_be_asked_for(bmc: RedfishStandin, tmp_path: Path) -> None:
    bmc.allowed = ("GracefulRestart", "ForceRestart")
    refused = await cycle(Machine(bmc, tmp_path)).apply()
    assert isinstance(refused, Refused)
    assert "not PowerCycle or off-on" in refused.reason
    assert not bmc.resets
    await cycle(Machine(bmc, tmp_path, way="ForceRestart")).apply()
    assert bmc.resets == ["ForceRestart"]


@pytest.mark.parametrize("fault", ["lose_answer", "hang", "lose_request", "status"])
@pytest.mark.parametrize("stuck", [False, True])
async def test_a_lost_answer_is_read_back_and_the_machine_is_never_cycled_twice(
    bmc: RedfishStandin, tmp_path: Path, fault: Any, stuck: bool
) -> None:
    machine = Machine(bmc, tmp_path, timeout_s=0.5)
    bmc.fail(InjectedFault("ComputerSystem.Reset", fault))
    step = cycle(machine)
    assert isinstance(await when_sent(step.apply), Unknown)
    happened = list(bmc.resets)
    assert isinstance(await step.lookup(), Waiting)
    machine.passes(NO_SIGN_S - 1)
    assert isinstance(await step.apply(), Waiting)
    assert bmc.resets == happened, "nothing is sent before boot and power have told"
    if happened:
        if not stuck:
            machine.comes_up()
        machine.passes(3600)
        assert isinstance(await step.apply(), Waiting if stuck else Done)
        assert bmc.resets == ["PowerCycle"], "a machine that is on its way up is not cut off"
        return
    machine.passes(2)
    assert isinstance(await step.apply(), Waiting)
    assert bmc.resets == ["PowerCycle"], "it stayed ready on its boot: the request was lost"


async def test_whoever_takes_over_knows_by_the_mark_whether_anything_may_have_been_sent(
    machine: Machine,
) -> None:
    step = cycle(machine)
    assert isinstance(await step.lookup(), Absent)
    await step.apply()
    successor = cycle(machine)
    assert isinstance(await successor.lookup(), Waiting)
    machine.comes_up()
    assert isinstance(await successor.apply(), Done)
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_crash_between_mark_and_request_sends_one(machine: Machine) -> None:
    machine.bmc.fail(InjectedFault("ComputerSystem.Reset", "lose_request"))
    await cycle(machine).apply()
    successor = cycle(machine)
    await successor.lookup()
    machine.passes(NO_SIGN_S + 1)
    await successor.apply()
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_reset_without_effect_fails_and_is_not_repeated(machine: Machine) -> None:
    machine.bmc.deaf = True
    step = cycle(machine)
    await step.apply()
    machine.passes(599)
    assert isinstance(await step.apply(), Waiting)
    machine.passes(2)
    failed = await step.apply()
    assert isinstance(failed, Refused)
    assert "ready on the same boot" in failed.reason
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_task_that_fails_says_why(machine: Machine) -> None:
    machine.bmc.tasks = machine.bmc.fails = True
    step = cycle(machine)
    await step.apply()
    machine.bmc.finish_tasks()
    failed = await step.apply()
    assert isinstance(failed, Refused)
    assert "The power supply did not answer." in failed.reason


async def test_a_busy_bmc_is_asked_again_when_it_says(machine: Machine) -> None:
    machine.bmc.busy = 1
    step = cycle(machine)
    busy = await step.apply()
    assert isinstance(busy, Retry)
    assert busy.after_s == 1.0
    await step.apply()
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_rotated_password_counts_at_once_and_a_wrong_one_is_not_hammered(machine: Machine) -> None:
    machine.bmc.password = "rotated"
    step = cycle(machine)
    wrong = await step.apply()
    assert isinstance(wrong, Retry)
    assert wrong.after_s >= 60
    (machine.folder / "password").write_text("rotated")
    assert isinstance(await step.apply(), Waiting)
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_bmc_that_is_away_fails_nothing_once_it_was_asked(machine: Machine) -> None:
    step = cycle(machine)
    await step.apply()
    machine.bmc.down = True
    machine.passes(3600)
    assert isinstance(await step.apply(), Waiting)
    machine.comes_up()
    assert isinstance(await step.apply(), Done)


@pytest.mark.parametrize(
    ("uuid", "fits"),
    [
        ("4c4c4544-0042-3510-8052-b4c04f4d3732", True),
        ("4C4C4544-0042-3510-8052-B4C04F4D3732", True),
        ("44454c4c-4200-1035-8052-b4c04f4d3732", True),
        ("4c4c4544-0042-3510-8052-b4c04f4d3733", False),
        ("", False),
    ],
)
async def test_the_bmc_of_another_machine_is_never_asked(
    bmc: RedfishStandin, tmp_path: Path, uuid: str, fits: bool
) -> None:
    bmc.uuid = uuid
    outcome = await cycle(Machine(bmc, tmp_path)).apply()
    assert isinstance(outcome, Waiting if fits else Refused), outcome
    assert bool(bmc.resets) is fits


def rid(machine: Machine, **changes: Any) -> None:
    assert machine.cluster.node is not None
    machine.cluster.node.update(changes)


STUCK: dict[str, Any] = {"deletionTimestamp": "2026-03-01T11:00:00Z"}
GUARDS: dict[str, tuple[Any, type]] = {
    "open": (lambda m: rid(m, **node("gpu-07") | {"status": m.cluster.node["status"]}), Refused),
    "held by another incident": (lambda m: rid(m, **closed_node(number=2)), Refused),
    "uncordoned by a person": (lambda m: m.cluster.node["spec"].update(unschedulable=False), Blocked),
    "opted out": (
        lambda m: m.cluster.node["metadata"].update(labels={"faultline.dev/managed": "false"}),
        Refused,
    ),
    "another node": (lambda m: m.cluster.node["metadata"].update(uid="uid-new"), Refused),
    "no boot id": (lambda m: m.cluster.node["status"]["nodeInfo"].update(bootID=""), Refused),
    "a job on it": (lambda m: m.cluster.pods.append(pod("train-0")), Blocked),
    "a stuck pod on a ready node": (lambda m: m.cluster.pods.append(pod("train-0", **STUCK)), Blocked),
    "a pod on a silent node": (lambda m: (m.goes_down(), m.cluster.pods.append(pod("train-0"))), Blocked),
    "several systems": (lambda m: setattr(m.bmc, "systems", ("1", "2")), Refused),
    "no password": (lambda m: (m.folder / "password").write_text("\n"), Refused),
    "no address": (lambda m: (m.folder / "bmcs.yaml").write_text("gpu-08: https://bmc"), Refused),
    "an address without TLS": (lambda m: (m.folder / "bmcs.yaml").write_text("gpu-07: http://bmc"), Refused),
}


@pytest.mark.parametrize("name", GUARDS)
async def test_nothing_is_asked_of_the_bmc(machine: Machine, name: str) -> None:
    arrange, kind = GUARDS[name]
    arrange(machine)
    outcome = await cycle(machine).apply()
    assert isinstance(outcome, kind), outcome
    assert not machine.bmc.resets
    assert not machine.cluster.patches


async def test_a_dead_node_with_stuck_pods_only_may_be_cycled(machine: Machine) -> None:
    machine.goes_down()
    machine.cluster.pods.append(pod("train-0", **STUCK))
    assert isinstance(await cycle(machine).apply(), Waiting)
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_node_that_changed_between_look_and_mark_is_not_cycled(machine: Machine) -> None:
    def replaced() -> None:
        assert machine.cluster.node is not None
        machine.cluster.node["metadata"] |= {"uid": "uid-new", "resourceVersion": "77"}

    machine.cluster.before_patch = replaced
    assert isinstance(await cycle(machine).apply(), Refused)
    assert not machine.bmc.resets


async def test_a_person_who_takes_the_mark_off_ends_it(machine: Machine) -> None:
    step = cycle(machine)
    await step.apply()
    assert machine.cluster.node is not None
    del machine.cluster.node["metadata"]["annotations"][POWER]
    taken = await step.apply()
    assert isinstance(taken, Blocked)
    assert taken.by_person


async def test_an_annotation_leads_the_password_only_where_the_settings_allow(
    bmc: RedfishStandin, tmp_path: Path
) -> None:
    machine = Machine(bmc, tmp_path, addresses_file=None, annotation="example.com/bmc", hosts=["127.0.0.*"])
    assert machine.cluster.node is not None
    marks = machine.cluster.node["metadata"]["annotations"]
    marks["example.com/bmc"] = "https://evil.example"
    refused = await cycle(machine).apply()
    assert isinstance(refused, Refused)
    assert "hosts does not allow" in refused.reason
    marks["example.com/bmc"] = bmc.url
    assert isinstance(await cycle(machine).apply(), Waiting)


async def test_a_fence_is_proven_by_the_power_state_and_only_then_the_pods_are_given_up(
    machine: Machine,
) -> None:
    machine.goes_down()
    machine.cluster.pods.append(pod("train-0", **STUCK))
    drain = effect_on("drain_node", NODE)
    fenced = type(drain)(**{n: getattr(drain, n) for n in drain.__slots__} | {"params": {"fenced": True}})
    step = cycle(machine, leave_off=True)
    machine.bmc.deaf = True
    await step.apply()
    assert isinstance(await step.apply(), Waiting)
    assert machine.cluster.node is not None
    waits = give_up(machine.cluster.node, fenced)
    assert isinstance(waits, Waiting)
    assert "not proven to be off" in waits.detail
    machine.bmc.power = "Off"
    done = await step.apply()
    assert isinstance(done, Done)
    assert done.result["power"] == "Off"
    assert machine.bmc.resets == ["ForceOff"]
    assert is_proven_off(machine.cluster.node, "inc-1")
    assert not is_proven_off(machine.cluster.node, "inc-2")
    declared = made(machine.cluster.node, give_up(machine.cluster.node, fenced))
    assert "node.kubernetes.io/out-of-service" in json.dumps(declared["spec"]["taints"])


async def test_the_mark_goes_with_the_cordon(machine: Machine) -> None:
    await cycle(machine).apply()
    assert machine.cluster.node is not None
    assert mark_of(machine.cluster.node) is not None
    about = effect_on("uncordon_node", NODE)
    given_back = made(
        machine.cluster.node, release(machine.cluster.node, about, lambda owner: owner.incident == "inc-1")
    )
    assert mark_of(given_back) is None
    assert POWER not in given_back["metadata"]["annotations"]


async def test_another_incident_that_changes_the_power_is_waited_for(machine: Machine) -> None:
    await cycle(machine).apply()
    assert machine.cluster.node is not None
    from connectors.kubernetes.cordon_ownership import cordon

    machine.cluster.node = made(
        machine.cluster.node, cordon(machine.cluster.node, effect_on("cordon_node", NODE, 2))
    )
    about = effect_on(ACTION, NODE, 2)
    connector: Any = PowerCycle(machine.cluster, machine.settings, machine.clock)  # type: ignore[arg-type]
    assert isinstance(await Played(connector, about).apply(), Blocked)
    assert machine.bmc.resets == ["PowerCycle"]


async def test_an_unknown_direction_is_refused(machine: Machine) -> None:
    assert isinstance(await cycle(machine, leave_off="sideways").apply(), Refused)
    assert not machine.bmc.requests


DAMAGED = [
    lambda mark: json.dumps({**mark, "at": "soon"}),
    lambda mark: json.dumps({**mark, "at": ""}),
    lambda mark: json.dumps({**mark, "off_at": "2026-03-01"}),
    lambda mark: json.dumps(mark)[:-9],
    lambda mark: "",
]


@pytest.mark.parametrize("damaged", DAMAGED)
async def test_a_mark_that_cannot_be_read_leads_to_no_second_power_cycle(
    machine: Machine, damaged: Any
) -> None:
    step = cycle(machine)
    await step.apply()
    assert machine.bmc.resets == ["PowerCycle"]
    marks = machine.cluster.node["metadata"]["annotations"]  # type: ignore[index]
    marks[POWER] = damaged(json.loads(marks[POWER]))
    machine.comes_up()
    machine.passes(NO_SIGN_S + 3600)
    successor = cycle(machine)
    for ask in (step.apply, successor.apply, successor.lookup, successor.apply, step.lookup, step.apply):
        assert isinstance(await ask(), Blocked | Waiting)
    assert machine.bmc.resets == ["PowerCycle"]
    assert not is_proven_off(machine.cluster.node or {}, step.effect.incident)
    blocked = await successor.apply()
    assert isinstance(blocked, Blocked)
    assert POWER in blocked.reason
    assert not blocked.by_person, "nobody has decided anything: it waits"


async def test_once_a_person_has_taken_an_unreadable_mark_off_it_begins(machine: Machine) -> None:
    marks = machine.cluster.node["metadata"]["annotations"]  # type: ignore[index]
    marks[POWER] = "{"
    step = cycle(machine)
    assert isinstance(await step.apply(), Blocked)
    assert not machine.bmc.resets
    del marks[POWER]
    assert isinstance(await step.apply(), Waiting)
    assert machine.bmc.resets == ["PowerCycle"]


async def test_a_mark_that_is_damaged_between_look_and_mark_stops_it(machine: Machine) -> None:
    def damage() -> None:
        machine.cluster.before_patch = lambda: None
        assert machine.cluster.node is not None
        machine.cluster.node["metadata"]["annotations"][POWER] = "{"
        machine.cluster.node["metadata"]["resourceVersion"] = "9"

    machine.cluster.before_patch = damage
    assert isinstance(await cycle(machine).apply(), Blocked)
    assert not machine.bmc.resets
