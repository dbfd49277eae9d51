"""Faults of hardware that only jobs print: of one node a likely fault, of many one question about the output."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Part
from streams.model.incident import Certainty, Incident
from streams.model.signal import PRINTED_BY, RELAYED, Signal
from tests.streams.correlate.world import World, cluster, failed, progress, sign, xid

NODES = [f"n{i:02d}" for i in range(40)]
SPARE = [f"s{i:02d}" for i in range(60)]


def of_pod(said: Signal, namespace: str = "team-a") -> Signal:
    """The same, printed by a pod."""
    return replace(
        said, attributes={**said.attributes, RELAYED: True, PRINTED_BY: f"{namespace}/llm-worker-0"}
    )


def printed(node: str, seconds: float, namespace: str = "team-a") -> Signal:
    """What a pod on the node prints of it."""
    return of_pod(xid(node, 79, seconds), namespace)


def world() -> World:
    return World(cluster({"llm": NODES}, SPARE))


def told(world: World) -> list[Incident]:
    return [i for i in world.incidents() if i.merged_into is None]


def seen(world: World, signals: Sequence[Signal], until: float = 300) -> list[Incident]:
    world.see(*signals)
    world.pass_to(until)
    return told(world)


def test_what_a_job_prints_of_many_nodes_is_one_question_about_its_output() -> None:
    (incident,) = seen(world(), [printed(n, 10 + 0.1 * i) for i, n in enumerate(NODES)])
    assert incident.root.part == Part("job-output", "team-a")
    assert (incident.family, incident.certainty) == ("platform_fault", Certainty.LIKELY)
    assert (incident.facts["printed"], incident.facts["nodes_hit"]) == (True, len(NODES))


def test_nobody_is_told_of_the_first_nodes_before_the_others_are_printed() -> None:
    w = world()
    for i, node in enumerate(NODES):
        w.see(printed(node, 10 + 4 * i))
        w.pass_to(10 + 4 * i)
    w.pass_to(300)
    assert [str(i.root) for i in w.incidents()] == ["the output of pods of team-a"]


@pytest.mark.parametrize("count", [1, 3])
def test_of_a_few_nodes_one_is_likely_while_their_job_suffers(count: int) -> None:
    """No job suffers from more than one: which of a few are accused rightly, a person finds out from there."""
    dying = [failed("llm", i, 12, exitcode="1") for i in range(count)]
    (found,) = seen(world(), [*(printed(n, 10) for n in NODES[:count]), *dying])
    assert (found.root.node in NODES[:count], found.certainty) == (True, Certainty.LIKELY)


@pytest.mark.parametrize("node", [NODES[0], SPARE[0]])
def test_what_is_printed_of_one_node_while_all_goes_on_is_nothing(node: str) -> None:
    """A notebook, or a job that trains on, reads what the kernel of another cluster once printed."""
    going_on = [progress("llm", 30.0 * i, step=i) for i in range(1, 10)]
    assert seen(world(), [printed(node, 10), *going_on]) == []


def test_a_job_that_waits_for_gpus_does_not_suffer_from_what_is_printed_of_one() -> None:
    w = world()
    stalled = [failed("llm", 20, 60.0 * i, "unschedulable", kind="job.stalled") for i in range(1, 20)]
    assert not [i for i in seen(w, [printed(NODES[0], 10), *stalled], 2500) if i.root.node]


def test_the_node_whose_kernel_says_so_itself_stands_for_itself() -> None:
    found = seen(world(), [xid("n03", 79, 9), *(printed(n, 10) for n in NODES)])
    assert {(str(i.root.node), i.certainty) for i in found} == {
        ("n03", Certainty.DECISIVE),
        ("None", Certainty.LIKELY),
    }


def test_a_kernel_that_speaks_later_takes_its_node_back() -> None:
    w = world()
    seen(w, [printed(n, 10) for n in NODES[:5]])
    found = seen(w, [xid("n03", 79, 310)], until=400)
    assert ("n03", Certainty.DECISIVE) in {(i.root.node, i.certainty) for i in found}


def test_kernels_that_speak_on_many_nodes_are_not_taken_for_output() -> None:
    found = seen(world(), [s for n in NODES[:6] for s in (printed(n, 10), xid(n, 79, 11))])
    assert not [i for i in found if i.root.part]


def test_two_tenants_are_two_questions() -> None:
    signals = [printed(n, 10, namespace=("team-a", "team-b")[i % 2]) for i, n in enumerate(NODES)]
    found = seen(world(), signals)
    assert {i.root.part for i in found} == {Part("job-output", "team-a"), Part("job-output", "team-b")}


def test_faults_of_the_hosts_that_are_printed_count_as_those_of_gpus_do() -> None:
    (incident,) = seen(world(), [of_pod(sign("node.memory", n, 10, "uncorrectable")) for n in NODES])
    assert incident.root.part == Part("job-output", "team-a")


@pytest.mark.parametrize("seed", range(3))
def test_the_order_does_not_matter(seed: int) -> None:
    signals = [xid("n03", 79, 9), *(printed(n, 10 + 0.1 * i) for i, n in enumerate(NODES))]
    straight = {(i.id, str(i.root)) for i in seen(world(), signals)}
    random.Random(seed).shuffle(signals)
    w = world()
    for one in signals:
        w.see(one)
    w.restart()
    w.pass_to(300)
    assert {(i.id, str(i.root)) for i in told(w)} == straight
