"""Lines that a launcher prints for ranks and hosts elsewhere: what they name counts, not the pod that printed them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson
import pytest

from streams.detect.detector import Detector
from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, PodFact
from streams.model.incident import Certainty
from streams.model.record import RawRecord
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.test_rank_assignment import made, unnumbered
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    job,
    nccl_error,
    node_fact,
    timeout,
    timeouts,
)

LAUNCHER = PodRef("train", "llama-launcher-x7k2p")


def launched(nodes: Sequence[str] = FOUR) -> list[Fact]:
    """A job that mpirun starts: its launcher holds no GPU and stands on a node of its own."""
    launcher = PodFact(
        CLUSTER, "train", LAUNCHER.name, "launcher-1", at(-3000), node="n9", job=job("llama"), phase="Running",
        ready=True, scheduled_at=at(-3000),
    )  # fmt: skip
    return [*cluster({"llama": nodes}), node_fact("n9"), launcher]


def relayed(lines: Iterable[Signal], **more: Attribute) -> list[Signal]:
    """The same lines in the launcher's log."""
    return [
        replace(s, entity=replace(s.entity, pod=LAUNCHER, node="n9"), attributes={**s.attributes, **more})
        for s in lines
    ]


def test_the_node_whose_ranks_the_launcher_has_nothing_of_holds_the_job_up() -> None:
    world = World(launched())
    world.see(*relayed(timeouts("llama", [r for r in range(32) if r // 8 != 2], 600)))
    world.pass_to(700)
    incident = world.only()
    assert (incident.root, incident.certainty) == (Entity(CLUSTER, node="n3"), Certainty.DECISIVE)


def test_where_all_ranks_speak_through_the_launcher_no_node_is_named() -> None:
    world = World(launched())
    world.see(*relayed(timeouts("llama", range(32), 600)))
    world.pass_to(700)
    assert world.only().root.node is None


def test_a_silent_launcher_is_nobodys_culprit() -> None:
    world = World(launched())
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    world.pass_to(700)
    assert (world.only().root.node, world.only().certainty) == ("n3", Certainty.DECISIVE)


def unplaced_beside(node: str = "n1") -> list[Fact]:
    """The same, of whose pods nobody knows the ranks; the launcher stands on one of its workers' nodes."""
    facts = [replace(f, node=node) if isinstance(f, PodFact) and not f.gpus else f for f in launched()]
    return [replace(f, rank=None) if isinstance(f, PodFact) else f for f in facts]


def in_group(line: Signal, place: int, pg: str) -> Signal:
    """A watchdog's line of a rank that waits in a group of its own kind."""
    more: dict[str, Attribute] = {"pg": pg, "pg_id": pg, "pg_rank": place}
    return replace(line, attributes={**line.attributes, **more})


def test_where_a_launcher_stands_tells_nothing_of_ranks_that_nobody_can_place() -> None:
    """Half of the ranks wait for a silent one in its tensor-parallel group, the others for their gradients."""
    said = [in_group(s, i % 8, "10") for i, s in enumerate(timeouts("llama", range(8, 16), 600)) if i != 1]
    said += [in_group(s, 0, str(1 + i)) for i, s in enumerate(timeouts("llama", range(8), 600))]
    world = World(unplaced_beside())
    world.see(*(replace(s, entity=replace(s.entity, pod=LAUNCHER, node="n1")) for s in said))
    world.pass_to(800)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("hang", None)
    assert "ranks 9 said nothing, while the others of process group 10 wait for them" in incident.reason


def by_ray(names: Iterable[int], *, at_once: bool = True) -> list[Signal]:
    """Watchdogs' lines of these ranks in the log of Ray's driver, each with its worker's address."""
    lines = [timeout("llama", rank, 600 + (0.1 if at_once else 20) * i) for i, rank in enumerate(names)]
    return [line for s in lines for line in relayed([s], ip=f"10.4.0.{_number(s) // 8 + 1}")]


def _number(line: Signal) -> int:
    return line.entity.rank or 0


def ray_cluster() -> list[Fact]:
    """A driver without GPUs, and workers whose ranks nobody knows but by their addresses."""
    return [
        replace(f, ip=f"10.4.0.{int((f.node or '')[-1])}", rank=None)
        if isinstance(f, PodFact) and f.gpus
        else f
        for f in launched()
    ]


@pytest.mark.parametrize("silent", [range(21, 22), range(16, 24)], ids=["a rank", "a worker"])
def test_a_driver_that_prints_every_line_shows_who_is_silent(silent: range) -> None:
    world = World(ray_cluster())
    world.see(*by_ray(r for r in range(32) if r not in silent))
    world.pass_to(800)
    incident = world.only()
    assert (incident.root.node, incident.certainty) == ("n3", Certainty.LIKELY)
    assert incident.facts["culprit_ranks"] == tuple(silent)


@pytest.mark.parametrize("spoke", [[0, 8, 24], [0, 9, 17]])
def test_a_driver_that_folds_lines_makes_nobody_silent(spoke: list[int]) -> None:
    world = World(ray_cluster())
    world.see(*by_ray(spoke))
    world.pass_to(800)
    assert world.only().root.node is None


def test_lines_alike_that_came_in_the_course_of_a_minute_may_each_stand_for_others() -> None:
    world = World(ray_cluster())
    world.see(*by_ray([0, 8, 9, 24], at_once=False))
    world.pass_to(900)
    assert world.only().root.node is None


def test_what_an_address_means_may_be_known_only_afterwards() -> None:
    facts = ray_cluster()
    world = World(replace(f, ip=None) if isinstance(f, PodFact) else f for f in facts)
    world.see(*by_ray(r for r in range(32) if r != 21))
    world.pass_to(700)
    assert world.only().root.node is None
    for fact in facts:
        if isinstance(fact, PodFact):
            world.tell(replace(fact, observed_at=at(700)))
    world.pass_to(900)
    assert world.only().root.node == "n3"


def test_an_address_before_the_line_is_that_of_the_pod_it_comes_from() -> None:
    """Ray's driver tells of workers by their address; whose connections fail is known by that."""
    facts = [
        replace(f, ip=f"10.4.0.{int(f.name[-1])}", rank=None) if isinstance(f, PodFact) and f.gpus else f
        for f in launched()
    ]
    lines = [
        *relayed([error(0, "10.4.0.1")], ip="10.4.0.0"),
        *relayed([error(16, "10.4.0.1")], ip="10.4.0.2"),
        *relayed([error(24, "10.4.0.1")], ip="10.4.0.3"),
    ]
    world = World(facts)
    world.see(*lines)
    world.pass_to(700)
    assert (world.only().root.node, world.only().root.nic) == ("n2", "mlx5_3")


def error(rank: int, peer: str) -> Signal:
    """A connection to the peer that failed."""
    line = nccl_error("llama", rank, 100)
    return replace(
        line, attributes={**line.attributes, "subtype": "completion", "peer": peer, "device": "mlx5_3"}
    )


def test_a_single_rank_that_never_came_names_its_gpu() -> None:
    world = World(unnumbered())
    world.see(*(made(r, r // 8) for r in range(32)))
    world.see(*timeouts("llama", [r for r in range(32) if r != 21], 600))
    world.pass_to(700)
    incident = world.only()
    assert (incident.root.node, incident.root.gpu and incident.root.gpu.pci) == ("n3", "0000:15:00")


def test_the_incident_stays_one_when_more_ranks_of_the_node_turn_out_silent_or_speak() -> None:
    world = World(unnumbered())
    world.see(*(made(r, r // 8) for r in range(32)))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    world.pass_to(640)
    first = world.only()
    assert first.root == Entity(CLUSTER, node="n3")
    world.see(*timeouts("llama", [r for r in range(16, 24) if r != 21], 641))
    world.pass_to(720)
    incident = world.only()
    assert incident.id == first.id
    assert incident.root.gpu is not None
    world.restart()
    world.see(timeout("llama", 21, 721, waited=690))
    world.pass_to(760)
    assert [i for i in world.incidents() if i.root.node == "n3" and not i.state.is_over] == []


def test_failing_connections_name_their_nic() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(error(rank, "n2") for rank in (0, 16, 24)))
    world.pass_to(300)
    assert (world.only().root.node, world.only().root.nic) == ("n2", "mlx5_3")


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."


def printed(text: str, pod: str = "llama-launcher-x7k2p") -> list[Signal]:
    """What a detector makes of a line in the log of a pod on n9."""
    value = {
        "log": text,
        "stream": "stderr",
        "kubernetes": {"pod_name": pod, "namespace_name": "train", "host": "n9", "container_name": "main"},
    }
    record = RawRecord("raw.job-logs", 0, 1, at(1), None, orjson.dumps(value))
    return list(Detector(CLUSTER).detect(record).signals)


WAITING = timeouts("llama", range(32), 20, waited=15)
"""What is printed of a GPU counts while a job there suffers."""


@pytest.mark.parametrize("host", ["n3", "n3.example.internal", "N3"])
def test_a_kernels_line_that_a_launcher_prints_is_of_the_host_it_names(host: str) -> None:
    world = World(launched())
    world.see(*printed(f"Mar  1 12:00:00 {host} kernel: {XID}"), *WAITING)
    world.pass_to(30)
    incident = world.only()
    assert (incident.root.node, incident.family) == ("n3", "gpu_off_bus")
    # Anybody can print such a line: a person decides.
    assert incident.certainty is Certainty.LIKELY


@pytest.mark.parametrize("host", ["n9", "n9.example.internal", "llama-launcher-x7k2p"])
def test_a_kernels_line_under_the_pods_own_name_is_of_the_node_it_stands_on(host: str) -> None:
    world = World(launched())
    world.see(*printed(f"Mar  1 12:00:00 {host} kernel: {XID}"), *WAITING)
    world.pass_to(30)
    assert (world.only().root.node, world.only().certainty) == ("n9", Certainty.LIKELY)


def test_a_line_of_no_known_gpu_names_the_node() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r != 21], 600))
    world.pass_to(700)
    assert world.only().root == Entity(CLUSTER, node="n3")


@pytest.mark.parametrize("host", ["n5", "n3"])
def test_a_pod_accuses_no_node_that_its_job_does_not_stand_on(host: str) -> None:
    """Ten such lines in one container's log would otherwise stop all automation: the breaker takes them for mass faults."""
    world = World([*launched(["n0", "n1"]), node_fact("n3"), node_fact("n5")])
    world.see(*printed(f"Mar  1 12:00:00 {host} kernel: {XID}"))
    world.pass_to(700)
    assert world.incidents() == []


def test_a_pod_of_no_job_accuses_no_other_node() -> None:
    world = World(launched())
    world.see(*printed(f"Mar  1 12:00:00 n3 kernel: {XID}", pod="notebook-0"))
    world.pass_to(700)
    assert world.incidents() == []


def test_the_kernel_itself_names_the_gpu_whatever_a_job_printed_before() -> None:
    world = World(launched())
    world.see(*printed(f"Mar  1 12:00:00 n3 kernel: {XID}"))
    value = orjson.dumps(
        {"log": XID.replace("3b:00", "9d:00"), "kubernetes": {"host": "n3"}, "SYSLOG_IDENTIFIER": "kernel"}
    )
    world.see(*Detector(CLUSTER).detect(RawRecord("raw.node-logs", 0, 1, at(2), b"n3", value)).signals)
    world.pass_to(60)
    open_ones = [i for i in world.incidents() if not i.state.is_over]
    assert [(i.root.node, i.root.gpu and i.root.gpu.pci, i.certainty) for i in open_ones] == [
        ("n3", "0000:9d:00", Certainty.DECISIVE)
    ]
