"""What managers of fabrics log of links, from their lines to incidents: at the cable's host, never at the manager's."""

from __future__ import annotations

import random

import pytest

from streams.detect import Detector
from streams.model.incident import Incident
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    link,
    nic,
    not_ready,
    port,
    timeouts,
)

FACTS = cluster({"llama": FOUR}, spare=["ufm1"])
DOWN, UP = "WARNING [Fabric Topology] Link went down", "INFO [Fabric Topology] Link went up"


def lines(*timed: tuple[float, str]) -> list[Signal]:
    """The signals of the manager's lines, which it logs on ufm1."""
    detector = Detector(CLUSTER)
    found: list[Signal] = []
    for number, (seconds, message) in enumerate(timed):
        text = f"<28>1 {at(seconds).isoformat()} ufm1 UFM - - - {message}"
        record = RawRecord("raw.node-logs", 0, number, at(seconds), b"ufm1", text.encode())
        found += detector.detect(record).signals
    assert len(found) == len(timed)
    return found


def pair(host: str, device: str, number: int, switch: str = "ib-leaf-05") -> str:
    """Both ends of a link in the words of UFM."""
    return f"(Switch: {switch}){number} - (Computer: {host} {device})1"


def told(signals: list[Signal], until: float = 600) -> list[Incident]:
    """The incidents of signals in the cluster of a job on n1 to n4, beside the manager's host."""
    world = World(FACTS)
    world.see(*signals)
    world.pass_to(until)
    return world.incidents()


def test_links_of_many_hosts_that_bounce_are_nobodys_incident() -> None:
    bounces = [
        line
        for number, host in enumerate([*FOUR, *FOUR[:3]])
        for line in (
            (20.0 * number, f"{DOWN}: {pair(host, f'mlx5_{number}', number + 1, f'ib-leaf-{number}')}"),
            (20.0 * number + 4, f"{UP}: {pair(host, f'mlx5_{number}', number + 1, f'ib-leaf-{number}')}"),
        )
    ]
    assert told(lines(*bounces)) == []


def test_a_link_that_stays_down_is_its_hosts_and_never_the_managers() -> None:
    (incident,) = told(lines((0, f"{DOWN}: {pair('n2', 'mlx5_5', 54)}")))
    assert (incident.family, incident.root.node, incident.root.nic) == ("nic_link", "n2", "mlx5_5")
    assert (incident.root.switch, incident.root.port) == ("ib-leaf-05", "54")


def test_a_link_that_flaps_is_one_incident_at_its_host() -> None:
    flaps = [
        line
        for number in range(7)
        for line in (
            (30.0 * number, f"{DOWN}: {pair('n2', 'mlx5_5', 54)}"),
            (30.0 * number + 5, f"{UP}: {pair('n2', 'mlx5_5', 54)}"),
        )
    ]
    (incident,) = told(lines(*flaps))
    assert (incident.family, incident.root.node, incident.root.nic) == ("nic_link", "n2", "mlx5_5")
    assert incident.flaps == 6


def test_manager_host_and_switch_that_report_one_link_are_one_incident_in_any_order() -> None:
    signals = [
        *lines((1, f"{DOWN}: {pair('n2', 'mlx5_5', 54)}")),
        nic("n2", "mlx5_5", 0),
        port("ib-leaf-05", "54", 0.5),
        *timeouts("llama", range(32), 605),
    ]
    expected = outcome(on_time(FACTS, signals))
    assert [(i.family, i.root.node, i.root.nic) for i in expected] == [("nic_link", "n2", "mlx5_5")]
    for seed in range(3):
        chance = random.Random(seed)
        late = [(when + chance.uniform(0, 20), what) for when, what in on_time(FACTS, signals)]
        assert list(map(essence, outcome(late, restarts=0.3, seed=seed))) == list(map(essence, expected))


@pytest.mark.parametrize(
    "message",
    [
        "opensm: log_trap_info: Received Generic Notice type:1 num:128 (Link state change) Producer:2 (Switch) from LID:44",
        "WARNING [Fabric_Topology] Link [Source 0x0c42a10300cd34ef_1 TO Dest 0xb8599f0300ab12cd_17]: Link went down",
        "WARNING [Hardware] Port 17 went down",
        "CRITICAL [Communication] Node is down",
    ],
)
def test_what_names_nobody_is_not_the_managers_host(message: str) -> None:
    message = message.removeprefix("opensm: ")
    assert told(lines(*((30.0 * number, message) for number in range(7)))) == []


def test_the_managers_own_link_is_told_by_its_kernel() -> None:
    (incident,) = told(
        [
            nic("ufm1", "ib0", 0),
            *lines((1, f"{DOWN}: {pair('n2', 'mlx5_5', 54)}"), (5, f"{UP}: {pair('n2', 'mlx5_5', 54)}")),
        ]
    )
    assert (incident.root.node, incident.root.nic) == ("ufm1", "ib0")


def test_a_manager_that_misses_an_adapter_is_no_proof_that_its_host_lives() -> None:
    """The links of a host that lost power are missed by its manager, too."""
    gone = lines(
        (0, "WARNING [Hardware] IBPort [default / Computer: n2 mlx5_0 / 1]: Link went down"),
        (1, "WARNING [Hardware] IBPort [default / Computer: n2 mlx5_1 / 1]: Link went down"),
    )
    incidents = told([*gone, not_ready("n2", 30)])
    assert [i.family for i in incidents if i.root.node == "n2"] == ["node_down"]


def test_what_is_configured_of_a_cable_counts_before_what_a_manager_says() -> None:
    world = World([*FACTS, link("ib-leaf-05", "54", "n4", "mlx5_1")])
    world.see(*lines((0, f"{DOWN}: {pair('n2', 'mlx5_5', 54)}")))
    world.pass_to(600)
    assert world.only().root.node == "n4"


def test_a_port_that_works_with_errors_is_no_incident() -> None:
    message = "WARNING [Hardware] IBPort [default / Switch: ib-leaf-05 / 54]: Symbol Error Rate 1.2e-11 exceeds normal threshold"
    assert told(lines((0, message), (30, message), (60, message))) == []
