"""A node of Slurm that ends whatever it is given: the third small job in a row accuses it, unless something else ends jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from streams.detect import Detector
from streams.detect.deduplication import RollUp
from streams.model.facts import Fact
from streams.model.incident import Certainty
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, at, node_fact

NODES = [f"n{i}" for i in range(1, 9)]
FACTS: tuple[Fact, ...] = tuple(map(node_fact, NODES))
FAILS = "WEXITSTATUS 1"


@dataclass(frozen=True)
class Job:
    """A small job: its number, its node, when it starts and after how long it ends, and how. Without `ran` it runs on."""

    number: str
    node: str
    start: float
    ran: float | None = None
    how: str = FAILS
    uid: int | None = None
    partition: str = "gpu"

    def lines(self) -> Iterable[tuple[float, str, str]]:
        """When which host logs what."""
        where = f"NodeList={self.node}"
        yield (
            self.start,
            "ctl",
            f"sched: Allocate JobId={self.number} {where} #CPUs=16 Partition={self.partition}",
        )
        if self.uid is not None:
            yield self.start, self.node, f"Launching batch job {self.number} for UID {self.uid}"
        if self.ran is None:
            return
        over = self.start + self.ran
        if self.uid is not None:
            yield over - 1, self.node, f"[{self.number}.batch] done with job"
        if self.how == "missing":
            yield (
                over,
                "ctl",
                f"Batch JobId={self.number} missing from batch node {self.node} (not found BatchStartTime after startup)",
            )
        elif self.how.startswith(("REQUEST", "Time", "Preempted")):
            yield over - 1, "ctl", self.how.format(self.number)
            yield over, "ctl", f"_job_complete: JobId={self.number} WTERMSIG 15"
        else:
            yield over, "ctl", f"_job_complete: JobId={self.number} {self.how}"
            yield over, "ctl", f"_job_complete: JobId={self.number} done"


def signals(jobs: Iterable[Job], more: Iterable[tuple[float, str, str]] = ()) -> list[Signal]:
    """What the detector makes of the logs of the controller and of the nodes' daemons, each in a partition of its own."""
    found: list[Signal] = []
    lines = sorted([*(line for one in jobs for line in one.lines()), *more])
    detectors: dict[str, tuple[Detector, RollUp]] = {}
    for offset, (seconds, host, words) in enumerate(lines):
        daemon = "slurmctld" if host == "ctl" else "slurmd"
        text = f"{at(seconds).isoformat()} {host} {daemon}[7]: {words}"
        detector, rollup = detectors.setdefault(host, (Detector(CLUSTER), RollUp()))
        record = RawRecord(
            "raw.node-logs",
            NODES.index(host) + 1 if host in NODES else 0,
            offset,
            at(seconds),
            host.encode(),
            text.encode(),
        )
        found += detector.read(record, rollup).signals
    return found


def told(
    jobs: Iterable[Job], seed: int | None = None, facts: Sequence[Fact] = FACTS, until: float = 1500
) -> World:
    world = World(facts)
    world.play(signals(jobs), until, seed)
    return world


ELSEWHERE = [Job(str(100 + i), node, 60 + 20 * i) for i, node in enumerate(NODES[:-1])]
"""Jobs that are started on the other nodes meanwhile, and run."""
EATEN = [Job(str(5000 + 300 * i), "n8", 30 + 60 * i, 5) for i in range(3)]
"""Jobs of three people that one node ends."""


def test_the_third_small_job_that_a_node_ends_accuses_it() -> None:
    incident = told([*ELSEWHERE, *EATEN]).only()
    assert (incident.family, incident.root.node, incident.certainty) == (
        "platform_fault",
        "n8",
        Certainty.WEAK,
    )
    assert [job.name for job in incident.jobs] == ["5000", "5300", "5600"]
    assert "it ends small jobs within minutes of their start" in incident.reason
    assert not told([*ELSEWHERE, *EATEN[:2]]).incidents()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_in_whatever_order_signals_arrive(seed: int) -> None:
    assert told([*ELSEWHERE, *EATEN], seed).only().root.node == "n8"


@pytest.mark.parametrize("how", ["WEXITSTATUS 127", "WTERMSIG 11", "missing"])
def test_however_they_fail(how: str) -> None:
    assert told([*ELSEWHERE, *(replace(one, how=how) for one in EATEN)]).only().root.node == "n8"


def test_users_that_the_nodes_daemon_names_tell_neighbouring_numbers_apart() -> None:
    close = [replace(one, number=str(5000 + i)) for i, one in enumerate(EATEN)]
    assert not told([*ELSEWHERE, *close]).incidents()
    assert not told([*ELSEWHERE, *(replace(one, uid=1000) for one in EATEN)]).incidents()
    several = [replace(one, uid=1000 + i % 2) for i, one in enumerate(close)]
    assert told([*ELSEWHERE, *several]).only().root.node == "n8"


def test_an_array_that_fails_there_alone_and_goes_well_elsewhere_accuses_it() -> None:
    tasks = [replace(one, number=f"700_{i}") for i, one in enumerate(EATEN)]
    assert not told([*ELSEWHERE, *tasks]).incidents()
    well = Job("700_9", "n2", 60, 40, "WEXITSTATUS 0")
    assert told([*ELSEWHERE, *tasks, well]).only().root.node == "n8"


def test_a_node_whose_jobs_go_well_again_is_over() -> None:
    later = Job("9000", "n8", 400, 30, "WEXITSTATUS 0")
    incident = told([*ELSEWHERE, *EATEN, later]).only()
    assert incident.state.is_over


def test_the_alias_of_a_node_under_kubernetes_is_that_node() -> None:
    facts = [node_fact("k8s-1", aliases=("n8",)), *FACTS[:-1]]
    assert told([*ELSEWHERE, *EATEN], facts=facts).only().root.node == "k8s-1"


def test_nodes_that_slurm_alone_knows_are_accused_as_well() -> None:
    assert told([*ELSEWHERE, *EATEN], facts=()).only().root.node == "n8"


def test_it_does_not_change_with_each_further_job() -> None:
    more = [Job(str(9000 + 300 * i), "n8", 300 + 60 * i, 5) for i in range(9)]
    incident = told([*ELSEWHERE, *EATEN, *more]).only()
    assert incident.revision <= 12


ASKED = ["REQUEST_KILL_JOB JobId={} uid 1000", "Time limit exhausted for JobId={}", "Preempted JobId={}"]
QUIET = {
    "jobs that ran for long": [replace(one, ran=900) for one in EATEN],
    "one that went well in between": [*EATEN, Job("77", "n8", 100, 20, "WEXITSTATUS 0")],
    "interactive jobs that end well": [replace(one, how="WEXITSTATUS 0") for one in EATEN],
    "interrupted at the keyboard": [replace(one, how="WEXITSTATUS 130") for one in EATEN],
    "out of their own memory": [replace(one, how="OOM failure") for one in EATEN],
    "put back into the queue": [replace(one, how="requeued") for one in EATEN],
    **{f"asked for: {how[:12]}": [replace(one, how=how) for one in EATEN] for how in ASKED},
    "one program, submitted over and over": [Job(str(5000 + 2 * i), "n8", 30 + 60 * i, 5) for i in range(40)],
    "a whole array": [Job(f"700_{i}", "n8", 30 + 20 * i, 5) for i in range(60)],
}


@pytest.mark.parametrize("background", QUIET)
def test_what_ends_early_for_its_own_reasons_accuses_nobody(background: str) -> None:
    assert not told([*ELSEWHERE, *QUIET[background]]).incidents()


def test_an_outage_that_ends_jobs_wherever_they_are_accuses_no_node() -> None:
    """A storage: all jobs that are started end. A licence: those that need one do, on several nodes."""
    everywhere = [
        Job(str(5000 + 300 * i), NODES[-1 - i % 4], 30 + 10 * i, 5, uid=1000 + i) for i in range(40)
    ]
    assert not told([*(Job(str(100 + i), n, -3000) for i, n in enumerate(NODES)), *everywhere]).incidents()
    assert not told([*ELSEWHERE, *everywhere]).incidents()


def test_what_went_well_before_says_nothing_where_no_job_starts_elsewhere() -> None:
    running = [Job(str(100 + i), node, -3000) for i, node in enumerate(NODES[:-1])]
    assert not told([*running, *EATEN]).incidents()


def test_a_day_of_many_users_whose_programs_fail_here_and_there_is_silent() -> None:
    jobs = [
        Job(
            str(1000 + 17 * i),
            NODES[i * 5 % 8],
            7 * i,
            5 + i % 90,
            FAILS if i % 3 == 0 else "WEXITSTATUS 0",
            uid=i % 23,
        )
        for i in range(600)
    ]
    assert not told(jobs, until=5000).incidents()


def test_jobs_that_end_while_somebody_works_on_the_node_accuse_nobody() -> None:
    drained = (10.0, "ctl", "update_node: node n8 state set to DRAINED")
    world = World(FACTS)
    world.play(signals([*ELSEWHERE, *EATEN], [drained]), 1500)
    assert not world.incidents()
