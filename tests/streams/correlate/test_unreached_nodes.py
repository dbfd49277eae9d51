"""A node whose kernel drops connections, and what becomes of jobs that others of its pods cannot reach there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from streams.model.facts import PodFact
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    failed,
    node_fact,
    pods,
    progress,
    sign,
)

GIVES_UP = 600.0
MASTER = "llama-worker-0"
OTHERS = (1, 2, 3)
UNANSWERED, REFUSED = 110, 111


def drops(node: str = "n1", subtype: str = "conntrack_full", times: int = 4) -> list[Signal]:
    """The kernel of a node says from before the job's start on that it drops what asks for a connection."""
    return [sign("node.condition", node, -60 + 200.0 * i, subtype) for i in range(times)]


def gave_up(
    ranks: Sequence[int] = OTHERS, peer: str = MASTER, errno: int = UNANSWERED, seconds: float = 0
) -> list[Signal]:
    """Programs that try to reach the one at which all meet, and no longer after ten minutes."""
    store, refused = "client socket has timed out", "client socket has failed to connect"
    tries = [
        failed("llama", i, seconds + 5, "store", kind="nccl.error", reason=refused, peer=peer, errno=errno)
        for i in ranks
    ]
    ends = [
        failed("llama", i, seconds + GIVES_UP + i, "store", kind="nccl.error", reason=store, peer=peer)
        for i in ranks
    ]
    return [*tries, *ends]


def exits() -> list[Signal]:
    """A launcher on each host tells how its workers ended."""
    return [failed("llama", i, GIVES_UP + 8 + i, exitcode=1, local_rank=0) for i in OTHERS]


def running(attempt: int, since: float) -> list[PodFact]:
    """The job's pods, with containers that started soon after they came to their nodes."""
    made = pods("llama", FOUR, since=since, attempt=attempt)
    return [replace(pod, created_at=at(since), started_at=at(since + 20)) for pod in made]


def story(*signals: Signal) -> World:
    world = World([*map(node_fact, [*FOUR, "n5"]), *running(1, -30)])
    for signal in sorted(signals, key=lambda s: s.occurred_at):
        world.pass_to((signal.occurred_at - at(0)).total_seconds(), step=30)
        world.see(signal)
    world.pass_to(GIVES_UP + 60, step=10)
    return world


def started_again(world: World) -> list[Incident]:
    """The controller ends the job's pods and makes it anew on the same nodes."""
    ended = at(GIVES_UP + 70)
    for pod in running(1, -30):
        world.tell(replace(pod, ended_at=ended, phase="Failed", observed_at=ended))
    for pod in running(2, GIVES_UP + 90):
        world.tell(pod)
    world.pass_to(GIVES_UP + 400, step=10)
    return world.incidents()


@pytest.mark.parametrize("subtype", ["conntrack_full", "neighbours_full", "tcp_memory"])
def test_the_node_that_others_of_a_job_cannot_reach_is_at_fault_by_its_own_words(subtype: str) -> None:
    incidents = started_again(story(*drops(subtype=subtype), *gave_up()))
    (incident,) = incidents
    assert (incident.family, incident.root.key) == ("platform_fault", "node/n1")
    assert [job.name for job in incident.jobs] == ["llama"]
    assert incident.fault_at == at(-60)


def test_what_launchers_say_of_workers_that_gave_up_is_part_of_it() -> None:
    last = [s for s in gave_up() if s.occurred_at > at(60)]
    (incident,) = started_again(story(*drops(), *last, *exits()))
    assert incident.root.key == "node/n1"
    assert incident.certainty == "weak", "a person is asked, and no node is closed for it"


def test_a_node_that_reaches_no_other_is_at_fault_as_well() -> None:
    (incident,) = started_again(story(*drops("n3"), *gave_up([2])))
    assert incident.root.key == "node/n3"


def test_a_name_that_nobody_knows_is_that_of_the_only_node_that_does_not_look_for_it() -> None:
    (incident,) = started_again(story(*drops(), *gave_up(peer="llama-head-svc.train.svc")))
    assert incident.root.key == "node/n1"


OTHERWISE: dict[str, Callable[[], list[Signal]]] = {
    "nobody complains": drops,
    "only the kernel of a node that the job does not hold says so": lambda: [*drops("n5"), *gave_up()],
    "the peers look for another node": lambda: [*drops("n2"), *gave_up([2, 3])],
    "the host answers that nobody listens": lambda: [*drops(), *gave_up(errno=REFUSED)],
    "a name nobody knows, and two that do not look for it": lambda: [
        *drops(),
        *gave_up([1, 2], peer="llama-head-svc"),
    ],
    "it was over long before": lambda: [*drops(times=1), *gave_up(seconds=600)],
    "both ends drop connections": lambda: [*drops(), *drops("n3"), *gave_up([2])],
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_busy_node_is_no_fault_where_it_is_not_why_a_job_fails(name: str) -> None:
    found = started_again(story(*OTHERWISE[name]()))
    assert [i.root.key for i in found if i.root.node is not None] == []


def test_tries_that_succeed_in_the_end_are_nothing() -> None:
    tries = [s for s in gave_up(seconds=300) if s.occurred_at < at(360)]
    steps = [progress("llama", 360 + 30.0 * i, i) for i in range(10)]
    assert story(*drops(), *tries, *steps).incidents() == []


def test_a_pod_that_failed_on_a_busy_node_did_not_fail_for_that() -> None:
    """Its peers wait for it, and do not say that they cannot reach it."""
    waits = [
        failed("llama", i, GIVES_UP + i, "store", kind="nccl.error", reason="waiting for clients")
        for i in OTHERS
    ]
    world = World([*map(node_fact, FOUR), *running(1, -30)])
    world.see(*drops())
    first = running(1, -30)[0]
    world.tell(replace(first, ended_at=at(60), phase="Failed", observed_at=at(60), ready=False))
    world.pass_to(GIVES_UP, step=10)
    world.see(*waits)
    world.pass_to(GIVES_UP + 400, step=10)
    assert [i for i in world.incidents() if i.root.node is not None] == []


@pytest.mark.parametrize(("how", "family"), [("sandbox", "platform_fault"), ("dra_driver", "silent_node")])
def test_only_the_network_of_a_pod_fails_with_that_of_its_node(how: str, family: str) -> None:
    world = World([*map(node_fact, FOUR), *running(1, -30)[1:]])
    world.tell(replace(running(1, -30)[0], started_at=None, phase="Pending", ready=False))
    world.see(*drops(), *(failed("llama", 0, 40.0 * i, how) for i in range(6)))
    world.pass_to(400, step=10)
    assert (world.only().family, world.only().root.key) == (family, "node/n1")
