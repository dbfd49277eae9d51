"""A node that is NotReady is dead when a second sign says so and nothing tells that it lives; a job that runs is never moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faultline.chat.thread_messages import root_message
from faultline.why.explanation import explain
from streams.model.entity import Entity
from streams.model.facts import Fact, JobFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Severity, Signal, signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    at,
    cluster,
    job,
    link,
    nccl_error,
    node_fact,
    not_ready,
    pods,
    port,
    progress,
    run,
    sign,
    timeouts,
    xid,
)

JOB = [f"n{i}" for i in range(1, 9)]
SPARE = [f"m{i}" for i in range(1, 9)]
DEAD = "n3"
UNREACHABLE = "node.kubernetes.io/unreachable=:NoExecute"


def facts() -> list[Fact]:
    """A job on half of sixteen nodes."""
    return cluster({"llama": JOB}, spare=SPARE)


def moving(since: float, until: float, every: float = 20, pod: int = 0) -> list[Signal]:
    count = int((until - since) // every)
    return [progress("llama", since + every * i, 1000 + i, pod=pod) for i in range(count + 1)]


def told(signals: Sequence[Signal], until: float, world: World | None = None) -> World:
    world = world or World(facts())
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=5)
        world.see(one)
    world.pass_to(until, step=5)
    return world


def down(world: World, node: str = DEAD) -> Incident:
    (found,) = [i for i in world.incidents() if i.family == "node_down" and i.root.node == node]
    return found


def sure_at(world: World) -> float | None:
    """When it became decisive, in seconds after its NotReady at 0."""
    sure = [i for i in world.revisions if i.family == "node_down" and i.certainty is Certainty.DECISIVE]
    return (sure[0].updated_at - at(0)).total_seconds() if sure else None


def test_a_job_that_falls_silent_with_its_node_proves_its_death_after_three_minutes() -> None:
    world = told([*moving(-600, -45), not_ready(DEAD, 0)], 900)
    assert 180 <= (sure_at(world) or 0) <= 190
    assert "told nothing since" in down(world).reason
    assert down(world).jobs == (job("llama"),)


def test_five_minutes_alone_are_enough_where_its_job_never_told_anything() -> None:
    world = told([not_ready(DEAD, 0)], 295)
    assert down(world).certainty is Certainty.LIKELY
    world.pass_to(320)
    assert down(world).certainty is Certainty.DECISIVE
    assert "nearly all other nodes are Ready" in down(world).reason


def test_a_dead_kubelet_under_a_job_that_goes_on_is_never_decisive() -> None:
    world = told([*moving(-600, 1500), not_ready(DEAD, 0)], 1500)
    assert sure_at(world) is None
    assert "still makes progress" in down(world).reason
    assert down(world).facts["lives"] is True


def test_where_the_job_goes_on_nothing_stands_still() -> None:
    world = told([*moving(-600, 300), not_ready(DEAD, 0)], 300)
    found = down(world)
    assert found.jobs == (job("llama"),)
    assert (found.impact.gpus, found.impact.ranks, found.impact.gpu_hours_per_hour) == (0, 0, 0.0)
    assert "standstill" not in explain(found)
    assert "GPU-hours" not in str(root_message(found, []))


def test_once_its_job_runs_again_its_ranks_are_not_said_to_be_waited_for() -> None:
    world = told([xid(DEAD, 79, 0)], 60)
    assert "its job waits for them" in world.only().reason
    world.see(run("finished", world.only().id, 61, "succeeded"))
    assert world.only().state is IncidentState.RESOLVED
    assert "its job waits for them" not in world.only().reason


def test_a_job_that_logs_every_five_minutes_is_given_time_to_say_that_it_lives() -> None:
    world = told([*moving(-3060, -60, every=300), not_ready(DEAD, 0)], 500)
    assert sure_at(world) is None
    told(moving(540, 550), 2000, world)
    assert sure_at(world) is None


def test_a_job_that_logs_every_five_minutes_and_stops_is_silent_at_last() -> None:
    world = told([*moving(-3060, -60, every=300), not_ready(DEAD, 0)], 1200)
    assert 690 <= (sure_at(world) or 0) <= 700
    assert "kept telling" in down(world).reason


def test_progress_that_comes_in_late_takes_the_certainty_back() -> None:
    world = told([not_ready(DEAD, 0)], 400)
    assert down(world).certainty is Certainty.DECISIVE
    for one in moving(-600, 380):
        world.see(one)
    world.pass_to(420)
    assert down(world).certainty is Certainty.LIKELY


def test_a_node_that_tells_of_other_things_lives() -> None:
    speaks = sign("gpu.thermal", DEAD, 120, "temperature", index=2, severity=Severity.WARNING)
    world = told([not_ready(DEAD, 0), speaks], 900)
    assert sure_at(world) is None
    assert "the node itself" in down(world).reason


@pytest.mark.parametrize("named", [{"controller": f"{DEAD}-bmc"}, {}])
def test_what_its_management_controller_says_is_no_sign_of_its_life(named: dict[str, str]) -> None:
    name = DEAD if named else f"ipmi-{DEAD}.oob.example"
    speaks = sign("node.thermal", name, 120, "temperature", gpu=None, severity=Severity.WARNING, index=None)
    speaks = replace(speaks, attributes={**speaks.attributes, **named})
    assert sure_at(told([not_ready(DEAD, 0), speaks], 900)) is not None


def test_an_alert_about_it_is_no_word_of_the_node_but_one_more_sign() -> None:
    alert = sign("node.condition", DEAD, 30, "down", alert="InstanceDown")
    world = told([not_ready(DEAD, 0), alert], 900)
    assert 60 <= (sure_at(world) or 0) <= 70


def test_links_that_are_down_at_the_switch_are_one_more_sign() -> None:
    world = World([*facts(), *(link(f"leaf-{i}", "Ethernet8", DEAD, f"mlx5_{i}") for i in range(2))])
    told([not_ready(DEAD, 0), *(port(f"leaf-{i}", "Ethernet8", -40) for i in range(2))], 900, world)
    assert 60 <= (sure_at(world) or 0) <= 70


def test_an_instance_that_the_cloud_stopped_is_dead_at_once() -> None:
    world = World(facts())
    gone = ("node.cloudprovider.kubernetes.io/shutdown=:NoSchedule", UNREACHABLE)
    world.tell(node_fact(DEAD, since=0, ready=False, taints=gone))
    world.pass_to(100)
    assert down(world).certainty is Certainty.DECISIVE


def not_ready_by_itself(node: str, seconds: float) -> Signal:
    return signal(
        "node.not_ready", Entity(CLUSTER, node=node), severity=Severity.ERROR, occurred_at=at(seconds),
        observed_at=at(seconds + 0.5), attributes={"reason": "KubeletNotReady"},
    )  # fmt: skip


def taken_care_of() -> list[Fact]:
    return [node_fact(DEAD, since=-30, unschedulable=True)]


SPARED: dict[str, tuple[list[Fact], list[Signal]]] = {
    "a kubelet that says so itself": ([], [not_ready_by_itself(DEAD, 0)]),
    "a kubelet that says so itself, as the taints show": (
        [node_fact(DEAD, since=5, ready=False, taints=("node.kubernetes.io/not-ready=:NoExecute",))],
        [not_ready(DEAD, 0)],
    ),
    "a node that somebody closed": (taken_care_of(), [not_ready(DEAD, 0)]),
    "a node in maintenance": ([node_fact(DEAD, since=-30, maintenance=True)], [not_ready(DEAD, 0)]),
    "a node without a job": ([], [not_ready("m1", 0)]),
    "a node among several": ([], [not_ready(n, 70.0 * i) for i, n in enumerate([DEAD, "n5", "m2", "m3"])]),
    "a node that came back in time": ([], [not_ready(DEAD, 0), not_ready(DEAD, 170, ready=True)]),
    "a node that comes and goes": (
        [],
        [
            not_ready(DEAD, 200.0 * i + (100 if back else 0), ready=back)
            for i in range(8)
            for back in (False, True)
        ],
    ),
}


@pytest.mark.parametrize("name", SPARED)
def test_what_is_not_proven_is_left_to_a_person(name: str) -> None:
    more, signals = SPARED[name]
    world = World(facts())
    for fact in more:
        world.tell(fact)
    told([*moving(-600, -45), *signals], 1500, world)
    assert sure_at(world) is None


def test_a_node_that_goes_with_a_notice_is_the_notices() -> None:
    world = told([sign("node.maintenance", DEAD, 0, "spot_interruption"), not_ready(DEAD, 130)], 900)
    assert [(i.family, i.certainty) for i in world.incidents()] == [("preemption", Certainty.LIKELY)]


def test_a_host_that_failed_and_went_silent_is_as_certain_as_its_death() -> None:
    broken = sign("node.kernel", DEAD, -50, "mce", severity=Severity.CRITICAL)
    world = told([*moving(-600, -55), broken, not_ready(DEAD, 0)], 900)
    incident = world.only()
    assert (incident.family, incident.certainty) == ("host_fault", Certainty.DECISIVE)


def test_a_job_that_runs_elsewhere_again_says_nothing_of_the_node_it_left() -> None:
    """Its pods were made anew on other nodes; the old pod hangs on the dead node for ever."""
    world = told([*moving(-600, -45), not_ready(DEAD, 0)], 200)
    assert down(world).certainty is Certainty.DECISIVE
    for one in pods("llama", ["m1", *JOB[1:]], since=220, attempt=2)[:1]:
        world.tell(one)
    told(moving(260, 800), 800, world)
    assert down(world).certainty is Certainty.DECISIVE


def test_a_job_that_ended_before_told_nothing_by_its_silence() -> None:
    world = World(facts())
    told(moving(-600, -20), -10, world)
    world.tell(JobFact(CLUSTER, job("llama"), at(-5), pods=8, world=64, finished=True))
    told([not_ready(DEAD, 0)], 290, world)
    assert sure_at(world) is None


def test_ranks_that_wait_for_it_are_proof_enough() -> None:
    world = told([not_ready(DEAD, 0), *timeouts("llama", [r for r in range(64) if r // 8 != 2], 640)], 900)
    assert down(world).certainty is Certainty.DECISIVE


def test_a_lost_gpu_on_it_is_told_of_first() -> None:
    world = told([xid(DEAD, 79, -20), not_ready(DEAD, 0)], 900)
    assert [i.family for i in world.incidents()] == ["gpu_off_bus"]


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_the_order_changes_nothing(order: str) -> None:
    signals = [
        *moving(-600, -45),
        not_ready(DEAD, 0),
        sign("node.condition", DEAD, 30, "down", alert="InstanceDown"),
    ]
    world = World(facts())
    for one in signals if order == "forwards" else reversed(signals):
        world.see(one)
    world.pass_to(900, step=5)
    assert down(world).certainty is Certainty.DECISIVE
    assert "an alert tells" in down(world).reason


@pytest.mark.parametrize("read_again", [95.0, 400.0])
def test_an_old_line_that_is_read_now_does_not_hold_up_what_is_seen_to_happen_now(read_again: float) -> None:
    old = replace(xid(DEAD, 79, -7200), observed_at=at(read_again))
    world = told([*moving(0, 100), old, not_ready(DEAD, 105)], 900)
    assert down(world).certainty is Certainty.DECISIVE
    assert not down(world).state.is_over
    (lost,) = [i for i in world.incidents() if i.family == "gpu_off_bus"]
    assert lost.evident_at == at(-7200)


def test_connections_that_fail_before_the_kubelet_is_missed_are_told_with_the_node_that_died() -> None:
    """Its peers complain after seconds and name nobody; the API server misses it after most of a minute."""
    errors = [nccl_error("llama", rank, 12 + rank / 10) for rank in range(16)]
    world = told([*moving(-600, 0), *errors, not_ready(DEAD, 42)], 160)
    assert {i.id for i in world.published.values()} == {world.only().id}, "told once"
    assert (world.only().family, world.only().root.node) == ("node_down", DEAD)
    assert world.only().certainty is Certainty.LIKELY, "errors name no end of theirs"
    assert world.only().jobs == (job("llama"),)


def test_a_job_that_complains_before_another_jobs_node_goes_is_a_story_of_its_own() -> None:
    errors = [nccl_error("llama", rank, 12 + rank / 10) for rank in range(16)]
    world = told([*moving(-600, 0), *errors, not_ready(SPARE[0], 42)], 400)
    assert {i.family for i in world.incidents()} == {"hang", "node_down"}


def test_a_node_whose_own_ranks_complain_did_not_die_of_what_they_complain_of() -> None:
    dead = JOB.index(DEAD)
    errors = [nccl_error("llama", rank, 12 + rank / 100) for rank in range(8 * (dead + 1))]
    world = told([*moving(-600, 0), *errors, not_ready(DEAD, 42)], 400)
    assert {i.family for i in world.incidents()} == {"hang", "node_down"}
