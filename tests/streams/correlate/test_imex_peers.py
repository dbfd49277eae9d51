"""A compute tray whose IMEX service the others of its NVLink domain do not reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from streams.model.facts import Fact
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import World, at, cluster, failed, node_fact, not_ready, sign

TRAYS = [f"m{i:02d}" for i in range(12)]
LOST, OTHERS = TRAYS[4], [*TRAYS[:4], *TRAYS[5:]]


def address(node: str) -> str:
    return f"10.8.0.{100 + TRAYS.index(node)}"


def facts(*jobs: Sequence[str], **lost: object) -> list[Fact]:
    made = [f for f in cluster({f"job{i}": nodes for i, nodes in enumerate(jobs)}) if f.kind != "node"]
    nodes = [node_fact(n, nvlink_domain="x.1", addresses=(address(n),)) for n in TRAYS]
    return [*(replace(n, **lost) if n.name == LOST else n for n in nodes), *made]  # type: ignore[arg-type]


def cannot(
    nodes: Iterable[str], seconds: float, peer: str = LOST, times: int = 3, *, back: bool = False
) -> list[Signal]:
    """Each reports every four minutes that it does not reach the peer, or once that it does again."""
    return [
        sign(
            *("gpu.driver", n, seconds + 2 * i + 240 * k, "imex"),
            severity=Severity.INFO if back else Severity.WARNING,
            cleared=back,
            peer=address(peer),
        )
        for i, n in enumerate(nodes)
        for k in range(1 if back else times)
    ]


def played(signals: Iterable[Signal], world: World | None = None, until: float = 1500) -> World:
    world = world or World(facts())
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
    world.pass_to(until, step=10)
    return world


@pytest.mark.parametrize("restarts", [False, True])
def test_the_node_that_the_others_name_is_the_root(restarts: bool) -> None:
    world = played(cannot(OTHERS, 0), until=900)
    if restarts:
        world.restart()
    incident = played([], world).only()
    assert (incident.family, incident.root.key, incident.nodes) == ("platform_fault", f"node/{LOST}", (LOST,))
    assert "11 of 11 nodes of its NVLink domain do not reach the IMEX service" in incident.reason


def test_it_is_over_when_they_reach_it_again() -> None:
    world = played([*cannot(OTHERS, 0), *cannot(OTHERS, 900, back=True)], until=3000)
    assert world.only().state.value == "resolved"


def test_a_job_with_a_pod_there_that_fails_for_it_is_hit() -> None:
    signals = [*cannot(OTHERS, 0), *(failed("job0", i, 90 + i, exit_code=1) for i in range(3))]
    incident = played(signals, World(facts(TRAYS[2:6]))).only()
    assert (incident.root.node, [job.name for job in incident.jobs]) == (LOST, ["job0"])


NOTHING: dict[str, list[Signal]] = {
    "three of eleven": cannot(OTHERS[:3], 0),
    "back within minutes": [*cannot(OTHERS, 0, times=1), *cannot(OTHERS, 200, back=True)],
    "each names every other one": [
        s for peer in TRAYS for s in cannot([n for n in TRAYS if n != peer], 0, peer)
    ],
    "one names every other one": [s for peer in OTHERS for s in cannot([LOST], 0, peer)],
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_nobodys_service(name: str) -> None:
    assert not played(NOTHING[name]).published


def test_nobody_reaches_a_node_that_is_away() -> None:
    world = played([not_ready(LOST, -10), *cannot(OTHERS, 0), not_ready(LOST, 800, ready=True)])
    assert {i.family for i in world.incidents()} == {"node_down"}


def test_nor_one_that_somebody_works_on() -> None:
    assert not played(cannot(OTHERS, 0), World(facts(unschedulable=True))).published


def cannot_start(node: str, seconds: float, times: int = 6) -> list[Signal]:
    """Its IMEX service finds no interface to bind to, and is started again a little later each time."""
    return [
        sign("gpu.driver", node, seconds + 20 * k * k, "imex_start", reason="No matching network interface")
        for k in range(times)
    ]


def unprepared(nodes: Sequence[str], seconds: float, times: int = 4, job: str = "job0") -> list[Signal]:
    """Pods of a job that waits for its compute domain, on all of its nodes."""
    found = [
        (failed(job, i, seconds + 80 * k + i, "sandbox", reason="FailedPrepareDynamicResources"), node)
        for k in range(times)
        for i, node in enumerate(nodes)
    ]
    return [replace(s, entity=replace(s.entity, node=node)) for s, node in found]


def test_a_service_that_cannot_bind_names_its_node_and_the_job_that_waits_for_it_is_hit() -> None:
    incident = played(
        [*cannot_start(LOST, 0), *unprepared(TRAYS[:8], 40)], World(facts(TRAYS[:8])), until=900
    ).only()
    assert (incident.family, incident.root.key) == ("platform_fault", f"node/{LOST}")
    assert "its IMEX service cannot start" in incident.reason
    assert [j.name for j in incident.jobs] == ["job0"]


def test_each_job_that_waits_for_a_domain_with_it_is_hit_in_one_incident() -> None:
    """The second waits for nothing else: its nodes are the first one's, which has given up."""
    signals = [
        *cannot_start(LOST, 0, times=9),
        *unprepared(TRAYS[:8], 40),
        *unprepared(TRAYS[2:10], 900, job="job1"),
    ]
    incident = played(signals, World(facts(TRAYS[:8], TRAYS[2:10])), until=1800).only()
    assert (incident.root.key, [j.name for j in incident.jobs]) == (f"node/{LOST}", ["job0", "job1"])


def test_a_domain_that_forms_while_its_services_are_restarted_is_no_fault() -> None:
    """Each finds the session held by the one before it, once; pods wait a minute for the last."""
    once = [s for i, node in enumerate(TRAYS) for s in cannot_start(node, 5 * i, times=1)]
    assert not played([*once, *unprepared(TRAYS[:8], 20, times=1)], World(facts(TRAYS[:8]))).incidents()


def test_services_that_go_on_failing_on_many_nodes_are_what_was_rolled_out_to_them() -> None:
    failing = [s for i, node in enumerate(TRAYS) for s in cannot_start(node, 5 * i)]
    assert played(failing).only().root.key == "part/gpu-software/imex_start"


def test_nor_is_one_on_a_node_that_somebody_works_on() -> None:
    assert not played(cannot_start(LOST, 0), World(facts(unschedulable=True))).incidents()


def test_it_is_told_without_a_job_when_it_goes_on() -> None:
    assert played(cannot_start(LOST, 0)).only().root.node == LOST


def test_a_service_that_starts_before_its_interfaces_and_then_runs_is_no_fault() -> None:
    assert not played(cannot_start(LOST, 0, times=2)).incidents()


@pytest.mark.parametrize("domain", [None, "of its own"])
def test_a_box_that_shares_memory_with_no_other_needs_no_imex(domain: str | None) -> None:
    service = [sign("gpu.driver", LOST, 120 * k, "service_failed", service="nvidia-imex") for k in range(6)]
    world = World(facts(nvlink_domain=domain))
    assert not played([*cannot_start(LOST, 0), *service], world).incidents()
    assert played([replace(s, id=f"{s.id}x") for s in service], World(facts())).incidents()
