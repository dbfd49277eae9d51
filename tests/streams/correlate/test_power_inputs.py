"""Hosts that each lose one of their power inputs at one time: one incident of what feeds them, whatever is known of that."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streams.detect import Detector
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.test_slow_jobs import FOUR, slow
from tests.streams.correlate.world import CLUSTER, World, at, cluster, job, node_fact, not_ready, sign, xid
from tests.streams.detect.lines import record

LETTERS = "abcdefghijkl"
NAMES = [f"gpu-{row}{place}" for row in LETTERS for place in LETTERS]
"""144 hosts whose names do not show where they stand."""
RACK = NAMES[:12]
FIVE_RACKS = NAMES[:60]


def hosts(known: str) -> list[Fact]:
    """The hosts with these labels: `racks`, `rows` of five racks, `feeds` (two for each rack), or none."""
    made: list[Fact] = []
    for i, name in enumerate(NAMES):
        parts = {"rows": {"row": f"row{i // 60}"}, "feeds": {"power-feed": f"F{i % 2}"}}.get(known, {})
        rack = f"r{i // 12:02d}" if known != "nothing" else None
        made.append(node_fact(name, since=-3500, rack=rack, parts=parts))
    return made


def lost(name: str, seconds: float, subtype: str = "psu", *, back: bool = False, lag: float = 0.5) -> Signal:
    return sign("node.power", name, seconds, subtype, cleared=back, lag=lag)


def spread(names: Sequence[str], over: float = 90, begins: float = 0) -> list[Signal]:
    """Each loses its input, one after the other in any order."""
    shuffled = random.Random(7).sample(list(names), len(names))
    return [lost(name, begins + over * i / len(names)) for i, name in enumerate(shuffled)]


def back(names: Sequence[str], seconds: float) -> list[Signal]:
    return [lost(name, seconds + 0.1 * i, back=True) for i, name in enumerate(names)]


def played(
    signals: Sequence[Signal], until: float, world: World | None = None, known: str = "racks"
) -> World:
    world = world or World(hosts(known))
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
    world.pass_to(until, step=10)
    return world


def of_power(world: World) -> list[Incident]:
    return [i for i in world.incidents() if i.family == "power_cooling"]


ROOTS = {
    "a rack": (RACK, "racks", "rack/r00"),
    "nothing is labelled": (RACK, "nothing", "cluster"),
    "five racks": (FIVE_RACKS, "racks", "cluster"),
    "a row of five racks": (FIVE_RACKS, "rows", "part/row/row0"),
    "a feed that half of each rack hangs on": (NAMES[::2], "feeds", "part/power-feed/F0"),
    "two hosts of each rack": ([*NAMES[::12], *NAMES[1::12]], "racks", "cluster"),
    "half of the hosts report nothing": (FIVE_RACKS[::2], "racks", "cluster"),
    "three hosts": (NAMES[::50], "racks", "cluster"),
}


@pytest.mark.parametrize("name", ROOTS)
@pytest.mark.parametrize("order", ["as it was", "backwards", "restarted"])
def test_hosts_that_lose_an_input_together_are_one_incident_of_what_they_share(name: str, order: str) -> None:
    names, known, root = ROOTS[name]
    world, signals = World(hosts(known)), spread(names)
    if order == "as it was":
        played(signals, 1200, world)
    for signal in [] if order == "as it was" else reversed(signals):
        world.see(signal)
        if order == "restarted":
            world.restart()
    world.pass_to(1200, step=10)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.certainty) == (
        "power_cooling",
        root,
        Certainty.LIKELY,
    )
    assert set(incident.nodes) == set(names)
    assert f"{len(names)} of " in incident.reason
    assert "lost one of their power inputs" in incident.reason
    assert "run on without redundancy" in incident.reason
    assert len(world.published) == 1, "no host has an incident of its own, not even one that is merged later"


IDRAC = "Severity: Critical, Category: System Health, MessageID: PSU0003, Message: The power input for power supply 2 is lost."
WORDS = [
    "<131>{date} idrac-{host} " + IDRAC,
    "{date} {host}-idrac idrac[1]: RDU0012 Power supply redundancy is lost.",
    '{{"MessageId": "iLOEvents.2.1.PowerSupplyACPowerLoss", "Severity": "Critical", '
    '"Message": "Power supply 2 AC power loss.", "host": "{host}"}}',
    "{date} {host}-ilo #ILO 6: System Power Supplies Not Redundant",
    '{{"MessageId": "OpenBMC.0.1.PowerSupplyPowerLost", "Severity": "Warning", '
    '"Message": "Power supply PSU2 power lost.", "host": "{host}"}}',
    "{date} {host}-bmc bmcweb[4]: PSU2 input lost",
    "{date} {host} ipmievd: Power Supply sensor PS2 Status Power Supply AC lost Asserted",
    '{{"sensor": "PSU2", "event": "Power Supply input lost (AC/DC)", "dir": "Asserted", "host": "{host}"}}',
]


def test_controllers_of_all_makes_report_one_lost_feed() -> None:
    signals: list[Signal] = []
    for i, name in enumerate(FIVE_RACKS[:24]):
        text = WORDS[i % len(WORDS)].format(date=at(3 * i).strftime("%b %d %H:%M:%S"), host=name)
        signals += Detector(CLUSTER).detect(record(text, at=at(3 * i))).signals
    incident = played(signals, 1200).only()
    assert incident.root.key == "cluster"
    assert len(incident.nodes) == 24
    assert incident.facts["supplies"] == ("2",)


def test_an_input_of_one_host_or_of_two_is_theirs() -> None:
    world = played([lost(NAMES[0], 0), lost(NAMES[70], 20)], 850)
    assert not world.published
    world.pass_to(1000, step=10)
    assert {i.root.node for i in world.incidents()} == {NAMES[0], NAMES[70]}


def test_two_hosts_hours_apart_are_two_incidents() -> None:
    found = played([lost(NAMES[0], 0), lost(NAMES[70], 7200)], 9000).incidents()
    assert [i.root.node for i in found] == [NAMES[0], NAMES[70]]


def test_one_host_that_loses_its_input_over_and_over_is_one_host() -> None:
    signals = [lost(NAMES[0], 60 * i, back=bool(i % 2)) for i in range(41)]
    assert {i.root.node for i in played(signals, 3600).incidents()} == {NAMES[0]}


@pytest.mark.parametrize("subtype", ["psu_hardware", "voltage"])
def test_supplies_that_are_broken_are_each_hosts_own(subtype: str) -> None:
    broken = [lost(name, 10 * i, subtype) for i, name in enumerate(NAMES[::13][:5])]
    found = played(broken, 1500).incidents()
    assert {i.root.node for i in found} == set(NAMES[::13][:5])


def test_it_is_over_when_all_have_their_input_back() -> None:
    world = played([*spread(FIVE_RACKS), *back(FIVE_RACKS[:50], 1000)], 1200)
    assert world.only().state is IncidentState.OPEN
    assert "50 have it back" in world.only().reason
    played(back(FIVE_RACKS[50:], 1210), 1500, world)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize("known", ["racks", "nothing"])
def test_a_transfer_from_one_source_to_the_other_is_nothing(known: str) -> None:
    assert not played([*spread(RACK, 10), *back(RACK, 40)], 2000, known=known).published


@pytest.mark.parametrize("names", [RACK, NAMES[::12]], ids=["in one rack", "in all racks"])
def test_supplies_that_get_new_firmware_four_at_a_time_are_nothing(names: list[str]) -> None:
    signals = [lost(n, 100 * (i // 4) + i % 4) for i, n in enumerate(names)]
    signals += [lost(n, 100 * (i // 4) + 60 + i % 4, back=True) for i, n in enumerate(names)]
    assert not played(signals, 3000).published


def test_the_host_that_stays_without_when_the_others_have_theirs_back_is_an_incident_of_its_own() -> None:
    incident = played([*spread(RACK, 10), *back(RACK[1:], 40)], 2000).only()
    assert incident.root.node == RACK[0]


def braked(name: str, seconds: float) -> Signal:
    return sign("gpu.power", name, seconds, "power_brake", index=3)


@pytest.mark.parametrize("until", [None, 400.0], ids=["still without", "back by then"])
def test_a_host_that_is_braked_while_its_rack_lacks_an_input_is_part_of_that(until: float | None) -> None:
    """Its own controller may not have been asked: it is the twelfth, read ten minutes later."""
    lasts = [] if until is None else back(RACK[:11], until)
    world = played([*spread(RACK[:11], 10), *lasts, braked(RACK[11], 700)], 1500)
    assert {i.root.node for i in world.published.values()} == ({None} if until is None else {None, RACK[11]})
    rack = next(i for i in world.published.values() if i.root.rack)
    assert rack.reason.startswith("11 of 12 nodes of rack r00 lost one of their power inputs within ")


def test_a_brake_on_another_rack_is_that_hosts_own() -> None:
    world = played([*spread(RACK[:11], 10), braked(NAMES[13], 700)], 1500)
    assert len(of_power(world)) == 2


def test_nobody_is_called_before_the_others_may_have_been_read() -> None:
    world = played(spread(FIVE_RACKS, 60), 110)
    assert not world.published
    world.pass_to(130, step=5)
    assert len(of_power(world)) == 1


@pytest.mark.parametrize("known", ["racks", "nothing"])
def test_hosts_that_are_asked_over_ten_minutes_join_the_one_incident(known: str) -> None:
    world = played(spread(FIVE_RACKS, 600), 1800, known=known)
    assert set(world.only().nodes) == set(FIVE_RACKS)


def test_racks_that_are_read_one_after_the_other_become_one_incident() -> None:
    signals = [lost(n, 140 * (i // 12) + i % 12) for i, n in enumerate(FIVE_RACKS)]
    world = played(signals, 1800)
    assert world.only().root.key == "cluster"
    assert set(world.only().nodes) == set(FIVE_RACKS)


def test_a_controller_whose_clock_is_behind_is_one_of_them() -> None:
    slow = [lost(n, -1500 + i, lag=1500) for i, n in enumerate(RACK[:2])]
    incident = played([*slow, *spread(FIVE_RACKS[2:])], 1800).only()
    assert set(RACK[:2]) < set(incident.nodes)
    assert incident.fault_at >= at(0)


def test_controllers_of_which_each_has_another_time_are_one_incident() -> None:
    behind = [lost(n, -310 * (i % 7) + i, lag=310 * (i % 7) + 0.5) for i, n in enumerate(NAMES[::12])]
    assert set(played(behind, 1800).only().nodes) == set(NAMES[::12])


def dark(names: Sequence[str], seconds: float) -> list[Signal]:
    """Hosts that lose the input they had left: their controllers say so at once, and they are missed a minute later."""
    return [
        one
        for i, n in enumerate(names)
        for one in (
            sign("node.power", n, seconds + 0.1 * i, "psu", sensor="PSU2"),
            not_ready(n, seconds + 60 + 0.1 * i),
        )
    ]


@pytest.mark.parametrize("known", ["racks", "nothing"])
@pytest.mark.parametrize("later", [100, 400])
def test_it_is_the_root_of_what_goes_dark_within_minutes(known: str, later: float) -> None:
    gone = [not_ready(n, later + 0.5 * i) for i, n in enumerate(FIVE_RACKS[:30])]
    incident = played([*spread(FIVE_RACKS), *gone], later + 600, known=known).only()
    assert incident.family == "power_cooling"
    assert "30 of them are not ready" in incident.reason
    assert incident.root.node is None
    assert incident.severity is Severity.ERROR


@pytest.mark.parametrize("order", ["as it was", "backwards", "restarted"])
def test_what_goes_dark_an_hour_later_went_for_the_second_feed_and_is_an_event_of_its_own(order: str) -> None:
    world = World([*cluster({"llama": RACK}), *hosts("racks")])
    signals = [
        *(sign("node.power", n, 0.1 * i, "psu", sensor="PSU1") for i, n in enumerate(RACK)),
        *dark(RACK, 4000),
    ]
    if order == "as it was":
        played(signals, 4700, world)
    for signal in [] if order == "as it was" else reversed(signals):
        world.see(signal)
        if order == "restarted":
            world.restart()
    world.pass_to(4700, step=10)
    lost, tripped = world.incidents()
    assert [i.root.key for i in (lost, tripped)] == ["rack/r00", "rack/r00"]
    assert (lost.fault_at, tripped.fault_at) == (at(0), at(4000))
    assert (lost.severity, tripped.severity) == (Severity.WARNING, Severity.ERROR)
    assert [[job.name for job in i.jobs] for i in (lost, tripped)] == [[], ["llama"]]
    assert (
        "lost one of their power inputs at once (supply 1); 12 of them ran on without redundancy until"
        in lost.reason
    )
    assert (
        "went dark at once (supply 2), 67 min after they had lost one of their power inputs" in tripped.reason
    )


@pytest.mark.parametrize("known", ["racks", "rows", "nothing"])
def test_what_goes_dark_later_in_several_racks_is_one_event(known: str) -> None:
    """Of two racks, and half of a third: no one of them has all."""
    lost, tripped = played([*spread(FIVE_RACKS), *dark(FIVE_RACKS[:30], 5000)], 5700, known=known).incidents()
    assert set(lost.nodes) == set(FIVE_RACKS)
    assert (set(tripped.nodes), tripped.family) == (set(FIVE_RACKS[:30]), "power_cooling")
    assert "30 of " in tripped.reason
    assert tripped.root == lost.root


def test_the_rack_that_goes_dark_while_a_whole_row_lacks_an_input_is_named() -> None:
    lost, tripped = played([*spread(FIVE_RACKS), *dark(RACK, 5000)], 5700).incidents()
    assert (lost.root.key, tripped.root.key) == ("cluster", "rack/r00")
    assert "12 of 12 nodes of rack r00 went dark at once" in tripped.reason


def test_both_are_over_when_power_is_back() -> None:
    signals = [*spread(RACK, 10), *dark(RACK, 4000)]
    signals += [*(not_ready(n, 6000 + i, ready=True) for i, n in enumerate(RACK)), *back(RACK, 6100)]
    states = [i.state for i in played(signals, 7000).incidents()]
    assert states == [IncidentState.RESOLVED, IncidentState.RESOLVED]


@pytest.mark.parametrize("names", [RACK, FIVE_RACKS], ids=["a rack", "five racks"])
def test_a_host_that_dies_of_something_else_while_a_feed_is_away_is_its_own(names: list[str]) -> None:
    world = played([*spread(names), not_ready(RACK[3], 5000)], 5600)
    assert {(i.family, i.root.node) for i in world.incidents()} == {
        ("power_cooling", None),
        ("node_down", RACK[3]),
    }
    world = played([*spread(names), xid(RACK[3], 79, 5000)], 5600)
    assert ("gpu_off_bus", RACK[3]) in {(i.family, i.root.node) for i in world.incidents()}


def fed_by(device: str, seconds: float, rack: str = "") -> Signal:
    return sign("node.power", device, seconds, "feed", rack=rack, alert="PDUInputLost")


DEVICES = {
    "one busway": ("racks", [("busway-3", "")], "part/power-feed/busway-3"),
    "one busway, of hosts that nobody can place": ("nothing", [("busway-3", "")], "part/power-feed/busway-3"),
    "a PDU in each rack, by its name": ("racks", [(f"pdu-r{i:02d}-a", "") for i in range(5)], "cluster"),
    "a PDU in each rack, by its alert": (
        "racks",
        [(f"pdu-{17 + i}", f"r{i:02d}") for i in range(5)],
        "cluster",
    ),
    "PDUs that nobody can place": ("nothing", [(f"pdu-{17 + i}", "") for i in range(5)], "cluster"),
}


@pytest.mark.parametrize("name", DEVICES)
def test_what_feeds_them_is_the_root_where_it_is_one_and_part_of_it_where_it_is_many(name: str) -> None:
    known, devices, root = DEVICES[name]
    feeds = [fed_by(device, 2 * i, rack) for i, (device, rack) in enumerate(devices)]
    assert played([*spread(FIVE_RACKS), *feeds], 900, known=known).only().root.key == root


def test_switches_and_servers_of_storage_on_the_same_feed_are_part_of_it() -> None:
    others = [lost("leaf-1", 3, "switch_psu"), lost("nas-1", 4)]
    incident = played([*spread(RACK), *others], 1800).only()
    assert incident.root.key == "rack/r00"


@pytest.mark.parametrize("names", [RACK, FIVE_RACKS], ids=["a rack", "five racks"])
@pytest.mark.parametrize("work", ["cordoned", "announced"])
def test_a_feed_that_is_taken_off_during_work_on_its_hosts_is_left_to_whoever_works_there(
    names: list[str], work: str
) -> None:
    world = World(hosts("racks"))
    if work == "cordoned":
        for i, name in enumerate(names):
            world.tell(node_fact(name, since=-50, rack=f"r{i // 12:02d}", unschedulable=True))
    else:
        until = at(7200).strftime("%Y-%m-%dT%H:%M:%SZ")
        world.see(
            *(
                sign("node.planned_work", n, -50, severity=Severity.INFO, request="r1", by="ann", until=until)
                for n in names
            )
        )
    played(spread(names), 1200, world)
    assert [i.state for i in of_power(world)] == [IncidentState.SUPPRESSED]


@pytest.mark.parametrize("work", [6, 30])
def test_work_on_half_of_the_hosts_does_not_hide_it(work: int) -> None:
    world = World(hosts("racks"))
    for i, name in enumerate(FIVE_RACKS[:work]):
        world.tell(node_fact(name, since=-50, rack=f"r{i // 12:02d}", unschedulable=True))
    played(spread(FIVE_RACKS), 1200, world)
    assert [i.state for i in of_power(world)] == [IncidentState.OPEN]


def test_two_thousand_hosts_are_one_message() -> None:
    names = [f"h{i:04d}" for i in range(2000)]
    world = World([node_fact(n, since=-3500, rack=f"r{i // 16:03d}") for i, n in enumerate(names)])
    signals = spread(names)
    world.now = at(0)
    for i in range(0, len(signals), 100):
        world.see(*signals[i : i + 100])
    world.pass_to(1200, step=10)
    assert len(world.only().nodes) == 2000
    assert len(world.revisions) <= 3


def test_what_runs_there_is_hit_only_when_nodes_go_dark() -> None:
    facts = [*cluster({"llama": RACK}), *hosts("racks")]
    world = played(spread(RACK), 1200, World(facts))
    assert (world.only().jobs, world.only().impact.gpus) == ((), 0)
    played([not_ready(n, 1300 + i) for i, n in enumerate(RACK)], 1800, world)
    assert [[job.name for job in power.jobs] for power in of_power(world)] == [[], ["llama"]]


def pdu_lines(*lines: tuple[float, str]) -> list[Signal]:
    detector, pdu = Detector(CLUSTER), "pdu-k07-b"
    return [
        s
        for seconds, text in lines
        for s in detector.detect(
            record(f"{at(seconds):%b %d %H:%M:%S} {pdu} pdud[81]: {text}", at=at(seconds))
        ).signals
    ]


OUTAGE = [
    (0.0, "Inlet 2: line L1, L2 voltage below lower critical threshold (0.0 V)"),
    (0.5, "Inlet 2 lost power, controller runs from its link port"),
]
BRAKES = [sign("gpu.power", name, 76 + 5 * i, "power_brake") for i, name in enumerate(FOUR)]


@pytest.mark.parametrize("brakes", [[], BRAKES], ids=["no brake", "braked"])
def test_a_unit_that_lost_its_inlet_is_the_root_and_the_job_that_slows_its_victim(
    brakes: list[Signal],
) -> None:
    inputs = [lost(name, 2 + 0.2 * i) for i, name in enumerate(FOUR)]
    world = played([*pdu_lines(*OUTAGE), *inputs, *brakes, slow(900)], 1200, World(cluster({"llama": FOUR})))
    incident = world.only()
    assert (incident.root.key, incident.jobs, incident.impact.gpus) == (
        "part/power-feed/pdu-k07-b",
        (job("llama"),),
        0,
    )
    ends = pdu_lines(*OUTAGE, (1500, "Inlet 2: voltage returned to normal (231.0 V)"))[-1:]
    ends += [sign("gpu.power", s.entity.node or "", 1520, "power_brake", cleared=True) for s in brakes]
    assert ends[0].state == "cleared"
    played([*back(FOUR, 1510), *ends], 9000, world)
    assert [(i.root.key, i.state) for i in world.incidents()] == [
        ("part/power-feed/pdu-k07-b", IncidentState.RESOLVED)
    ]


def test_a_job_elsewhere_that_becomes_slower_is_no_victim_of_it() -> None:
    inputs = [lost(name, 2 + 0.2 * i) for i, name in enumerate(RACK[:4])]
    facts = [*cluster({"llama": FOUR}), *hosts("nothing")]
    incident = played([*pdu_lines(*OUTAGE), *inputs, slow(900)], 1200, World(facts)).only()
    assert (incident.root.key, incident.jobs) == ("part/power-feed/pdu-k07-b", ())


def test_an_overload_that_a_unit_only_warns_of_is_nothing() -> None:
    warning = (0.0, "Inlet 2 active power above upper warning threshold (19.1 kW > 17.0 kW)")
    assert not played(pdu_lines(warning), 3600).published
