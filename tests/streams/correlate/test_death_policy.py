"""Processes that end take their peers' connections along: what they ended of is the cause, and no node is blamed for it."""

from __future__ import annotations

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.facts import JobFact
from streams.model.incident import Certainty
from streams.model.signal import Attribute, Severity, Signal, signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    failed,
    job,
    not_ready,
    pause,
    pods,
    progress,
    sign,
    timeouts,
    xid,
)


def said(kind: str, pod: int, seconds: float, **attributes: Attribute) -> Signal:
    entity = Entity(CLUSTER, pod=PodRef("train", f"llama-worker-{pod}"))
    return signal(
        kind, entity, severity=Severity.ERROR, occurred_at=at(seconds), observed_at=at(seconds + 0.5), attributes=attributes
    )  # fmt: skip


def closed(pod: int, peer: int, seconds: float) -> Signal:
    return said("nccl.error", pod, seconds, subtype="remote_closed", peer=f"llama-worker-{peer}")


def unanswered(pod: int, peer: int, seconds: float) -> Signal:
    return said(
        "nccl.error", pod, seconds, subtype="ib_completion", status=12, vendor_err=129, peer=f"llama-worker-{peer}",
        device="mlx5_3",
    )  # fmt: skip


@pytest.mark.parametrize("exit_after", [-1.0, 0.5, 4.0])
def test_a_process_that_fails_explains_the_connections_it_closed(exit_after: float) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(
        said("job.failed", 1, 10 + exit_after, subtype="process_exit", exitcode=1),
        closed(0, 1, 10),
        closed(2, 1, 10.5),
        closed(3, 2, 12),
    )
    world.pass_to(160)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.root.node) == ("application", job("llama"), None)


def test_a_crash_that_only_mpirun_tells_of_is_the_jobs_own() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(said("job.failed", 0, 12, subtype="process_exit", signal="11", rank=10), closed(0, 1, 10))
    world.pass_to(140)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.root.node) == ("application", job("llama"), None)
    assert "signal 11" in incident.reason


def test_a_process_that_was_killed_says_nothing_of_its_job() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(said("job.failed", 0, 12, subtype="process_exit", signal="9", rank=10))
    world.pass_to(140)
    assert world.incidents() == []


def test_closed_connections_alone_name_nobody() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(closed(0, 1, 10), closed(2, 1, 10.5), closed(3, 2, 12))
    world.pass_to(140)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == ("hang", None, Certainty.WEAK)
    assert incident.facts["suspect_nodes"] == ("n2",)


def test_a_job_that_is_ended_on_purpose_and_starts_again_is_no_incident() -> None:
    """A node is emptied for its maintenance: its pod ends, the others find it gone, the job runs elsewhere a minute later."""
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(closed(0, 1, 10), closed(2, 1, 10.5))
    for old, new in zip(
        pods("llama", FOUR), pods("llama", ["n1", "n9", "n3", "n4"], since=90, attempt=2), strict=True
    ):
        world.gone(old, 20)
        world.tell(new)
    world.see(not_ready("n2", 190))
    world.pass_to(600)
    assert [i.family for i in world.incidents()] == ["node_down"]


@pytest.mark.parametrize("reason", ["Segmentation fault", "Bus error"])
def test_ranks_that_wait_for_a_process_of_which_a_shell_says_that_it_crashed_accuse_no_node(
    reason: str,
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 2, 0, reason=reason, pid=4411))
    world.pass_to(600, step=5)
    world.see(*timeouts("llama", [r for r in range(32) if r != 20], 601))
    world.pass_to(900, step=5)
    assert {(i.family, i.root.job) for i in world.published.values()} == {("application", job("llama"))}


@pytest.mark.parametrize("deleted_at", [8, -60, 17])
def test_what_the_processes_of_a_deleted_job_leave_is_no_incident(deleted_at: float) -> None:
    world = World(cluster({"llama": FOUR}))
    world.gone(JobFact(CLUSTER, job("llama"), at(-3000), pods=4, world=32), deleted_at)
    world.see(closed(0, 1, 10), closed(2, 1, 10.5))
    world.pass_to(600)
    assert world.incidents() == []


def test_what_a_deleted_job_left_is_none_either_when_its_deletion_is_forgotten() -> None:
    world = World(cluster({"llama": FOUR}))
    world.gone(JobFact(CLUSTER, job("llama"), at(-3000), pods=4, world=32), 0)
    world.see(closed(0, 1, 5), *(closed(2, 1, 10 + 10 * i) for i in range(7)))
    world.pass_to(2900, step=5)
    assert not world.revisions


def test_a_job_that_stands_again_under_its_name_was_not_deleted_for_good() -> None:
    world = World(cluster({"llama": FOUR}))
    world.gone(JobFact(CLUSTER, job("llama"), at(-3000), pods=4, world=32), 0)
    for old, new in zip(pods("llama", FOUR), pods("llama", FOUR, since=30, attempt=2), strict=True):
        world.gone(old, 20)
        world.tell(new)
    world.see(closed(0, 1, 100), closed(2, 1, 100.5))
    world.pass_to(600)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("hang", None)]


def test_a_rank_that_speaks_late_saves_its_node() -> None:
    """Its line is half a minute behind the others': nothing was told of its node in the meantime."""
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r != 20], 600))
    world.pass_to(635)
    assert world.incidents() == []
    world.see(*timeouts("llama", [20], 604))
    world.pass_to(800)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("hang", None)]
    assert {i.family for i in world.published.values()} == {"hang"}


def test_connections_that_fail_towards_a_node_that_goes_away_are_told_of_its_end() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(unanswered(0, 1, 8), unanswered(2, 1, 8.5))
    world.pass_to(40)
    world.see(not_ready("n2", 45))
    world.pass_to(200)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("node_down", "n2")


def test_connections_that_fail_towards_a_node_that_speaks_accuse_its_nic_but_are_no_proof() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(unanswered(0, 1, 8), unanswered(2, 1, 8.5), unanswered(1, 0, 9))
    world.pass_to(80)
    incident = world.only()
    assert (incident.root.node, incident.certainty) == ("n2", Certainty.LIKELY)
    assert incident.facts["nic"] == "mlx5_3"
    assert len(incident.nodes) == 4


def test_weak_evidence_on_one_of_several_suspected_nodes_takes_the_hang_and_stays_weak() -> None:
    world = World(cluster({"llama": FOUR}))
    sick = signal(
        "node.kernel", Entity(CLUSTER, node="n2"), severity=Severity.ERROR, occurred_at=at(0), observed_at=at(1),
        attributes={"subtype": "soft_lockup"},
    )  # fmt: skip
    world.see(sick, *timeouts("llama", range(4), 600))
    world.pass_to(800)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == ("host_fault", "n2", Certainty.WEAK)
    assert incident.jobs == (job("llama"),)


def test_a_likely_cause_on_one_node_gives_way_to_proof_that_all_wait_for_another() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(
        pause("n1", "mlx5_0", "sent", 5),
        *timeouts("llama", [r for r in range(32) if r // 8 != 2], 600),
    )
    world.pass_to(800)
    assert {(i.family, i.root.node) for i in world.incidents()} == {
        ("pfc_storm", "n1"),
        ("silent_node", "n3"),
    }


def restarted(world: World, again: float, goes_on: float | None, until: float) -> None:
    """The job's pods end; its controller makes new ones, and they report progress, or not."""
    world.end("llama", FOUR, 14)
    world.pass_to(again, step=10)
    for pod in pods("llama", FOUR, since=again, attempt=2):
        world.tell(pod)
    if goes_on is not None:
        world.pass_to(goes_on, step=10)
        world.see(progress("llama", goes_on, 2))
    world.pass_to(until, step=10)


CLOSED = [closed(0, 1, 10), closed(2, 1, 10.5), closed(3, 1, 12)]
FAINT: dict[str, list[Signal]] = {
    "a code on one node, and peers": [xid("n2", 31, 9), *CLOSED],
    "a code on one node": [xid("n2", 13, 9)],
}


@pytest.mark.parametrize("name", FAINT)
@pytest.mark.parametrize(("goes_on", "told"), [(400, False), (None, True)], ids=["it helps", "it does not"])
def test_a_process_that_ended_is_no_incident_where_its_job_is_tried_again_and_goes_on(
    name: str, goes_on: float | None, told: bool
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(progress("llama", -100, 1), *FAINT[name])
    restarted(world, 60, goes_on, 1500)
    assert bool(world.revisions) is told


def test_what_only_forgetting_would_make_an_incident_is_none() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 13, 9))
    for seconds in range(30, 9000, 30):
        world.pass_to(seconds)
        world.see(progress("llama", seconds, seconds))
    assert world.revisions == []


def test_a_process_that_the_kernel_killed_is_told_also_where_its_job_goes_on_in_the_same_pods() -> None:
    world = World(cluster({"llama": FOUR}))
    killed = sign("node.memory", "n2", 9, "oom", process="pt_main_thread", pod_uid="llama-1-1")
    world.see(progress("llama", -100, 1), xid("n2", 13, -180), killed, *CLOSED)
    world.pass_to(70)
    world.see(progress("llama", 70, 2))
    world.pass_to(400, step=10)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.fault_at) == ("application", job("llama"), at(9))


def test_a_mismatch_that_comes_back_with_every_try_is_one_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    for attempt in (1, 2, 3):
        begin = 1800.0 * attempt
        world.pass_to(begin, step=20)
        for pod in pods("llama", FOUR, since=begin, attempt=attempt):
            world.tell(pod)
        world.pass_to(begin + 300, step=20)
        world.see(progress("llama", begin + 300, 10 * attempt))
        world.pass_to(begin + 1000, step=20)
        world.see(*timeouts("llama", range(16), begin + 1000, waited=600, op="ALLGATHER", seq=50 + attempt))
        world.see(
            *timeouts("llama", range(16, 32), begin + 1000, waited=600, op="ALLREDUCE", seq=50 + attempt)
        )
        world.end("llama", FOUR, begin + 1010)
    world.pass_to(8000, step=20)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.facts["crashes"]) == ("application", job("llama"), 3)


APART = {
    "the same program": (53, 16, 1900, {"llama", "llama-2"}, 1),
    "at another collective": (54, 16, 1900, {"llama"}, 2),
    "by other ranks, still the same collectives": (53, 8, 1900, {"llama", "llama-2"}, 1),
    "hours later": (53, 16, 6000, {"llama"}, 2),
    "side by side": (53, 16, 1005, {"llama"}, 2),
}


@pytest.mark.parametrize(
    ("name", "backwards"), [*((name, False) for name in APART), *((name, True) for name in list(APART)[:3])]
)
def test_a_program_that_is_submitted_anew_and_fails_at_the_same_collectives_is_one_incident(
    name: str, backwards: bool
) -> None:
    """Under another name, on other nodes, whichever job is read first."""
    seq, gatherers, again, jobs, count = APART[name]
    others = ["m1", "m2", "m3", "m4"]
    world = World(cluster({"llama": FOUR, "llama-2": others}))
    runs = [
        [
            *timeouts(job_name, range(first), end, waited=600, op="ALLGATHER", seq=number),
            *timeouts(job_name, range(first, 32), end, waited=600, op="ALLREDUCE", seq=number),
        ]
        for job_name, first, end, number in (("llama", 16, 1000, 53), ("llama-2", gatherers, again, seq))
    ]
    for run in reversed(runs) if backwards else runs:
        world.pass_to((run[0].observed_at - at(0)).total_seconds(), step=20)
        world.see(*run)
    world.pass_to(again + 900, step=20)
    found = sorted(
        (i for i in world.incidents() if i.merged_into is None and not i.state.is_over),
        key=lambda i: i.fault_at,
    )
    assert len(found) == count
    assert ({j.name for j in found[0].jobs}, found[0].root.job) == (jobs, job("llama"))
