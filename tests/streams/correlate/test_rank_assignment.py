"""Ranks of pods of which the inventory knows none, and sources that contradict each other."""

from __future__ import annotations

import random
from dataclasses import replace

from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, JobFact
from streams.model.incident import Certainty, Incident
from streams.model.signal import Attribute, Severity, Signal, signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    GPUS,
    World,
    at,
    cluster,
    job,
    node_fact,
    pods,
    timeout,
    timeouts,
)


def unnumbered(nodes: list[str] = FOUR) -> list[Fact]:
    """A job whose pods say nothing of their ranks."""
    facts: list[Fact] = [node_fact(n) for n in nodes]
    return [
        *facts,
        JobFact(CLUSTER, job("llama"), at(-3000), pods=len(nodes)),
        *pods("llama", nodes, ranks=False),
    ]


def made(rank: int, pod: int, seconds: float = -2900, *, nranks: int = 32) -> Signal:
    """NCCL's line about a communicator of `nranks`, in the log of a pod."""
    entity = Entity(CLUSTER, pod=PodRef("train", f"llama-worker-{pod}"), rank=rank)
    attributes: dict[str, Attribute] = {
        "rank": rank,
        "nranks": nranks,
        "index": rank % GPUS,
        "pci": f"0000:{0x10 + rank % GPUS:02x}:00",
    }
    return signal(
        "job.rank", entity, severity=Severity.INFO, occurred_at=at(seconds), observed_at=at(seconds + 1),
        attributes=attributes,
    )  # fmt: skip


def told_by_pod(rank: int, pod: int) -> Signal:
    """A watchdog line in the log of a pod that its rank does not tell."""
    line = timeout("llama", rank, 600)
    return replace(line, entity=replace(line.entity, pod=PodRef("train", f"llama-worker-{pod}")))


def judged(facts: list[Fact], signals: list[Signal]) -> Incident:
    world = World(facts)
    world.see(*signals)
    world.pass_to(700)
    return world.only()


def test_tags_of_the_other_pods_leave_one_block_for_the_silent_one() -> None:
    incident = judged(unnumbered(), timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    assert (incident.root.node, incident.certainty) == ("n3", Certainty.DECISIVE)
    assert incident.facts["culprit_ranks"] == tuple(range(16, 24))


def test_pods_that_were_started_in_another_order_hold_what_their_lines_say() -> None:
    """The third pod holds ranks 0 to 7; rank 21 stands still, which is in the first."""
    order = {0: 2, 1: 1, 2: 0, 3: 3}
    signals = [told_by_pod(r, order[r // 8]) for r in range(32) if r != 21]
    incident = judged(unnumbered(), signals)
    assert (incident.root.node, incident.facts["culprit_ranks"]) == ("n1", (21,))


def test_nccls_own_lines_tell_a_silent_ranks_gpu() -> None:
    signals = [
        *(made(r, r // 8) for r in range(32)),
        *timeouts("llama", [r for r in range(32) if r != 21], 600),
    ]
    expected = judged(unnumbered(), signals)
    assert (expected.root.node, expected.facts["culprit_ranks"]) == ("n3", (21,))
    assert expected.facts["culprit_gpus"] == ("0000:15:00",)
    for seed in range(5):
        shuffled = [*signals, *signals[:7]]
        random.Random(seed).shuffle(shuffled)
        again = judged(unnumbered(), shuffled)
        assert (again.id, again.root, again.facts) == (expected.id, expected.root, expected.facts)


def test_ranks_of_smaller_communicators_are_not_taken_for_global_ones() -> None:
    signals = [made(r % 8, r // 8, nranks=8) for r in range(32)]
    incident = judged(
        unnumbered(), [*signals, *timeouts("llama", [r for r in range(32) if r // 8 != 2], 600)]
    )
    assert incident.facts["culprit_ranks"] == tuple(range(16, 24))


def test_two_sources_that_contradict_each_other_make_nothing_certain() -> None:
    facts = cluster({"llama": FOUR})
    silent = timeouts("llama", [r for r in range(32) if r // 8 != 2], 600)
    assert judged(facts, silent).certainty is Certainty.DECISIVE
    incident = judged(facts, [made(0, 2), *silent])
    assert (incident.root.node, incident.certainty) == ("n3", Certainty.LIKELY)
    doubt = next(c for c in incident.candidates if c.rule == "source of ranks")
    assert "NCCL's own lines tell 0" in doubt.reason


def test_ranks_outlive_the_retention_of_lines() -> None:
    """Four hours later a watchdog speaks that names no rank; what the silent pod holds is still known."""
    world = World(unnumbered())
    world.see(*(made(r, r // 8) for r in range(32)))
    world.pass_to(4 * 3600, step=60)
    world.restart()
    for pod in (0, 1, 3):
        entity = Entity(CLUSTER, pod=PodRef("train", f"llama-worker-{pod}"))
        said: dict[str, Attribute] = {"pg_rank": pod, "seq": 12, "pg": "9", "elapsed_ms": 600_009}
        world.see(
            signal(
                "nccl.timeout", entity, severity=Severity.ERROR, occurred_at=at(15_000), observed_at=at(15_001),
                attributes=said,
            )
        )  # fmt: skip
    world.pass_to(15_080)
    incident = world.only()
    assert (incident.root.node, incident.facts["culprit_ranks"]) == ("n3", tuple(range(16, 24)))
    assert len(incident.facts["culprit_gpus"]) == GPUS  # type: ignore[arg-type]


def bare(pod: int, rank: int, seq: int, ip: str = "") -> Signal:
    """A watchdog line without a process group, as the worker's own pod or a driver with the worker's address prints it."""
    line = timeout("llama", rank, 600, seq=seq)
    attributes: dict[str, Attribute] = {k: v for k, v in line.attributes.items() if k != "pg"}
    speaker = PodRef("train", f"llama-worker-{0 if ip else pod}")
    attributes |= {"ip": ip} if ip else {}
    return replace(
        line,
        id=f"{line.id}-{pod}-{rank}",
        entity=replace(line.entity, pod=speaker),
        attributes=attributes,
    )


def test_a_number_that_two_pods_give_their_ranks_is_no_rank_of_the_job() -> None:
    """Place 0 of a reduce-scatter and place 0 of a later all-reduce: neither is rank 0, nor behind the other."""
    for ips in (("", ""), ("10.128.0.1", "10.128.0.2")):
        lines = [bare(0, 0, 100, ips[0]), bare(1, 0, 400, ips[1]), bare(1, 3, 400, ips[1])]
        incident = judged(unnumbered(), lines)
        assert incident.root.node is None
        assert "behind all others" not in incident.reason
