"""Jobs that no Kubernetes object describes: where Slurm's controller put them, what their ranks say, and how they end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.correlate.sightings import sighting
from streams.correlate.state.allocations import KEPT, MAX_JOBS, MAX_NODES, allocations_of, with_statement
from streams.correlate.state.rows import JobRow
from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.incident import IncidentState
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, xid

NODES = [f"cn{i:03d}" for i in range(1, 5)]
ALL = "cn[001-004]"


def says(
    subtype: str,
    seconds: float,
    hosts: str = "",
    *,
    number: str = "4242",
    gpus: int | None = None,
    **more: Attribute,
) -> Signal:
    place = Entity(CLUSTER, job=JobRef(SLURM_JOB, "", number))
    attributes: dict[str, Attribute] = {"subtype": subtype, **({"hosts": hosts} if hosts else {}), **more}
    if gpus:
        attributes["gpus"] = gpus
    return _signal("job.allocation", place, seconds, attributes, severity=Severity.INFO)


def line(kind: str, rank: int, seconds: float, *, host: str | None = None, **more: int | str) -> Signal:
    """A line of a rank in its job's output, shipped from its node under that node's long name."""
    node = f"{host or NODES[rank // 8]}.hpc.example"
    place = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "4242"), rank=rank)
    return _signal(kind, place, seconds, {"rank": rank, **more})


def hang(silent: Sequence[int], seconds: float = 1800, host: str | None = None) -> list[Signal]:
    told = [r for r in range(32) if r not in silent]
    more: dict[str, int | str] = {
        "seq": 7,
        "op": "ALLREDUCE",
        "pg": "0",
        "timeout_ms": 600_000,
        "elapsed_ms": 600_009,
    }
    return [line("nccl.timeout", r, seconds + 0.1 * i, host=host, **more) for i, r in enumerate(told)]


def told(signals: Sequence[Signal], until: float = 4000) -> World:
    world = World()
    for one in signals:
        world.see(one)
    world.pass_to(until, step=10)
    return world


@pytest.mark.parametrize("host", [None, "cn001", "login1"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("gpus", [None, 8])
def test_the_node_of_a_silent_rank_is_found_whoever_ships_the_jobs_output(
    host: str | None, gpus: int | None, late: bool
) -> None:
    story = [says("running", 0, ALL, gpus=gpus), *hang([17], host=host)]
    incident = told([*story[1:], story[0]] if late else story).only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("cn003", ["4242"])


def made(rank: int, nranks: int, place: str) -> Signal:
    """NCCL's line about a communicator of `nranks`, in the output that a login host ships."""
    seen = line("job.rank", rank, 600, host="login1", nranks=nranks)
    return replace(seen, attributes={**seen.attributes, "host": place})


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("nranks", "node"), [(32, "cn004"), (16, None)])
def test_nccls_size_of_the_job_tells_that_its_last_rank_is_silent(
    nranks: int, node: str | None, late: bool
) -> None:
    """A communicator with fewer members than the job has ranks tells nothing of where they stand."""
    made_by = [made(rank, nranks, NODES[rank // (nranks // 4)]) for rank in (1, nranks // 2)]
    story = [says("running", 0, ALL), *made_by, *hang([31], host="login1")]
    incident = told([*story[1:], story[0]] if late else story).only()
    assert incident.root.node == node


def test_where_one_host_ships_all_a_node_that_is_silent_as_a_whole_moves_no_rank_to_another() -> None:
    for incident in told([says("running", 0, ALL), *hang(range(24, 32), host="cn001")]).incidents():
        assert incident.root.node in (None, "cn004")


def test_a_gpu_that_fails_is_told_with_the_job_that_stood_there() -> None:
    incident = told([says("running", 0, ALL), xid("cn002", 79, 600)]).only()
    assert [(j.kind, j.name) for j in incident.jobs] == [(SLURM_JOB, "4242")]


def test_a_rank_that_is_known_on_one_node_leaves_the_job_its_other_nodes() -> None:
    known = line("job.rank", 0, 60, nranks=32, index=0, pci="0000:10:00")
    story = [
        says("running", 0, ALL),
        known,
        *(line("job.failed", r, 600, subtype="cuda_oom") for r in (0, 9)),
    ]
    assert told(story).only().nodes == tuple(NODES)


@pytest.mark.parametrize("end", ["ended", "running"])
def test_a_job_that_has_left_a_node_is_no_victim_of_it(end: str) -> None:
    moved = says(end, 300, "cn[003-004]" if end == "running" else "")
    assert not told([says("running", 0, ALL), moved, xid("cn002", 79, 1200)]).only().jobs


def test_a_job_is_found_again_where_it_was_requeued() -> None:
    moves = [says("running", 0, "cn[001-002]"), says("ended", 300), says("running", 400, "cn[003-004]")]
    incident = told([*moves, xid("cn003", 79, 1200)]).only()
    assert [j.name for j in incident.jobs] == ["4242"]


def test_the_order_of_lines_and_a_restart_change_nothing() -> None:
    story = [
        says("running", 0, ALL),
        says("running", 700, "cn[001,002,003,004]"),
        *hang([17]),
        says("ended", 1830),
        says("running", 1900, "cn[001-002]"),
    ]
    expected = told(story)
    for seed in range(6):
        shuffled = random.Random(seed).sample(story, len(story))
        world = World()
        world.see(*shuffled[:12])
        world.restart()
        for one in (*shuffled[12:], *shuffled[:3]):
            world.see(one)
        world.pass_to(4000, step=10)
        assert (world.only().root, world.only().jobs) == (expected.only().root, expected.only().jobs)


@pytest.mark.parametrize("asked", [True, False])
def test_what_ends_because_it_was_asked_to_is_no_fault(asked: bool) -> None:
    failed = [line("job.failed", r, 600 + r, subtype="process_exit", exitcode=1) for r in range(0, 32, 8)]
    story = [says("running", 0, ALL), *([says("asked", 590)] if asked else []), *failed, says("ended", 720)]
    assert bool(told(story).incidents()) is not asked


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("clock", [-6, 0, 4])
@pytest.mark.parametrize("end", ["asked", "done", None])
def test_what_ranks_say_of_each_other_as_a_job_is_ended_is_no_hang(
    end: str | None, clock: float, known: bool
) -> None:
    """Whoever's clock is ahead, whether or not the job's nodes are known, and whichever line is read first."""
    ends = {"asked": says("asked", 600 + clock), "done": says("ended", 603 + clock, status=0), None: None}[
        end
    ]
    errors = [line("nccl.error", r, 601 + r / 50, subtype="remote_error") for r in (3, 9, 22)]
    begun = [says("running", 0, ALL)] if known else []
    for story in ([*begun, *errors, ends], [*begun, ends, *errors]):
        found = told([one for one in story if one is not None]).incidents()
        assert bool([i for i in found if not i.state.is_over]) is (end is None)
        assert end is None or not found


def test_a_hang_that_somebody_cancels_is_a_hang() -> None:
    story = [says("running", 0, ALL), *hang([]), says("asked", 1830), says("ended", 1860)]
    assert told(story).incidents()


def test_small_jobs_of_a_busy_cluster_and_their_failures_say_nothing() -> None:
    signals = []
    for i in range(30):
        number = str(5000 + i)
        place = Entity(CLUSTER, node="cn001", pod=PodRef(SLURM, number))
        signals += [
            says("running", 60 * i, "cn001", number=number),
            _signal("job.failed", place, 60 * i + 30, {"subtype": "process_exit", "exitcode": 1}),
            says("ended", 60 * i + 40, number=number),
        ]
    assert not told(signals).incidents()


def test_the_ends_of_any_number_of_small_jobs_leave_room_for_the_others() -> None:
    world = World()
    world.see(*(says("ended", 0, number=str(10_000 + i)) for i in range(MAX_JOBS)))
    world.see(says("running", 1, ALL), xid("cn002", 79, 600))
    assert [j.name for j in world.only().jobs] == ["4242"]
    assert len([key for key in world.rows if key.startswith("job/")]) <= MAX_JOBS


def test_what_is_over_is_forgotten_and_so_is_what_nobody_ended() -> None:
    world = told([says("running", 0, ALL), says("ended", 300), says("running", 10, ALL, number="4243")])
    assert {key for key in world.rows if key.startswith(("job/", "pod/"))}
    world.pass_to(KEPT.total_seconds() + 86_400 * 2, step=3600)
    world.restart()
    assert not {key for key in world.rows if key.startswith(("job/", "pod/"))}


def test_a_list_without_end_is_no_allocation() -> None:
    world = told([says("running", 0, f"cn[1-{MAX_NODES + 1}]"), says("running", 1, "cn[1-")], until=60)
    assert not [key for key in world.rows if key.startswith("pod/")]
    assert world.now == at(60)


@pytest.mark.parametrize("late", [False, True])
def test_a_job_is_found_where_all_lines_call_its_nodes_by_their_long_names(late: bool) -> None:
    story = [says("running", 0, ALL), xid("cn002.hpc.example", 79, 600)]
    incident = told(story[::-1] if late else story).only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("cn002", ["4242"])


def test_long_names_mean_the_same_nodes_after_a_restart() -> None:
    world = World()
    world.see(says("running", 0, ALL))
    world.restart()
    world.see(xid("cn002.hpc.example", 79, 600))
    assert [j.name for j in world.only().jobs] == ["4242"]


def test_one_short_name_with_two_domains_is_no_node_of_a_job() -> None:
    world = told([says("running", 0, ALL), xid("cn002.a.example", 79, 600), xid("cn002.b.example", 79, 601)])
    assert not any(i.jobs for i in world.incidents() if i.state is not IncidentState.RESOLVED)


def killed(node: str, seconds: float, **more: Attribute) -> Signal:
    return _signal(
        "node.memory", Entity(CLUSTER, node=node), seconds, {"subtype": "oom", "process": "python3", **more}
    )


@pytest.mark.parametrize(("number", "is_its_own"), [("4242", True), ("4243", False)])
def test_a_process_that_the_kernel_killed_is_the_jobs_whose_cgroup_it_names(
    number: str, is_its_own: bool
) -> None:
    world = told([says("running", 0, ALL), killed("cn002", 600, slurm_job=number)], until=900)
    assert [j.name for i in world.incidents() for j in i.jobs] == (["4242"] if is_its_own else [])


@pytest.mark.parametrize(("host", "is_its_own"), [("cn002", True), ("cn003", False)])
def test_without_a_cgroup_it_is_the_jobs_that_says_so_of_that_node(host: str, is_its_own: bool) -> None:
    failed = _signal(
        "job.failed",
        Entity(CLUSTER, node=host, pod=PodRef(SLURM, "4242")),
        602,
        {"subtype": "process_exit", "exitcode": -9},
    )
    world = told([says("running", 0, ALL), killed("cn002", 600), failed], until=900)
    assert bool(world.incidents()) is is_its_own


@pytest.mark.parametrize(
    ("end", "well"),
    [
        (says("ended", 600, status=0), True),
        (says("ended", 600, status=1), False),
        (says("ended", 600, signal=9), False),
        (says("ended", 600, state="NODE_FAIL"), False),
        (says("ended", 600, state="CANCELLED"), None),
        (says("ended", 600), None),
    ],
)
def test_it_is_known_whether_a_job_ended_well(end: Signal, well: bool | None) -> None:
    story = [says("running", 0, ALL), end, says("ended", 600.1), says("running", 900, ALL)]
    for seed in range(6):
        row = JobRow()
        for one in random.Random(seed).sample(story, len(story)):
            seen = sighting(one)
            assert seen is not None
            row = with_statement(row, seen)
        assert [one.well for one in allocations_of(row)] == [well, None]


def test_a_job_ends_on_its_nodes_when_one_of_them_is_lost() -> None:
    lost = _signal(
        "node.condition", Entity(CLUSTER, node="cn001"), 600, {"subtype": "slurm_job_lost", "job_id": 4242}
    )
    assert not told([says("running", 0, ALL), lost, xid("cn002", 79, 1200)]).only().jobs


def waits(rank: int, seconds: float, host: str | None = None, *, pg: str = "", seq: int = 7) -> Signal:
    told = {"last_enqueued": seq + 1, "last_completed": seq - 1} if pg else {}
    return line(
        "nccl.timeout",
        rank,
        seconds,
        host=host,
        pg=pg,
        seq=seq,
        timeout_ms=600_000,
        elapsed_ms=600_009,
        **told,
    )


def test_the_first_ranks_to_report_are_not_all_there_are() -> None:
    world = World()
    world.see(says("running", 0, ALL))
    for i, rank in enumerate((0, 1, 20, 28, 30)):
        world.see(waits(rank, 1800 + 0.1 * i, pg="0"))
        world.pass_to(1801 + i)
    assert not world.incidents()
    world.see(*(waits(rank, 1805, pg="0") for rank in range(32) if rank != 17))
    world.pass_to(4000, step=10)
    assert [(i.root.node, i.revision) for i in world.incidents()] == [("cn003", 1)]


@pytest.mark.parametrize("late", [False, True])
def test_a_number_that_two_nodes_give_their_ranks_is_none_of_the_job(late: bool) -> None:
    """Before PyTorch 2.2 a rank is that inside its group, and each node has a rank 0 in some group."""
    story = [says("running", 0, "cn[001-002]")]
    story += [waits(rank, 1800, "cn002", seq=9) for rank in (0, 1, 3)] + [waits(0, 1801, "cn001", seq=5)]
    incidents = told(story[::-1] if late else story).incidents()
    assert {i.root.node for i in incidents} == {None}


def crash(number: str, rank: int, seconds: float) -> Signal:
    """A rank's own crash in the job's output, which a login host ships."""
    place = Entity(CLUSTER, node="login1", pod=PodRef(SLURM, number), rank=rank)
    return _signal(
        "job.failed",
        place,
        seconds,
        {"subtype": "cuda_error", "reason": "unspecified launch failure", "rank": rank},
    )


@pytest.mark.parametrize("late", [False, True])
def test_a_host_on_which_jobs_fail_first_is_found_though_a_login_host_ships_their_output(late: bool) -> None:
    world = World()
    for i, rank in enumerate((9, 12, 10)):
        begin, number = 3600.0 * i, str(5000 + i)
        runs = says(
            "running", begin, f"m{2 * i:02d},cn002,m{2 * i + 1:02d},m{2 * i + 20:02d}", number=number, gpus=8
        )
        failure = crash(number, rank, begin + 1200)
        for one in (failure, runs) if late else (runs, failure):
            world.see(one)
        world.see(says("ended", begin + 1210, number=number, status=1))
        world.pass_to(begin + 2400, step=20)
    named = [i for i in world.incidents() if i.root.node is not None]
    assert [i.root.node for i in named] == ["cn002"]


def test_the_addresses_of_slurms_nodes_are_those_that_their_own_lines_tell() -> None:
    def unanswered(node: int, peer: int, seconds: float) -> Signal:
        place = Entity(CLUSTER, node=NODES[node], pod=PodRef(SLURM, "4242"))
        words: dict[str, Attribute] = {
            "subtype": "ib_completion",
            "status": 12,
            "vendor_err": 129,
            "device": "mlx5_3",
        }
        words |= {"peer": f"10.0.0.{peer}", "address": f"10.0.0.{node}"}
        return _signal("nccl.error", place, seconds, words)

    failing = [unanswered(0, 2, 900), unanswered(2, 0, 900.3), unanswered(1, 2, 900.5), unanswered(2, 1, 901)]
    incident = told([says("running", 0, ALL, gpus=8), *failing]).only()
    assert incident.root.node == "cn003"


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_began_before_the_log_stood_where_daemons_are_done_with_it(
    backwards: bool, restarts: bool
) -> None:
    done = [says("step", 1830 + i, node) for i, node in enumerate(NODES)]
    story = [*hang([17], host="login1"), says("ended", 1829, status=1), *done]
    world = World()
    for one in reversed(story) if backwards else story:
        world.see(one)
    if restarts:
        world.restart()
    world.pass_to(4000, step=10)
    incident = world.only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("cn003", ["4242"])


def test_what_the_controller_says_of_its_nodes_comes_before_what_daemons_say() -> None:
    row = JobRow()
    for one in (says("running", 0, ALL), says("ended", 900), *(says("step", 901, n) for n in NODES[:3])):
        row = with_statement(row, sighting(one))  # type: ignore[arg-type]
    assert [a.nodes for a in allocations_of(row)] == [tuple(NODES)]


def test_a_job_on_one_node_is_not_followed_by_its_daemon_alone() -> None:
    row = with_statement(JobRow(), sighting(says("step", 901, NODES[0])))  # type: ignore[arg-type]
    assert not row.was_placed
    assert not list(allocations_of(row))


def test_trays_of_slurm_that_overheat_together_are_one_by_their_names() -> None:
    story = [says("running", 0, "lum1-c[01-12],lum2-c[01-12]", gpus=4)]
    for i in range(1, 11):
        place = Entity(CLUSTER, node=f"lum1-c{i:02d}")
        story.append(
            _signal(
                "node.thermal", place, 600 + 5 * i, {"subtype": "temperature"}, severity=Severity.CRITICAL
            )
        )
    incident = told(story).only()
    assert incident.family == "power_cooling"
    assert incident.root.part is not None
    assert incident.root.part.name == "lum1-"


def halves(seconds: float) -> list[Signal]:
    """A heterogeneous job is given its nodes, those of each component in a line of its own."""
    return [
        says("running", seconds + i / 1000, hosts, component=i)
        for i, hosts in enumerate(("cn[001-002]", "cn[003-004]"))
    ]


def held(signals: Sequence[Signal]) -> list[tuple[float, tuple[str, ...]]]:
    """Since when a job held which nodes, by these statements."""
    row = JobRow()
    for one in signals:
        seen = sighting(one)
        assert seen is not None
        row = with_statement(row, seen)
    return [((since - at(0)).total_seconds(), nodes) for since, nodes in row.allocations or ()]


@pytest.mark.parametrize("node", ["cn002", "cn003"])
def test_a_heterogeneous_job_stands_on_the_nodes_of_all_its_components(node: str) -> None:
    incident = told([*halves(0), xid(node, 79, 600)]).only()
    assert [(job.name, incident.impact.nodes) for job in incident.jobs] == [("4242", 4)]


def test_a_component_that_ends_leaves_the_job_its_others() -> None:
    over = says("ended", 900, component=1, status=0)
    assert held([*halves(0), over]) == [(0, tuple(NODES)), (900, tuple(NODES[:2]))]
    incident = told([*halves(0), over, xid("cn003", 79, 1800)]).only()
    assert incident.jobs == ()
    everything = says("ended", 1800, status=0)
    assert held([*halves(0), over, everything])[-1] == (1800, ())


def test_a_job_of_single_nodes_is_followed_where_it_has_several_components() -> None:
    alone = [says("running", i / 1000, f"cn00{i + 1}", component=i) for i in range(4)]
    assert held(alone) == [(0, tuple(NODES))]
    assert held(alone[:1]) == []


def test_statements_about_components_count_in_any_order_and_however_often_they_come() -> None:
    first = [*halves(0), says("ended", 600, component=1, status=0), says("ended", 900)]
    then = [one for minute in range(400) for one in halves(1000 + 60 * minute)]
    expected = [(0, tuple(NODES)), (600, tuple(NODES[:2])), (900, ()), (1000, tuple(NODES))]
    for seed in range(5):
        chance = random.Random(seed)
        stretches: list[tuple[float, tuple[str, ...]]] = []
        for since, nodes in held([*chance.sample(first, len(first)), *chance.sample(then, len(then))]):
            if not stretches or stretches[-1][1] != nodes:
                stretches.append((since, nodes))
        assert stretches == expected


def test_of_a_heterogeneous_job_no_place_in_the_list_tells_a_rank() -> None:
    """One component may have one rank on a node, another eight."""
    assert {i.root.node for i in told([*halves(0), *hang([9], host="login1")]).incidents()} == {None}
