"""Everything that Faultline does to nodes and jobs of Slurm, on a real slurmctld with real slurmds, by its commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    NoLease,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from connectors.slurm.commands import Commands
from connectors.slurm.connector import Slurm
from connectors.slurm.watch import SlurmWatch
from runbooks.engine.guardrails.cordoned_nodes import is_held
from runbooks.engine.run.plan import context_of, plan
from streams.inventory.cluster_view import ClusterView
from streams.inventory.slurm import SlurmFacts
from streams.model.entity import SLURM_JOB, Entity, JobRef
from streams.model.errors import Fenced
from streams.model.run import Mode
from streams.model.watch import FactsListed, WatchEvent
from tests.connectors.slurm.worlds import Died, DiesAt, carried_out, on_job, on_node, slurm_of, taken_back
from tests.contract.case import when_sent
from tests.runbooks.scenes import LIBRARY, incident
from tests.testbed.slurm import SlurmCluster
from tests.testbed.waiting import eventually, until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with SlurmCluster.running(nodes=3) as running:
        yield running


@pytest.fixture
async def slurm(cluster: SlurmCluster) -> AsyncIterator[Slurm]:
    """A connector; afterwards every node is in service, nothing runs and no mark is left."""
    yield slurm_of(api_of(cluster))
    for job in cluster.jobs().values():
        if not job.ended:
            cluster.run("scancel", str(job.id))
    for name, node in cluster.nodes().items():
        if node.drained:
            cluster.run("scontrol", "update", f"NodeName={name}", "State=UNDRAIN")
        if node.comment:
            cluster.run("scontrol", "update", f"NodeName={name}", "Comment=")
    until(
        lambda: all(node.states == {"IDLE"} for node in cluster.nodes().values()), "all nodes are idle again"
    )


def api_of(cluster: SlurmCluster) -> Commands:
    return Commands(config=cluster.config)


# Nodes


async def test_a_node_is_drained_with_our_reason_and_its_job_goes_on(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(1, "--nodelist=gpu-1")
    closed = await slurm.apply(on_node("cordon_node", "gpu-1"), NoLease())
    assert isinstance(closed, Done), closed
    node = cluster.nodes()["gpu-1"]
    assert node.drained
    assert node.reason == "faultline inc-1: XID 79 on gpu-1"
    assert node.comment == "faultline[inc-1:key-1]"
    assert cluster.job(job).running
    assert cluster.job(job).restarts == 0
    emptied = await slurm.apply(on_node("drain_node", "gpu-1"), NoLease())
    assert isinstance(emptied, Blocked), emptied
    assert f"job {job} still on gpu-1" in emptied.reason
    cluster.run("scancel", str(job))
    assert isinstance(await eventually(lambda: _over(slurm), "the node is empty"), Done | AlreadyDone)


async def _over(slurm: Slurm) -> Done | AlreadyDone | None:
    found = await slurm.apply(on_node("drain_node", "gpu-1"), NoLease())
    return found if isinstance(found, Done | AlreadyDone) else None


async def test_a_drain_is_made_once_and_taken_back_to_what_was(cluster: SlurmCluster, slurm: Slurm) -> None:
    effect = on_node("cordon_node", "gpu-1")
    assert isinstance(await slurm.lookup(effect), Absent)
    assert isinstance(await slurm.apply(effect, NoLease()), Done)
    before = cluster.nodes()["gpu-1"]
    assert isinstance(await slurm.apply(effect, NoLease()), AlreadyDone)
    assert isinstance(await slurm.lookup(effect), AlreadyDone)
    assert cluster.nodes()["gpu-1"] == before
    assert isinstance(await slurm.undo(effect, NoLease()), Done)
    node = cluster.nodes()["gpu-1"]
    assert (node.drained, node.reason, node.comment) == (False, "", "")
    assert isinstance(await slurm.undo(effect, NoLease()), AlreadyDone)
    assert isinstance(await slurm.lookup(effect), Absent)


async def test_two_incidents_hold_a_node_until_the_last_lets_go(cluster: SlurmCluster, slurm: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-2", "Comment=rack r12")
    for key in ("key-1", "key-2"):
        assert isinstance(await slurm.apply(on_node("cordon_node", "gpu-2", key), NoLease()), Done)
    node = cluster.nodes()["gpu-2"]
    assert node.reason == "faultline inc-1,inc-2: XID 79 on gpu-1"
    assert node.comment == "rack r12 faultline[inc-1:key-1,inc-2:key-2]"
    assert isinstance(await slurm.apply(on_node("uncordon_node", "gpu-2"), NoLease()), Done)
    assert cluster.nodes()["gpu-2"].reason == "faultline inc-2: XID 79 on gpu-1"
    assert isinstance(await slurm.apply(on_node("uncordon_node", "gpu-2", "key-2"), NoLease()), Done)
    node = cluster.nodes()["gpu-2"]
    assert (node.drained, node.comment) == (False, "rack r12")


async def test_what_a_person_drained_is_left_and_never_resumed(cluster: SlurmCluster, slurm: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-1", "State=DRAIN", "Reason=bad DIMM, ticket 7")
    before = cluster.nodes()["gpu-1"]
    closed = await slurm.apply(on_node("cordon_node", "gpu-1"), NoLease())
    assert isinstance(closed, AlreadyDone)
    assert "bad DIMM" in closed.detail
    assert isinstance(await slurm.apply(on_node("uncordon_node", "gpu-1"), NoLease()), AlreadyDone)
    assert isinstance(await slurm.undo(on_node("cordon_node", "gpu-1"), NoLease()), AlreadyDone)
    assert cluster.nodes()["gpu-1"] == before


@pytest.mark.parametrize(
    "words", [("State=RESUME",), ("State=DRAIN", "Reason=I look at it")], ids=["resumed", "another_reason"]
)
async def test_what_a_person_changed_of_ours_is_theirs(
    cluster: SlurmCluster, slurm: Slurm, words: tuple[str, ...]
) -> None:
    effect = on_node("cordon_node", "gpu-1")
    assert isinstance(await slurm.apply(effect, NoLease()), Done)
    cluster.run("scontrol", "update", "NodeName=gpu-1", *words)
    before = cluster.nodes()["gpu-1"]
    for outcome in (
        await slurm.undo(effect, NoLease()),
        await slurm.apply(effect, NoLease()),
        await slurm.apply(on_node("uncordon_node", "gpu-1"), NoLease()),
    ):
        assert isinstance(outcome, Blocked), outcome
        assert outcome.by_person
    after = cluster.nodes()["gpu-1"]
    assert (after.drained, after.reason, after.comment) == (before.drained, before.reason, before.comment)


@pytest.mark.nightly  # Slurm takes half a minute to miss a node
async def test_a_node_that_slurm_lost_keeps_slurms_words_and_is_not_brought_up(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    cluster.daemons["gpu-3"].kill()
    try:
        until(lambda: cluster.nodes()["gpu-3"].down, "Slurm misses gpu-3")
        reason = cluster.nodes()["gpu-3"].reason
        closed = await slurm.apply(on_node("cordon_node", "gpu-3"), NoLease())
        assert isinstance(closed, AlreadyDone)
        assert "Not responding" in closed.detail
        assert cluster.nodes()["gpu-3"].reason == reason
    finally:
        cluster.revive("gpu-3")
    until(lambda: cluster.nodes()["gpu-3"].ready, "gpu-3 is back")


@pytest.mark.nightly
async def test_a_node_that_dies_while_we_hold_it_is_still_ours_and_is_not_brought_up(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    effect = on_node("cordon_node", "gpu-3")
    assert isinstance(await slurm.apply(effect, NoLease()), Done)
    cluster.daemons["gpu-3"].kill()
    try:
        until(lambda: cluster.nodes()["gpu-3"].down, "Slurm misses gpu-3")
        assert isinstance(await slurm.lookup(effect), AlreadyDone)
        back = await slurm.undo(effect, NoLease())
        assert isinstance(back, Blocked), back
        assert not back.by_person
        assert cluster.nodes()["gpu-3"].drained
    finally:
        cluster.revive("gpu-3")
    until(lambda: cluster.nodes()["gpu-3"].answers, "gpu-3 answers again")
    assert isinstance(await slurm.undo(effect, NoLease()), Done)
    until(lambda: cluster.nodes()["gpu-3"].states == {"IDLE"}, "gpu-3 is back")


async def test_a_node_nobody_knows_is_refused(slurm: Slurm) -> None:
    assert isinstance(await slurm.apply(on_node("cordon_node", "gpu-9"), NoLease()), Refused)
    assert isinstance(await slurm.apply(on_node("uncordon_node", "gpu-9"), NoLease()), AlreadyDone)


async def test_an_opted_out_node_is_refused(cluster: SlurmCluster, slurm: Slurm) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-1", "Comment=faultline.dev/managed=false")
    assert isinstance(await slurm.apply(on_node("cordon_node", "gpu-1"), NoLease()), Refused)
    assert not cluster.nodes()["gpu-1"].drained


# Jobs


async def test_a_job_is_stopped_released_away_from_suspects_and_verified(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(1, "--nodelist=gpu-1", "--begin=now")
    cluster.run("scontrol", "update", f"JobId={job}", "AdminComment=site: a=b")
    assert isinstance(await slurm.apply(on_node("cordon_node", "gpu-1"), NoLease()), Done)
    stopped = await carried_out(slurm, on_job("suspend_job", job))
    assert isinstance(stopped, Done), stopped
    held = cluster.job(job)
    assert (held.held, held.restarts, held.cleaning_up) == (True, 1, False)
    assert held.admin_comment == "site: a=b faultline[inc-1 stop=key-1 at=0]"
    assert isinstance(await slurm.apply(on_job("verify_job", job), NoLease()), Blocked)
    # The request for a node is the user's; here it stands for one that could start again on another.
    cluster.run("scontrol", "update", f"JobId={job}", "ReqNodeList=")
    started = await carried_out(slurm, on_job("resume_job", job, "key-2-1", avoid="gpu-2,elsewhere"))
    assert isinstance(started, Done), started
    assert cluster.job(job).excluded == "gpu-2"
    back = await carried_out(slurm, on_job("verify_job", job))
    assert isinstance(back, Done), back
    assert dict(back.result)["placements"] == (f"{job}=gpu-3",)
    assert dict(back.result)["restarts"] == 1
    assert cluster.job(job).admin_comment == "site: a=b faultline[inc-1 stop=key-1 at=0 start=key-2-1 done]"


async def test_each_step_called_twice_happens_once(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(2)
    stop, start = on_job("suspend_job", job), on_job("resume_job", job, "key-9-1")
    assert isinstance(await slurm.lookup(stop), Absent)
    await carried_out(slurm, stop)
    assert isinstance(await carried_out(slurm_of(api_of(cluster)), stop), AlreadyDone)
    assert isinstance(await slurm.lookup(stop), AlreadyDone)
    assert isinstance(await slurm.lookup(start), Absent)
    await carried_out(slurm, start)
    assert isinstance(await carried_out(slurm_of(api_of(cluster)), start), AlreadyDone)
    assert isinstance(await slurm.lookup(start), AlreadyDone)
    assert isinstance(await carried_out(slurm_of(api_of(cluster)), stop), AlreadyDone)
    until(lambda: cluster.job(job).running, "it runs again")
    assert cluster.job(job).restarts == 1


async def test_whoever_finds_a_job_released_and_not_marked_so_marks_it(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(1)
    assert isinstance(await carried_out(slurm, on_job("suspend_job", job)), Done)
    start = on_job("resume_job", job, "key-2-1")
    with pytest.raises(Died):
        await carried_out(slurm_of(DiesAt(api_of(cluster), 2, after=True)), start)
    assert not cluster.job(job).held
    assert isinstance(await carried_out(slurm, start, looked_up=True), Done | AlreadyDone)
    assert cluster.job(job).admin_comment.endswith("start=key-2-1 done]")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_process_that_dies_between_any_two_calls_doubles_nothing(
    cluster: SlurmCluster, slurm: Slurm, after: bool
) -> None:
    job = cluster.submit(1)
    for action, key in (("suspend_job", "key-1"), ("resume_job", "key-3-1")):
        at = 0
        while True:
            at += 1
            dying = DiesAt(api_of(cluster), at, after=after)
            try:
                outcome = await carried_out(slurm_of(dying), on_job(action, job, key), looked_up=at > 1)
            except Died:
                continue
            break
        assert isinstance(outcome, Done | AlreadyDone), outcome
        assert at > 1
    until(lambda: cluster.job(job).running, "it runs again")
    assert cluster.job(job).restarts == 1
    assert cluster.job(job).admin_comment.endswith("start=key-3-1 done]")


async def test_a_stop_is_taken_back(cluster: SlurmCluster, slurm: Slurm) -> None:
    job, effect = cluster.submit(1), None
    effect = on_job("suspend_job", job)
    await carried_out(slurm, effect)
    assert isinstance(await taken_back(slurm, effect), Done)
    assert isinstance(await slurm.undo(effect, NoLease()), AlreadyDone)
    assert isinstance(await slurm.lookup(effect), Absent)
    until(lambda: cluster.job(job).running, "it runs again")
    assert (cluster.job(job).restarts, cluster.job(job).admin_comment) == (1, "")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_process_that_dies_while_it_takes_a_stop_back_leaves_no_hold_and_no_mark(
    cluster: SlurmCluster, slurm: Slurm, after: bool
) -> None:
    job = cluster.submit(1)
    await carried_out(slurm, on_job("suspend_job", job))
    at, outcome = 0, None
    while outcome is None:
        at += 1
        try:
            outcome = await taken_back(
                slurm_of(DiesAt(api_of(cluster), at, after=after)), on_job("suspend_job", job)
            )
        except Died:
            continue
    assert at > 1
    assert isinstance(outcome, Done | AlreadyDone), outcome
    until(lambda: cluster.job(job).running, "it runs again")
    assert (cluster.job(job).restarts, cluster.job(job).admin_comment) == (1, "")


async def test_a_job_that_is_moved_right_after_it_began_and_right_after_it_ended_runs_again(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(1, runs=False)
    until(lambda: cluster.job(job).running, "Slurm says that it runs")
    for n in (1, 2):
        for action, key in (
            ("suspend_job", f"stop{n}-1"),
            ("resume_job", f"start{n}-1"),
            ("verify_job", "v-1"),
        ):
            outcome = await carried_out(Slurm(api_of(cluster)), on_job(action, job, key))
            assert isinstance(outcome, Done), outcome
    assert cluster.job(job).restarts == 2


async def test_what_a_person_released_is_not_stopped_again(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(1)
    effect = on_job("suspend_job", job)
    await carried_out(slurm, effect)
    cluster.run("scontrol", "release", str(job))
    _start_soon(cluster, job)
    until(lambda: cluster.job(job).running, "it runs again")
    for outcome in (
        await slurm.apply(on_job("resume_job", job, "key-8-1"), NoLease()),
        await slurm.undo(effect, NoLease()),
        await slurm.apply(on_job("suspend_job", job, prior={"held": True}), NoLease()),
    ):
        assert isinstance(outcome, Blocked), outcome
        assert outcome.by_person
    assert cluster.job(job).running
    assert cluster.job(job).restarts == 1


async def test_a_job_that_somebody_holds_is_left_alone(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(1, "--hold", runs=False)
    before = cluster.job(job)
    assert isinstance(await slurm.apply(on_job("suspend_job", job), NoLease()), Blocked)
    assert isinstance(await slurm.apply(on_job("resume_job", job), NoLease()), Blocked)
    assert isinstance(await slurm.undo(on_job("suspend_job", job), NoLease()), AlreadyDone)
    assert cluster.job(job) == before


async def test_a_hold_that_a_person_sets_after_our_release_is_theirs(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(3)
    await carried_out(slurm, on_job("suspend_job", job))
    cluster.submit(1)
    start = on_job("resume_job", job, "key-2-1")
    assert isinstance(await carried_out(slurm, start), Done)
    cluster.run("scontrol", "hold", str(job))
    again = await slurm.apply(start, NoLease())
    assert isinstance(again, Blocked), again
    assert again.by_person
    assert cluster.job(job).held


@pytest.mark.parametrize(
    ("options", "why"),
    [(("--no-requeue",), "without --requeue"), (("--comment=faultline.dev/managed=false",), "opted out")],
    ids=["not_requeueable", "opted_out"],
)
async def test_a_job_that_must_not_be_moved_goes_on(
    cluster: SlurmCluster, slurm: Slurm, options: tuple[str, ...], why: str
) -> None:
    job = cluster.submit(1, *options)
    before = cluster.job(job)
    refused = await slurm.apply(on_job("suspend_job", job), NoLease())
    assert isinstance(refused, Refused), refused
    assert why in refused.reason
    assert cluster.job(job) == before


async def test_a_job_that_ended_is_moot_and_one_nobody_knows_too(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(1)
    cluster.run("scancel", str(job))
    until(lambda: cluster.job(job).ended, "it has ended")
    for number in (job, 99_999):
        outcome = await slurm.apply(on_job("suspend_job", number), NoLease())
        assert isinstance(outcome, Refused), outcome
        assert outcome.moot


async def test_a_pending_job_is_held_and_released(cluster: SlurmCluster, slurm: Slurm) -> None:
    cluster.submit(3)
    job = cluster.submit(1, runs=False)
    assert isinstance(await carried_out(slurm, on_job("suspend_job", job)), Done)
    assert (cluster.job(job).held, cluster.job(job).restarts) == (True, 0)
    assert isinstance(await carried_out(slurm, on_job("resume_job", job, "key-4-1")), Done)
    assert not cluster.job(job).held


async def test_a_job_that_slurm_requeued_itself_is_not_stopped_again(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    job = cluster.submit(1)
    dying = DiesAt(api_of(cluster), 1, after=True)
    with pytest.raises(Died):
        await slurm_of(dying).apply(on_job("suspend_job", job), NoLease())
    cluster.run("scontrol", "requeue", str(job))
    until(
        lambda: cluster.job(job).restarts == 1 and not cluster.job(job).cleaning_up, "it is back in the queue"
    )
    _start_soon(cluster, job)
    until(lambda: cluster.job(job).running, "it runs again")
    outcome = await carried_out(slurm, on_job("suspend_job", job), looked_up=True)
    assert isinstance(outcome, AlreadyDone), outcome
    assert cluster.job(job).running


def _start_soon(cluster: SlurmCluster, job: int) -> None:
    """Spare it the two minutes that Slurm has it wait after a requeue, but for the second in which slurmd would refuse it."""
    cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")


# The commands


class _Lost:
    def check(self) -> None:
        raise Fenced("the lease has run out")


async def test_without_its_lease_nothing_is_changed(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(1)
    before = (cluster.nodes(), cluster.job(job))
    for effect in (on_node("cordon_node", "gpu-1"), on_job("suspend_job", job)):
        with pytest.raises(Fenced):
            await slurm.apply(effect, _Lost())
    assert (cluster.nodes(), cluster.job(job)) == before


async def test_a_command_that_hangs_after_it_acted_is_looked_up(cluster: SlurmCluster, slurm: Slurm) -> None:
    folder = cluster.folder / "slow"
    folder.mkdir(exist_ok=True)
    for name in ("scontrol", "squeue", "sinfo"):
        wait = '; case "$1" in update) exec sleep 60;; esac' if name == "scontrol" else ""
        (folder / name).write_text(f'#!/bin/sh\n/usr/bin/{name} "$@"; code=$?{wait}; exit $code\n')
        (folder / name).chmod(0o755)
    hangs = slurm_of(Commands(folder, cluster.config, timeout_s=0.5))
    effect = on_node("cordon_node", "gpu-1")
    assert isinstance(await when_sent(lambda: hangs.apply(effect, NoLease())), Unknown)
    assert isinstance(await slurm.lookup(effect), AlreadyDone)


async def test_the_controller_away_is_an_outcome_and_not_an_error(
    cluster: SlurmCluster, slurm: Slurm
) -> None:
    nowhere = cluster.folder / "nowhere.conf"
    nowhere.write_text(cluster.config.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    away = slurm_of(Commands(config=nowhere, timeout_s=1))
    for effect in (on_node("cordon_node", "gpu-1"), on_job("suspend_job", 1)):
        assert isinstance(await away.apply(effect, NoLease()), Retry | Unknown)
        assert isinstance(await away.lookup(effect), Retry | Unknown)


async def test_many_at_once(cluster: SlurmCluster, slurm: Slurm) -> None:
    effects = [on_node("cordon_node", f"gpu-{n}", f"key-{n}") for n in (1, 2, 3)]
    outcomes = await asyncio.gather(*(slurm.apply(effect, NoLease()) for effect in effects))
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert all(node.drained for node in cluster.nodes().values())
    assert isinstance(
        await slurm.apply(on_job("verify_job", cluster.submit(1, runs=False)), NoLease()), Waiting
    )


async def test_a_runbook_of_the_library_moves_a_job_of_slurm(cluster: SlurmCluster, slurm: Slurm) -> None:
    job = cluster.submit(2)
    watched = await _watched(cluster)
    view = ClusterView("c1")
    for fact in watched.facts:
        view.put(fact)
    about = incident(
        root=Entity("c1", node="gpu-1"), jobs=(JobRef(SLURM_JOB, "", str(job)),), nodes=("gpu-1",)
    )
    runbook = next(book for book in LIBRARY if book.id == "gpu-off-bus")
    made = plan(about, runbook, view, Mode.AUTO, slurm.actions)
    steps = [step for step in made.steps if step.action in slurm.actions]
    assert [step.action for step in steps] == [
        "cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"
    ]  # fmt: skip
    for step in steps:
        assert step.target is not None
        effect = Effect(
            f"key-{step.id}",
            step.action,
            step.target,
            "c1",
            about.id,
            "run-1",
            step.id,
            dict(step.params),
            context_of(about, made),
        )
        outcome = await carried_out(slurm, effect)
        assert isinstance(outcome, Done | AlreadyDone), (step, outcome)
    assert cluster.job(job).nodes == "gpu-[2-3]"
    after = ClusterView("c1")
    for fact in (await _watched(cluster)).facts:
        after.put(fact)
    assert after.nodes["gpu-1"].owners == (about.id,)
    assert is_held(after.nodes["gpu-1"])
    assert after.nodes_of(f"{SLURM_JOB}//{job}") == {"gpu-2", "gpu-3"}


async def _watched(cluster: SlurmCluster) -> FactsListed:
    """What the inventory is told at its first look."""
    told: asyncio.Queue[WatchEvent] = asyncio.Queue()
    watch = asyncio.create_task(SlurmWatch(api_of(cluster), SlurmFacts("c1"), every_s=600).run(told.put))
    try:
        event = await asyncio.wait_for(told.get(), 30)
    finally:
        watch.cancel()
    assert isinstance(event, FactsListed)
    return event
