"""A port that goes down and whose other end nobody knows is an uplink when just what crosses its switch fails with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.clock import to_millis
from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Attribute, Severity, Signal, signal
from tests.streams.correlate.world import CLUSTER, World, at, cluster, link, port, progress

UNDER, ELSEWHERE = ["a1", "a2"], ["b1", "b2"]
NODES = [UNDER[0], ELSEWHERE[0], UNDER[1], ELSEWHERE[1]]
UPLINK = "Ethernet1025"


def facts() -> list[Fact]:
    return cluster({"llama": NODES})


def cables(leaf: str = "leaf-a") -> list[Fact]:
    """Two hosts under each leaf, as LLDP tells; nothing tells of the uplinks."""
    of = {leaf: UNDER, "leaf-b": ELSEWHERE}
    return [
        link(switch, f"Ethernet{i}", node, "eth1")
        for switch, nodes in of.items()
        for i, node in enumerate(nodes)
    ]


def unanswered(pod: int, peer: int, seconds: float) -> Signal:
    attributes: dict[str, Attribute] = {
        "subtype": "ib_completion",
        "status": 12,
        "vendor_err": 129,
        "peer": f"llama-worker-{peer}",
    }
    entity = Entity(CLUSTER, pod=PodRef("train", f"llama-worker-{pod}"))
    return signal(
        "nccl.error", entity, severity=Severity.ERROR, occurred_at=at(seconds), observed_at=at(seconds + 0.5),
        attributes=attributes,
    )  # fmt: skip


CROSSING = [(1, 0), (1, 2), (3, 2)]


def told(pairs: Sequence[tuple[int, int]], *, cabled: Sequence[Fact], late: bool = False) -> World:
    world = World([*facts(), *([] if late else cabled)])
    world.see(port("leaf-a", UPLINK, 0))
    world.pass_to(8, step=1)
    world.see(*(unanswered(one, other, 8 + 0.2 * i) for i, (one, other) in enumerate(pairs)))
    for fact in cabled if late else []:
        world.tell(fact)
    world.pass_to(400, step=5)
    return world


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("pairs", [CROSSING, CROSSING[:1], [(1, 0), (3, 0)]])
def test_a_port_of_unknown_end_explains_connections_that_cross_its_switch(
    pairs: Sequence[tuple[int, int]], late: bool
) -> None:
    incident = told(pairs, cabled=cables(), late=late).only()
    assert (incident.family, incident.root.key) == ("fabric_fault", f"port/leaf-a/{UPLINK}")
    assert incident.certainty is Certainty.LIKELY
    assert [job.name for job in incident.jobs] == ["llama"]
    assert incident.reason.startswith(f"leaf-a/{UPLINK}, whose other end is not known: its link is down")


@pytest.mark.parametrize("cabled", [[], cables("leaf-c")], ids=["no host is known", "at other switches"])
def test_a_port_of_a_switch_without_known_hosts_explains_nothing(cabled: Sequence[Fact]) -> None:
    assert "fabric_fault" not in {i.family for i in told(CROSSING, cabled=cabled).incidents()}


def test_connections_beneath_one_switch_do_not_need_its_uplink() -> None:
    assert "fabric_fault" not in {i.family for i in told([(0, 2), (1, 0)], cabled=cables()).incidents()}


def test_a_port_of_unknown_end_is_no_incident_without_a_job_that_fails() -> None:
    world = World([*facts(), *cables()])
    world.see(port("leaf-a", UPLINK, 0))
    world.pass_to(900, step=10)
    assert world.incidents() == []


def lossy(pairs: Sequence[tuple[int, int]], *, late: bool = False) -> World:
    """A cable between switches that loses frames for half an hour, and a job whose connections fail within it."""
    known = [*cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")]
    world = World([*facts(), *([] if late else known)])
    world.see(port("leaf-a", UPLINK, 0, subtype="errors"))
    world.pass_to(900, step=10)
    world.see(*(unanswered(one, other, 900 + 0.2 * i) for i, (one, other) in enumerate(pairs)))
    for fact in known if late else []:
        world.tell(fact)
    world.pass_to(1500, step=5)
    return world


@pytest.mark.parametrize("late", [False, True])
def test_a_cable_with_errors_explains_connections_that_cross_its_switch(late: bool) -> None:
    incident = lossy([(1, 0), (3, 2)], late=late).only()
    assert (incident.family, incident.root.key) == ("fabric_fault", f"port/leaf-a/{UPLINK}")
    assert [job.name for job in incident.jobs] == ["llama"]


def test_a_job_that_moves_between_two_failures_has_not_outlived_a_cable_with_errors() -> None:
    """It loses frames, not all of them: jobs go on, and fail again."""
    world = World([*facts(), *cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    world.see(port("leaf-a", UPLINK, 0, subtype="errors"))
    for begin in (60, 900):
        world.pass_to(begin, step=5)
        world.see(unanswered(1, 0, begin), unanswered(3, 0, begin + 0.2))
        world.pass_to(begin + 300, step=5)
        world.see(progress("llama", begin + 280, begin))
    world.pass_to(2000, step=5)
    assert {i.family for i in world.published.values()} == {"fabric_fault"}


def test_errors_that_a_scrape_shows_minutes_later_explain_what_failed_of_them() -> None:
    world = World([*facts(), *cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    world.see(unanswered(1, 0, 0), unanswered(3, 2, 0.2))
    world.pass_to(130, step=5)
    world.see(port("leaf-a", UPLINK, 130, subtype="errors"))
    world.pass_to(900, step=5)
    assert world.only().family == "fabric_fault"


def test_a_cable_with_errors_does_not_explain_connections_beneath_its_switch() -> None:
    incident = lossy([(0, 2), (2, 0)]).only()
    assert (incident.family, [job.name for job in incident.jobs]) == ("hang", ["llama"])


def test_a_cable_of_one_rail_explains_connections_that_cross_its_switch() -> None:
    rails = [link(f"{leaf}-rail2", f"Ethernet{i}", node, "eth2")
             for leaf, nodes in (("leaf-a", UNDER), ("leaf-b", ELSEWHERE)) for i, node in enumerate(nodes)]  # fmt: skip
    world = World([*facts(), *cables(), *rails, link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    world.see(port("leaf-a", UPLINK, 0, subtype="errors"))
    world.pass_to(300, step=10)
    world.see(unanswered(1, 0, 300), unanswered(3, 2, 300.2))
    world.pass_to(900, step=5)
    assert world.only().root.key == f"port/leaf-a/{UPLINK}"


def counted(seconds: float, since: float, *, cleared: bool = False) -> Signal:
    """A counter of errors that rose from one sample to another."""
    more: dict[str, Attribute] = {"series": "0a1b2c3d4e5f", "since_ms": to_millis(at(since))}
    return port("leaf-a", UPLINK, seconds, subtype="errors", cleared=cleared, **more)


def test_errors_of_a_counter_began_after_the_sample_before_them() -> None:
    """Switches are asked every quarter of an hour in places: what failed meanwhile failed of them."""
    world = World([*facts(), *cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    world.see(unanswered(1, 0, 0), unanswered(3, 2, 0.2))
    world.pass_to(1100, step=5)
    world.see(counted(1100, 150))
    world.pass_to(1500, step=5)
    cable = next(i for i in world.incidents() if i.family == "fabric_fault")
    assert cable.fault_at == at(150)
    assert [job.name for job in cable.jobs] == ["llama"]


def worn_out(pairs: Sequence[tuple[int, int]]) -> World:
    """A cable whose errors are counted for half an hour before it breaks, and a job whose connections fail meanwhile."""
    world = World([*facts(), *cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    world.see(counted(0, -300))
    world.pass_to(900, step=10)
    world.see(*(unanswered(one, other, 900 + 0.2 * i) for i, (one, other) in enumerate(pairs)))
    world.pass_to(1800, step=10)
    world.see(port("leaf-a", UPLINK, 1800))
    world.pass_to(3200, step=10)
    return world


def test_a_cable_that_breaks_while_its_errors_are_counted_is_one_fault() -> None:
    incident = worn_out([(1, 0), (3, 2)]).only()
    assert (incident.root.key, incident.fault_at) == (f"port/leaf-a/{UPLINK}", at(-300))
    assert [job.name for job in incident.jobs] == ["llama"]


def test_what_failed_beneath_its_switch_before_a_cable_with_errors_broke_is_not_its_fault() -> None:
    jobs = {i.family: [job.name for job in i.jobs] for i in worn_out([(0, 2), (2, 0)]).published.values()}
    assert jobs == {"fabric_fault": [], "hang": ["llama"]}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("cabled", "reported"), [("leaf-a", "leaf-a.dc.example"), ("leaf-a.dc.example", "leaf-a")]
)
def test_a_switch_is_one_with_its_domain_and_without(cabled: str, reported: str, late: bool) -> None:
    known = [link(cabled, f"Ethernet{i}", node, "eth1") for i, node in enumerate(UNDER)]
    world = World([*facts(), *([] if late else known)])
    world.see(port(reported, "Ethernet1", 0))
    for fact in known if late else []:
        world.tell(fact)
    world.pass_to(900, step=10)
    assert [(i.root.node, i.root.switch) for i in world.incidents()] == [(UNDER[1], cabled)]


def test_two_switches_of_one_short_name_are_two() -> None:
    known = [
        link(f"leaf-a.{row}.example", "Ethernet1", node, "eth1")
        for row, node in zip("xy", UNDER, strict=True)
    ]
    world = World([*facts(), *known])
    world.see(port("leaf-a.z.example", "Ethernet1", 0), port("leaf-a", "Ethernet1", 0))
    world.pass_to(900, step=10)
    assert [i for i in world.incidents() if i.root.node is not None] == []


def in_a_log(*seconds: float, until: float) -> World:
    """A cable between switches of whose errors a switch logs lines."""
    world = World([*facts(), *cables(), link("leaf-a", UPLINK, peer="spine-1", peer_port="7")])
    for moment in seconds:
        world.pass_to(moment, step=30)
        world.see(port("leaf-a", UPLINK, moment, subtype="errors", counter="FEC"))
    world.pass_to(until, step=30)
    return world


def test_errors_in_a_log_are_over_an_hour_after_the_last_of_them_those_of_a_counter_as_it_says() -> None:
    assert in_a_log(0, 600, 1260, until=4800).only().state is IncidentState.OPEN
    incident = in_a_log(0, 600, 1260, until=5200).only()
    assert (incident.state, incident.closed_at) == (IncidentState.RESOLVED, at(4860))
    world = in_a_log(0, 60, until=60)
    world.see(counted(90, -300))
    world.pass_to(4 * 3600, step=30)
    assert world.only().state is IncidentState.OPEN
    world.see(counted(4 * 3600, 4 * 3600 - 300, cleared=True))
    world.pass_to(4 * 3600 + 200)
    assert world.only().closed_at == at(4 * 3600)


def test_a_cable_that_errs_on_and_off_for_hours_is_one_fault() -> None:
    moments = [t for begin in range(0, 12_000, 1500) for t in (begin, begin + 60)]
    incident = in_a_log(*moments, until=moments[-1] + 600).only()
    assert (incident.state, incident.fault_at) == (IncidentState.OPEN, at(0))


def test_what_fails_hours_after_the_errors_in_a_log_is_not_that_cables() -> None:
    world = in_a_log(0, 600, 1260, until=4 * 3600)
    world.see(unanswered(1, 0, 4 * 3600), unanswered(3, 2, 4 * 3600 + 0.2))
    world.pass_to(4 * 3600 + 900, step=5)
    jobs = {i.family: [job.name for job in i.jobs] for i in world.published.values()}
    assert jobs == {"fabric_fault": [], "hang": ["llama"]}


RACK_2, RACK_3 = (tuple(f"moor-r{rack}n0{i}" for i in (1, 2, 3)) for rack in (2, 3))
ADDRESSES = {n: f"10.70.{n[6]}.{n[-1]}" for n in (*RACK_2, *RACK_3)}
ACROSS = [(a, b) for a, b in zip((*RACK_3, *RACK_2), (*RACK_2[::-1], *RACK_3[::-1]), strict=True)]
ALL_ACROSS = [*ACROSS, *((a, b) for a, b in zip(RACK_3, RACK_2, strict=True))]


def of_slurm(
    pairs: Sequence[tuple[str, str]],
    reports: Sequence[Signal],
    *,
    named: bool = True,
    cabled: Sequence[Fact] = (),
) -> World:
    """A job of two racks without any inventory whose connections fail, by the names of their far ends or by addresses."""
    world = World(cabled)
    place = Entity(CLUSTER, job=JobRef(SLURM_JOB, "", "4242"))
    given: dict[str, Attribute] = {
        "subtype": "running",
        "hosts": "moor-r2n[01-03],moor-r3n[01-03]",
        "gpus": 8,
    }
    world.see(
        signal(
            "job.allocation",
            place,
            severity=Severity.INFO,
            occurred_at=at(-900),
            observed_at=at(-900),
            attributes=given,
        )
    )
    for one in reports:
        world.see(one)
    for i, (node, peer) in enumerate(pairs):
        said: dict[str, Attribute] = {
            "subtype": "ib_completion",
            "status": 12,
            "vendor_err": 129,
            "peer": peer if named else ADDRESSES[peer],
            "rank": 8 * sorted(ADDRESSES).index(node),
        }
        pod = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "4242"))
        world.see(
            signal(
                "nccl.error",
                pod,
                severity=Severity.ERROR,
                occurred_at=at(60 + 0.2 * i),
                observed_at=at(60.5 + 0.2 * i),
                attributes=said,
            )
        )
    world.pass_to(900, step=10)
    return world


def errs(switch: str = "moor-lf-03", subtype: str = "errors") -> list[Signal]:
    return [port(switch, "Ethernet53/1", 30, subtype=subtype, counter="FEC")]


@pytest.mark.parametrize("named", [True, False], ids=["by names", "by addresses of nobody known"])
def test_a_port_with_errors_of_the_leaf_of_a_rack_is_a_guess_where_just_what_crosses_it_fails(
    named: bool,
) -> None:
    incident = of_slurm(ALL_ACROSS, errs(), named=named).only()
    assert (incident.family, incident.root.key) == ("fabric_fault", "port/moor-lf-03/Ethernet53/1")
    assert [job.name for job in incident.jobs] == ["4242"]
    assert incident.certainty is Certainty.WEAK
    assert "its link works with errors (FEC); it belongs to no host that is known" in incident.reason
    assert "That rack 3 hangs on moor-lf-03 is a guess from its name" in incident.reason


WITHIN = [*ALL_ACROSS, (RACK_3[0], RACK_3[1]), (RACK_2[0], RACK_2[1])]
ONE_HOST = [*((RACK_3[0], n) for n in RACK_2), *((n, RACK_3[0]) for n in RACK_2)]


@pytest.mark.parametrize("named", [True, False], ids=["by names", "by addresses of nobody known"])
@pytest.mark.parametrize(
    ("pairs", "reports"),
    [
        (WITHIN, errs()),
        (ONE_HOST, errs()),
        (ALL_ACROSS, errs("moor-lf-04")),
        (ALL_ACROSS, errs("moor-sp-3")),
        (ALL_ACROSS, errs(subtype="link_down")),
    ],
    ids=[
        "within racks too",
        "all of one host",
        "another rack's",
        "a spine's",
        "only down, as a host's may be",
    ],
)
def test_nothing_is_guessed_where_less_speaks_for_it(
    pairs: Sequence[tuple[str, str]], reports: Sequence[Signal], named: bool
) -> None:
    assert "fabric_fault" not in {i.family for i in of_slurm(pairs, reports, named=named).incidents()}


def test_nothing_is_guessed_of_a_leaf_whose_hosts_are_known() -> None:
    """It is the leaf of other hosts, whatever its name tells."""
    cabled = [link("moor-lf-03", f"Ethernet{i}/1", f"moor-r9n0{i}", "eth1") for i in (1, 2)]
    assert "fabric_fault" not in {i.family for i in of_slurm(ALL_ACROSS, errs(), cabled=cabled).incidents()}


def test_errors_of_a_guessed_leaf_are_no_incident_without_a_job_that_fails() -> None:
    assert not of_slurm([], errs()).incidents()


def lost_on_rail(pod: int, peer: int, seconds: float, device: str = "mlx5_2") -> Signal:
    found = unanswered(pod, peer, seconds)
    return replace(found, attributes={**found.attributes, "device": device})


RAILS: dict[str, tuple[list[Signal], bool]] = {
    "as it goes down, on one rail of several nodes": (
        [lost_on_rail(0, 3, 308), lost_on_rail(1, 2, 312)],
        True,
    ),
    "minutes after it is back": ([lost_on_rail(0, 3, 508), lost_on_rail(1, 2, 512)], False),
    "before it went down": ([lost_on_rail(0, 3, 280), lost_on_rail(1, 2, 284)], False),
    "on several rails": ([lost_on_rail(0, 3, 308), lost_on_rail(1, 2, 312, "mlx5_5")], False),
    "of one node": ([lost_on_rail(0, 3, 308), lost_on_rail(0, 2, 312)], False),
    "to one node": ([lost_on_rail(0, 3, 308), lost_on_rail(1, 3, 312)], False),
}


def victims_of_a_flapping_cable(nodes: Sequence[Fact], errors: Sequence[Signal]) -> list[list[str]]:
    """The jobs of the incident of one cable between switches that goes down five times."""
    world = World([*nodes, link("leaf-3", "26", peer="spine-5", peer_port="11")])
    flaps = [
        port("leaf-3", "26", t, cleared=back)
        for i in range(5)
        for t, back in ((150 * i, False), (150 * i + 4, True))
    ]
    for one in sorted([*flaps, *errors], key=lambda s: s.occurred_at):
        world.see(one)
    world.pass_to(2000, step=10)
    found = {
        i.root.key: [job.name for job in i.jobs] for i in world.incidents() if i.family == "fabric_fault"
    }
    return [jobs for root, jobs in found.items() if "leaf-3" in root]


@pytest.mark.parametrize("name", RAILS)
def test_where_nobody_knows_what_hangs_on_a_switch_a_job_is_a_victim_of_a_cable_that_goes_down_with_its_rail(
    name: str,
) -> None:
    errors, is_victim = RAILS[name]
    assert victims_of_a_flapping_cable(facts(), errors) == [["llama"] if is_victim else []]


def in_racks(racks: dict[str, str]) -> list[Fact]:
    return [replace(f, rack=racks[f.name]) if isinstance(f, NodeFact) else f for f in facts()]


@pytest.mark.parametrize(
    ("racks", "is_victim"),
    [
        ({"a1": "r1", "a2": "r1", "b1": "r2", "b2": "r2"}, True),
        ({"a1": "r9", "a2": "r1", "b1": "r2", "b2": "r2"}, True),
        ({"a1": "r9", "a2": "r9", "b1": "r9", "b2": "r2"}, False),
    ],
    ids=["none under it", "one under it", "most under it"],
)
def test_a_known_rack_is_no_known_switch(racks: dict[str, str], is_victim: bool) -> None:
    """The leaf of another rack makes errors, so that the nodes' racks are asked whether they hang on it."""
    far = port("tor-r9", "53", 30, subtype="errors", counter="FEC")
    lost = [lost_on_rail(0, 3, 308), lost_on_rail(1, 2, 312)]
    assert victims_of_a_flapping_cable(in_racks(racks), [far, *lost]) == [["llama"] if is_victim else []]
