"""A host on which job after job fails first is named the third time, though its log is empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.facts import Fact, PodFact
from streams.model.incident import Certainty, Incident
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    _signal,
    at,
    cluster,
    failed,
    pods,
    progress,
    sign,
)

LEMON = "n7"
OTHERS = [f"m{i:02d}" for i in range(24)]
JOBS: dict[str, Sequence[str]] = {
    f"job{i}": [*OTHERS[3 * i : 3 * i + 2], LEMON, OTHERS[3 * i + 2]] for i in range(6)
}
HOUR = 3600.0


def facts() -> list[Fact]:
    return cluster(JOBS, spare=OTHERS)


def dies(name: str, first: int, seconds: float) -> list[Signal]:
    """One pod's process ends, the others' follow within seconds."""
    rest = [p for p in range(4) if p != first]
    found = [failed(name, first, seconds, exitcode="1")]
    return [*found, *(failed(name, p, seconds + 3 + i, exitcode="1") for i, p in enumerate(rest))]


def told(stories: Sequence[tuple[str, int]], world: World | None = None, *, restarts: bool = False) -> World:
    world = world or World(facts())
    for number, (name, first) in enumerate(stories):
        for signal in dies(name, first, number * HOUR):
            world.see(signal)
        world.pass_to(number * HOUR + 600, step=20)
        if restarts:
            world.restart()
    world.pass_to(len(stories) * HOUR, step=60)
    return world


def accused(world: World) -> list[Incident]:
    return [i for i in world.incidents() if i.root.node is not None]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_third_job_that_fails_first_on_a_host_names_it(restarts: bool) -> None:
    two = told([("job0", 2), ("job1", 2)], restarts=restarts)
    assert accused(two) == []
    world = told([("job0", 2), ("job1", 2), ("job2", 2)], restarts=restarts)
    (lemon,) = accused(world)
    assert (lemon.root.node, lemon.certainty) == (LEMON, Certainty.LIKELY)
    assert "so did train/job0, train/job1" in lemon.reason
    assert "train/job2 ended: it failed first on n7" in lemon.reason
    assert len([i for i in world.incidents() if i.fault_at >= at(2 * HOUR)]) == 1, "told once"


@pytest.mark.parametrize("restarts", [False, True])
def test_failures_too_small_for_an_incident_count_for_their_host(restarts: bool) -> None:
    small = World(cluster({name: nodes[1:] for name, nodes in JOBS.items()}, spare=OTHERS))
    for number, name in enumerate(["job0", "job1", "job2"]):
        assert small.incidents() == []
        for pod, after in ((1, 0), (0, 3), (2, 4)):
            small.see(failed(name, pod, number * HOUR + after, exitcode="1"))
        small.pass_to((number + 1) * HOUR, step=60)
        if restarts:
            small.restart()
    lemon = small.only()
    assert (lemon.root.node, lemon.certainty) == (LEMON, Certainty.LIKELY)
    assert "so did train/job0, train/job1" in lemon.reason


QUIET = {
    "the same job on the same nodes": [("job0", 2)] * 4,
    "another host each time": [("job0", 2), ("job1", 1), ("job2", 3), ("job3", 1)],
    "the host of rank 0": [("job0", 0), ("job1", 0), ("job2", 0)],
}


@pytest.mark.parametrize("name", QUIET)
def test_what_follows_the_program_names_no_host(name: str) -> None:
    assert accused(told(QUIET[name])) == []


def test_where_jobs_die_on_all_hosts_none_is_named() -> None:
    """A small cluster with much trouble in its programs: each host is the first at some time."""
    jobs: dict[str, Sequence[str]] = {f"job{i}": OTHERS[:4] for i in range(12)}
    world = told([(f"job{i}", 1 + i % 3) for i in range(12)], World(cluster(jobs)))
    assert accused(world) == []


def test_hosts_that_fail_together_prove_nothing() -> None:
    world = World(facts())
    for number in range(3):
        for pod in range(4):
            world.see(failed(f"job{number}", pod, number * HOUR + 0.1 * pod, exitcode="1"))
        world.pass_to(number * HOUR + 600, step=20)
    assert accused(world) == []


def test_an_earlier_death_that_is_told_late_names_it_as_well() -> None:
    world = World(facts())
    for name, start in (("job0", 0.0), ("job2", 900.0)):
        for signal in dies(name, 2, start):
            world.see(signal)
        world.pass_to(start + 200, step=10)
    assert accused(world) == []
    world.see(*dies("job1", 2, 600.0))
    world.pass_to(1500, step=10)
    (lemon,) = accused(world)
    assert "train/job2 ended: it failed first on n7" in lemon.reason


def over(pod: PodFact, seconds: float) -> PodFact:
    return replace(pod, phase="Failed", ready=False, ended_at=at(seconds), observed_at=at(seconds + 1))


@pytest.mark.parametrize("lead", [9.0, 1.0])
@pytest.mark.parametrize("late", [False, True])
def test_a_pod_that_ends_without_a_word_is_first_by_the_inventory(lead: float, late: bool) -> None:
    world = World(facts())
    for number in range(3):
        name, start = f"job{number}", number * HOUR
        mine = [over(p, start + (0 if i == 2 else lead)) for i, p in enumerate(pods(name, JOBS[name]))]
        words = [failed(name, p, start + lead - 0.5, exitcode="-6") for p in (0, 1, 3)]
        for pod in [] if late else mine:
            world.tell(pod)
        for word in words:
            world.see(word)
        for pod in mine if late else []:
            world.tell(pod)
        world.pass_to(start + 600, step=20)
    assert {i.root.node for i in accused(world)} == ({LEMON} if lead > 2 else set())


def restarted(firsts: Sequence[int]) -> World:
    """One program that fails in the same way each time, on other nodes but for the third of them."""
    sets = [[*OTHERS[3 * i : 3 * i + 2], LEMON, OTHERS[3 * i + 2]] for i in range(len(firsts))]
    world = World(cluster({"job0": sets[0]}, spare=[*OTHERS, LEMON]))
    for number, first in enumerate(firsts):
        start = number * 1200.0
        for pod in pods("job0", sets[number], since=start - 600, attempt=number + 1) if number else []:
            world.tell(pod)
        for signal in dies("job0", first, start):
            world.see(signal)
        world.pass_to(start + 300, step=20)
    return world


def test_a_program_that_fails_first_on_one_host_whatever_the_others_are_names_it_and_is_told_with_it() -> (
    None
):
    assert accused(restarted([2, 2])) == []
    world = restarted([2, 2, 2])
    (lemon,) = accused(world)
    assert (lemon.root.node, lemon.certainty) == (LEMON, Certainty.LIKELY)
    assert world.only() == lemon, "its earlier crashes are part of that"


def test_a_program_that_fails_first_on_many_hosts_names_none() -> None:
    assert accused(restarted([1, 3, 2, 1, 3, 2, 1, 2])) == []


Way = dict[str, Any]
LAUNCH: Way = {"subtype": "cuda_error", "reason": "unspecified launch failure"}
BLAS: Way = {"subtype": "cuda_error", "reason": "CUBLAS_STATUS_EXECUTION_FAILED"}
SEGV: Way = {"exitcode": "-11"}
ASSERT: Way = {"exitcode": "1"}


def crashes(ways: Sequence[Way], pod: int, local: int) -> World:
    """A job that crashes each time first in the same pod and is started again on the same nodes; its peers find it gone."""
    world, nodes = World(cluster({"job0": JOBS["job0"]})), JOBS["job0"]
    for number, way in enumerate(ways):
        start, attempt = number * 900.0, number + 1
        for fact in pods("job0", nodes, since=start - 600, attempt=attempt) if number else []:
            world.tell(fact)
        world.see(failed("job0", pod, start, rank=8 * pod + local, **way))
        for peer in (p for p in range(len(nodes)) if p != pod):
            gone: Way = {"subtype": "remote_closed", "peer": f"job0-worker-{pod}"}
            world.see(failed("job0", peer, start + 0.5, kind="nccl.error", **gone))
            world.see(failed("job0", peer, start + 1, exitcode="-6", local_rank=0))
        world.pass_to(start + 600, step=20)
    return world


@pytest.mark.parametrize("pod", [2, 0], ids=["any host", "the host of rank 0"])
@pytest.mark.parametrize("ways", [(LAUNCH, BLAS, SEGV), (SEGV, LAUNCH, SEGV, BLAS)])
def test_one_program_that_crashes_in_several_ways_first_on_one_host_names_it(
    ways: Sequence[Way], pod: int
) -> None:
    world = crashes(ways, pod, local=3)
    lemon = world.only()
    assert (lemon.root.node, lemon.certainty) == (JOBS["job0"][pod], Certainty.LIKELY)
    assert lemon.reason.startswith(f"train/job0 ended: it failed first on {lemon.root.node}")


@pytest.mark.parametrize(
    ("ways", "pod", "local"),
    [((LAUNCH, LAUNCH, LAUNCH), 2, 3), ((ASSERT, SEGV, ASSERT), 2, 3), ((LAUNCH, BLAS, SEGV), 0, 0)],
    ids=["in one way", "twice by its own exception", "in rank 0"],
)
def test_a_program_that_repeats_itself_names_no_host_and_is_one_incident(
    ways: Sequence[Way], pod: int, local: int
) -> None:
    assert accused(crashes(ways, pod, local)) == []


def test_two_crashes_on_one_host_are_one_incident() -> None:
    twice = crashes((LAUNCH, BLAS), pod=2, local=3).only()
    assert "it failed 2 times on the same host, in several ways" in twice.reason


def test_of_hosts_that_end_at_one_time_the_one_that_crashed_is_first() -> None:
    world = World(facts())
    for number in range(3):
        name, start = f"job{number}", number * HOUR
        for pod in range(4):
            world.see(failed(name, pod, start + 0.1 * pod, exitcode="-11" if pod == 2 else "-6"))
        world.pass_to(start + 600, step=20)
    assert {i.root.node for i in accused(world)} == {LEMON}


def test_a_crash_is_where_its_rank_stands_whichever_host_writes_the_output() -> None:
    world = World(facts())
    for number in range(3):
        name, start = f"job{number}", number * HOUR
        world.see(failed(name, 0, start, rank=19, **LAUNCH))
        world.see(*(failed(name, pod, start + 5, exitcode="-6") for pod in (0, 1, 3)))
        world.pass_to(start + 600, step=20)
    assert {i.root.node for i in accused(world)} == {LEMON}


@pytest.mark.parametrize(("nodes", "constraint", "accused"), [
    (["n2"] * 3, "CONSTRAINT_NONE", True),
    (["n2"] * 2, "CONSTRAINT_NONE", False),
    (["n2"] * 3, "CONSTRAINT_MEMCG", False),
    (["n2", "n3", "n4"], "CONSTRAINT_NONE", False),
    (["n1"] * 3, "CONSTRAINT_NONE", False),
], ids=["its memory ran out", "only twice", "a limit of their own", "wherever it runs", "where rank 0 is"])  # fmt: skip
def test_a_host_whose_memory_runs_out_time_and_again_is_named_by_the_ranks_it_kills(
    nodes: list[str], constraint: str, accused: bool
) -> None:
    world = World(cluster({"llama": FOUR}))
    for i, node in enumerate(nodes):
        worker, seconds = FOUR.index(node), 1200 * i
        world.pass_to(seconds, step=10)
        uid = f"llama-{worker}-1"
        world.see(
            sign("node.memory", node, seconds, "oom", process="python", pod_uid=uid, constraint=constraint)
        )
        world.see(failed("llama", worker, seconds + 2, exitcode=-9))
        for later in (400, 800):
            world.see(progress("llama", seconds + later, 100 * i + later))
    world.pass_to(1200 * len(nodes) + 300, step=10)
    named = [i for i in world.incidents() if i.root.node is not None]
    assert [i.root.node for i in named] == (["n2"] if accused else [])
    assert all("ran out as a whole" in i.reason for i in named)


WAYS = ("unspecified launch failure", "an illegal instruction was encountered", "misaligned address")


def launched(*, told_ranks: bool) -> World:
    """A job whose launcher, a pod without GPUs beside rank 0, prints what all processes say: rank 17 crashes three times."""
    nodes = ["w0", "w1", "w2", "w3"]
    launcher = replace(pods("mpi", ["w0"], ranks=False)[0], name="mpi-launcher", uid="mpi-launcher", gpus=0)
    world = World([*cluster({}, spare=nodes), *pods("mpi", nodes, ranks=False), launcher])
    pod = PodRef("train", "mpi-launcher")
    for number, reason in enumerate(WAYS):
        begin = number * HOUR
        for rank in range(32) if told_ranks else ():
            words: dict[str, Attribute] = {
                "rank": rank, "nranks": 32, "index": rank % 8, "host": f"mpi-worker-{rank // 8}",
            }  # fmt: skip
            world.see(_signal("job.rank", Entity(CLUSTER, pod=pod, rank=rank), begin, words))
        world.see(
            _signal(
                "job.failed",
                Entity(CLUSTER, node="w0", pod=pod, rank=17),
                begin + 60,
                {"subtype": "cuda_error", "reason": reason, "rank": 17},
            )
        )
        world.pass_to(begin + HOUR - 10, step=30)
    return world


def test_a_host_on_which_only_the_launcher_stands_is_not_accused_of_what_it_prints() -> None:
    assert accused(launched(told_ranks=False)) == []


def test_what_a_launcher_prints_counts_on_the_host_of_its_rank() -> None:
    assert {i.root.node for i in accused(launched(told_ranks=True))} == {"w2"}


def on(nodes: dict[str, Sequence[str]]) -> World:
    """Jobs one after the other, each of which ends first on its host `n7`."""
    world = World(cluster(nodes, spare=OTHERS))
    for number, (name, there) in enumerate(nodes.items()):
        first = list(there).index(LEMON)
        world.see(failed(name, first, number * HOUR, exitcode="1"))
        rest = [p for p in range(len(there)) if p != first]
        world.see(*(failed(name, p, number * HOUR + 3 + i, exitcode="1") for i, p in enumerate(rest)))
        world.pass_to((number + 1) * HOUR, step=60)
    return world


ON_FOUR = [*OTHERS[:2], LEMON, OTHERS[2]]


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ({f"probe-{i}": ON_FOUR for i in (1, 2, 3)}, False),
        ({"llama-a": ON_FOUR, "llama-b": ON_FOUR, "llama-b-retry2": ON_FOUR}, False),
        ({f"probe-{i}": [OTHERS[i], LEMON] for i in (1, 2, 3)}, False),
        ({"llama": ON_FOUR, "bert": ON_FOUR, "whisper": ON_FOUR}, True),
        ({"llama": [OTHERS[0], LEMON], "bert": [OTHERS[1], LEMON], "whisper": [OTHERS[2], LEMON]}, True),
    ],
    ids=["numbered", "tried again", "of two hosts", "unlike programs", "unlike programs of two hosts"],
)
def test_runs_of_one_program_on_the_nodes_that_somebody_has_are_one_job(
    nodes: dict[str, Sequence[str]], named: bool
) -> None:
    assert [i.root.node for i in accused(on(nodes))] == ([LEMON] if named else [])


def of_slurm(*jobs: tuple[str, str, float]) -> World:
    """Jobs of Slurm (number, hosts, seconds), of each of which the last host's rank ends first."""
    world = World([])
    for name, hosts, begin in jobs:
        given: dict[str, Attribute] = {"subtype": "running", "hosts": hosts, "gpus": 8}
        place = Entity(CLUSTER, job=JobRef(SLURM_JOB, "", name))
        world.see(_signal("job.allocation", place, begin, given))
        last = Entity(CLUSTER, node="k9", pod=PodRef(SLURM, name))
        world.see(_signal("job.failed", last, begin + 60, {"subtype": "process_exit", "exitcode": 1}))
        world.pass_to(begin + 70, step=10)
        ended: dict[str, Attribute] = {"subtype": "ended", "exitcode": "1"}
        world.see(_signal("job.allocation", place, begin + 72, ended))
        world.pass_to(begin + 900, step=30)
    return world


@pytest.mark.parametrize(
    ("jobs", "named"),
    [
        ([("700", "k[8-9]", 0), ("701", "k[8-9]", 1000), ("702", "k[8-9]", 2000)], False),
        ([("700", "k[8-9]", 0), ("950", "k[8-9]", 1000), ("1400", "k[8-9]", 2000)], False),
        ([("700_1", "k[7-9]", 0), ("700_2", "k[5-6],k9", 8000), ("700_8", "k[3-4],k9", 16000)], False),
        ([("700", "k[7-9]", 0), ("950", "k[5-6],k9", 8000), ("1400", "k[3-4],k9", 16000)], True),
        ([("700", "k[8-9]", 0), ("950", "k[8-9]", 8000), ("1400", "k[8-9]", 16000)], True),
    ],
    ids=[
        "one after the other",
        "in one session",
        "one array",
        "others' jobs",
        "others' jobs on the same nodes",
    ],
)
def test_jobs_of_slurm_that_one_person_starts_on_one_pair_of_nodes_name_none(
    jobs: Sequence[tuple[str, str, float]], named: bool
) -> None:
    assert [i.root.node for i in accused(of_slurm(*jobs))] == (["k9"] if named else [])
