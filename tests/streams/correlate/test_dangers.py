"""What must not happen: healthy nodes accused, victims taken for culprits, one fault told twice, two told as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    job,
    link,
    nccl_error,
    node_fact,
    not_ready,
    pause,
    pods,
    progress,
    run,
    storm,
    summary,
    timeout,
    timeouts,
    xid,
)


def closes_a_node(incident: Incident) -> bool:
    """What the shipped runbooks may act on by themselves."""
    return incident.certainty is Certainty.DECISIVE and incident.root.node is not None


QUIET: dict[str, list[Signal]] = {
    "clean-up after a kill": [xid(n, 45, i, index=i) for i, n in enumerate(FOUR)],
    "one 43 on its own": [xid("n1", 43, 0)],
    "a single illegal access, after which nothing ends": [xid("n1", 31, 0)],
    "a row remapping that was recorded": [xid("n1", 63, 0)],
    "a gauge that still shows last week's code": [xid("n1", 79, 0, source="dcgm")],
    "pause received by victims": [pause("n1", "mlx5_0", "received", 0), pause("n2", "mlx5_0", "received", 1)],
    "a storm restored at once": [
        storm("leaf-1", "Ethernet8", 0),
        storm("leaf-1", "Ethernet8", 0.4, cleared=True),
    ],
    "a kubelet that restarted": [not_ready("n1", 0), not_ready("n1", 12, ready=True)],
    "a line from long ago, replayed after a reboot": [replace(xid("n1", 79, 0), observed_at=at(90_000))],
    "progress": [progress("llama", 0, 100), progress("llama", 5, 101)],
    "a kind that nobody correlates yet": [replace(xid("n1", 79, 0), kind="gpu.thermal")],
}


@pytest.mark.parametrize("name", QUIET)
def test_noise_opens_nothing(name: str) -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n1", "mlx5_0")])
    world.see(*QUIET[name])
    world.pass_to(300)
    assert world.incidents() == []


def hang(ranks: list[int], **more: int) -> list[Signal]:
    return timeouts("llama", ranks, 600, **more)


ALL = list(range(32))
UNSURE: dict[str, tuple[list[Signal], str, Certainty]] = {
    "everybody waits in the same place": (hang(ALL), "hang", Certainty.WEAK),
    "a single illegal access of a job that fails": (
        [xid("n1", 31, 0), failed("llama", 0, 2, exitcode=1)],
        "application",
        Certainty.WEAK,
    ),
    "a code that is not known": ([xid("n1", 999, 0)], "unknown", Certainty.WEAK),
    "one rank of a node is silent": (hang([r for r in ALL if r != 9]), "silent_node", Certainty.LIKELY),
    "two nodes are silent": (hang([r for r in ALL if r // 8 not in (1, 2)]), "hang", Certainty.LIKELY),
    "three of four nodes are silent": (hang(list(range(8))), "hang", Certainty.WEAK),
    "one rank of another node is silent too": (
        hang([r for r in ALL if r // 8 != 2 and r != 0]),
        "hang",
        Certainty.LIKELY,
    ),
    "hosts that run ahead by different amounts": (
        [*hang(ALL), *(summary("llama", r, 604, enqueued=101 if r // 8 == 1 else 103, seq=100) for r in ALL)],
        "silent_node",
        Certainty.LIKELY,
    ),
    "errors without a timeout": ([nccl_error("llama", r, 5) for r in range(8)], "hang", Certainty.WEAK),
    "ranks that called different collectives": (
        [*timeouts("llama", range(31), 600), timeout("llama", 31, 601, op="BROADCAST")],
        "application",
        Certainty.LIKELY,
    ),
    "a storm on an uplink": ([storm("leaf-1", "Ethernet120", 0)], "pfc_storm", Certainty.LIKELY),
    "a storm on a port nobody described": ([storm("leaf-1", "Ethernet4", 0)], "pfc_storm", Certainty.WEAK),
    "a host that says of itself that it pauses": (
        [pause("n1", "mlx5_0", "sent", 0)],
        "pfc_storm",
        Certainty.LIKELY,
    ),
    "an NVLink error, which may be the other end's": ([xid("n1", 74, 0)], "gpu_nvlink", Certainty.LIKELY),
    "memory error contained to one application": ([xid("n1", 94, 0)], "gpu_memory", Certainty.LIKELY),
}


@pytest.mark.parametrize("name", UNSURE)
def test_weak_evidence_asks_a_person_and_closes_nothing(name: str) -> None:
    signals, family, certainty = UNSURE[name]
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet120", peer="spine-1")])
    world.see(*signals)
    world.pass_to(680)
    incident = world.only()
    assert (incident.family, incident.certainty) == (family, certainty)
    assert not closes_a_node(incident)
    assert incident.reason


def test_timeouts_read_before_the_gpu_that_caused_them_open_one_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 600))
    world.pass_to(610)
    world.see(replace(xid("n2", 79, 1), observed_at=at(612)))
    world.pass_to(700)
    assert (world.only().family, len(world.published)) == ("gpu_off_bus", 1)


def test_hardware_evidence_that_comes_late_takes_over_the_hang_that_was_opened_first() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(640)
    first = world.only()
    assert first.family == "hang"
    world.see(replace(xid("n2", 79, 1), observed_at=at(645)))
    world.pass_to(700)
    root = world.only()
    merged = world.published[first.id]
    assert (root.family, merged.state, merged.merged_into) == ("gpu_off_bus", IncidentState.MERGED, root.id)
    assert merged.revision == first.revision + 1
    assert "incident.merged" in {line.event for line in world.timeline}


def test_a_silent_node_is_given_up_when_its_ranks_speak_after_all() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(640)
    assert world.only().root.node == "n4"
    world.see(*timeouts("llama", range(24, 32), 641))
    world.pass_to(700)
    assert (world.only().family, world.only().certainty) == ("hang", Certainty.WEAK)


def test_the_recovery_a_154_names_overrides_the_code_before_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 74, 0, link=14))
    world.pass_to(7)
    assert world.only().certainty is Certainty.LIKELY
    world.see(xid("n1", 154, 8, action="restart_bm"))
    incident = world.only()
    assert (incident.family, incident.facts["action"], incident.certainty) == (
        "gpu_nvlink",
        "restart_bm",
        Certainty.DECISIVE,
    )
    assert incident.facts["xid"] == 74


def test_a_fault_that_grows_is_one_incident_under_its_gravest_name() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 119, 0), xid("n1", 154, 1, action="restart_bm"))
    first = world.only()
    world.see(xid("n1", 79, 30), xid("n1", 74, 31, index=5))
    assert world.only().family == "gpu_off_bus"
    assert world.published[first.id].merged_into == world.only().id


def test_gpus_of_one_board_that_fail_together_are_one_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(xid("n1", 79, i * 0.2, index=i) for i in range(8)))
    assert world.only().facts["gpus_failed"] == 8


def test_two_faults_in_different_jobs_stay_two() -> None:
    world = World(cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"]}))
    world.see(
        xid("n1", 79, 0),
        xid("n3", 95, 1),
        *timeouts("llama", range(8, 16), 600),
        *timeouts("gemma", range(16), 601),
    )
    world.pass_to(700)
    assert {(i.family, i.root.node, i.jobs) for i in world.incidents()} == {
        ("gpu_off_bus", "n1", (job("llama"),)),
        ("gpu_memory", "n3", (job("gemma"),)),
    }


def test_two_decisive_faults_in_one_job_are_two_incidents() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 79, 0), xid("n3", 95, 200), *timeouts("llama", range(8, 16), 600))
    world.pass_to(700)
    assert {i.root.node for i in world.incidents()} == {"n1", "n3"}


def test_a_silent_node_and_a_storm_that_does_not_reach_its_job_stay_two() -> None:
    facts = [*cluster({"llama": FOUR, "gemma": ["m1", "m2"]}), link("leaf-9", "Ethernet8", "m1", "mlx5_2")]
    facts = [
        replace(f, leaf="leaf-9" if f.name.startswith("m") else "leaf-1") if f.kind == "node" else f
        for f in facts
    ]
    world = World(facts)
    world.see(storm("leaf-9", "Ethernet8", 590), *timeouts("llama", range(24), 600))
    world.pass_to(700)
    assert {(i.family, i.root.node) for i in world.incidents()} == {
        ("silent_node", "n4"),
        ("pfc_storm", "m1"),
    }


def test_a_storm_that_begins_after_a_silent_node_was_told_does_not_explain_it() -> None:
    facts = [*cluster({"llama": FOUR, "gemma": ["m1", "m2"]}), link("leaf-1", "Ethernet8", "m1", "mlx5_2")]
    facts = [replace(f, leaf="leaf-1") if f.kind == "node" else f for f in facts]
    world = World(facts)
    world.see(*timeouts("llama", range(24), 600, waited=2))
    world.pass_to(630)
    silent = world.only()
    assert (silent.family, silent.root.node) == ("silent_node", "n4")
    world.see(storm("leaf-1", "Ethernet8", 631), pause("n1", "mlx5_2", "received", 632))


def test_a_storm_that_began_after_the_timeouts_did_not_cause_them() -> None:
    world = World([*cluster({"llama": FOUR}, spare=["m1"]), link("leaf-1", "Ethernet8", "m1", "mlx5_2")])
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(640)
    world.see(
        storm("leaf-1", "Ethernet8", 650),
        pause("n1", "mlx5_0", "received", 651),
        pause("m1", "mlx5_2", "sent", 665),
    )
    world.pass_to(700)
    assert {(i.family, i.root.node) for i in world.incidents()} == {
        ("silent_node", "n4"),
        ("pfc_storm", "m1"),
    }


def test_a_gpu_lost_a_minute_after_the_code_faulted_everywhere_is_a_second_fault() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(xid(n, 31, i * 0.2) for i, n in enumerate(FOUR)))
    world.pass_to(60)
    world.see(xid("n2", 79, 60))
    world.pass_to(100)
    assert {i.family for i in world.incidents()} == {"application", "gpu_off_bus"}


def test_a_storm_from_a_node_of_the_job_does_not_explain_what_its_code_did_before() -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n1", "mlx5_2")])
    world.see(*(xid(node, 31, i * 0.2) for i, node in enumerate(FOUR)))
    world.pass_to(20)
    assert world.only().family == "application"
    world.see(storm("leaf-1", "Ethernet8", 21))
    world.pass_to(60)
    assert {i.family for i in world.incidents()} == {"application", "pfc_storm"}

    assert [i.state.value for i in world.published.values()] == ["open", "open"]


def test_a_rank_behind_in_one_group_because_it_waits_in_another_is_a_victim() -> None:
    """Ranks 0-7 lag in the data-parallel group 2 because their tensor-parallel group 5 waits for rank 16."""
    world = World(cluster({"llama": FOUR}))
    world.see(
        *timeouts("llama", range(24, 32), 600, pg="2", seq=50),
        *(summary("llama", r, 601, enqueued=49, pg="2") for r in range(8)),
        *timeouts("llama", range(8), 602, pg="5", seq=900),
        *timeouts("llama", range(8, 16), 602, pg="5", seq=900),
        *(summary("llama", r, 603, enqueued=899, pg="5") for r in range(16, 24)),
    )
    world.pass_to(700)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("silent_node", "n3")


def test_a_not_ready_node_whose_ranks_still_speak_does_not_explain_a_hang() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n1", 0))
    world.pass_to(60)
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(700)
    assert {(i.family, i.root.node) for i in world.incidents()} == {
        ("node_down", "n1"),
        ("silent_node", "n4"),
    }


def test_not_ready_on_the_node_of_an_open_incident_joins_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    world.pass_to(50)
    world.see(not_ready("n2", 50))
    world.pass_to(200)
    assert world.only().facts["node_not_ready"] is True


def test_a_node_that_is_silent_and_not_ready_is_certain() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r != 9], 600), not_ready("n2", 601))
    world.pass_to(700)
    incident = world.only()
    assert (incident.family, incident.certainty, incident.facts["node_not_ready"]) == (
        "silent_node",
        Certainty.DECISIVE,
        True,
    )


def test_pods_of_a_job_resumed_at_once_do_not_move_the_blame_to_their_nodes() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(*timeouts("llama", [r for r in range(32) if not 8 <= r < 16], 600))
    world.pass_to(650)
    opened = world.only()
    for fact in pods("llama", [FOUR[0], "n9", *FOUR[2:]], since=5):
        world.tell(replace(fact, name=f"{fact.name}-again", uid=f"{fact.uid}-again"))
    world.pass_to(700)
    incident = world.only()
    assert (incident.id, incident.certainty) == (opened.id, Certainty.DECISIVE)


def test_a_node_gone_long_before_the_timeouts_keeps_its_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n2", 50))
    world.pass_to(300)
    opened = world.only()
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 610))
    world.pass_to(700)
    assert (world.only().id, world.only().certainty) == (opened.id, Certainty.DECISIVE)


def test_planned_maintenance_is_suppressed() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(node_fact("n2", since=0, maintenance=True))
    world.see(not_ready("n2", 10))
    world.pass_to(300)
    assert world.only().state is IncidentState.SUPPRESSED


def test_hosts_that_storm_together_are_not_closed_without_a_person() -> None:
    ports = [link("leaf-1", f"Ethernet{i}", n, "mlx5_0") for i, n in enumerate(FOUR)]
    world = World([*cluster({"llama": FOUR}), *ports])
    world.see(*(storm("leaf-1", f"Ethernet{i}", i) for i in range(4)))
    world.pass_to(60)
    assert not closes_a_node(world.only())
    assert world.only().root.key == "switch/leaf-1"


def test_an_uplink_that_storms_with_a_host_is_its_spreading() -> None:
    world = World(
        [
            *cluster({"llama": FOUR}),
            link("leaf-1", "Ethernet8", "n1", "mlx5_2"),
            link("spine-1", "Ethernet0", peer="leaf-1"),
        ]
    )
    world.see(storm("leaf-1", "Ethernet8", 0), storm("spine-1", "Ethernet0", 1))
    world.pass_to(60)
    assert world.only().root.node == "n1"


def test_the_cabling_told_late_moves_a_storm_from_the_port_to_the_host() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(storm("leaf-1", "Ethernet8", 0))
    world.pass_to(130)
    port = world.only()
    assert port.root.node is None
    world.tell(link("leaf-1", "Ethernet8", "n1", "mlx5_2"))
    world.pass_to(140)
    assert world.only().root.node == "n1"
    assert world.published[port.id].merged_into == world.only().id


def test_jobs_that_came_after_the_fault_or_left_before_it_are_no_victims() -> None:
    world = World(cluster({"llama": FOUR}))
    old = [replace(p, ended_at=at(-900)) for p in pods("old", ["n1"], since=-5000)]
    for pod in [*old, *pods("new", ["n1"], since=100)]:
        world.tell(pod)
    world.see(xid("n1", 79, 0))
    assert world.only().jobs == (job("llama"),)


def test_a_pod_that_moved_is_looked_for_where_it_was() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(xid("n2", 79, 0))
    gone = pods("llama", FOUR)[1]
    world.gone(gone, 60)
    world.tell(replace(gone, uid="llama-1-2", node="n9", scheduled_at=at(70), observed_at=at(70)))
    world.see(*timeouts("llama", [0, 1, 16], 605))
    world.pass_to(700)
    assert world.only().nodes == tuple(FOUR)


def test_teardown_by_our_own_run_opens_nothing_new() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    name = world.only().id
    world.see(run("started", name, 5))
    assert world.only().state is IncidentState.MITIGATING
    world.see(
        *(xid(n, 43, 20, index=i) for i, n in enumerate(FOUR)),
        *(nccl_error("llama", r, 21) for r in range(32)),
    )
    world.see(not_ready("n2", 60))
    world.pass_to(200)
    assert world.only().id == name


def test_signals_after_a_silent_nodes_job_was_stopped_open_nothing_new() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(640)
    name = world.only().id
    world.see(
        run("started", name, 641),
        *(xid(n, 43, 650) for n in FOUR),
        *(nccl_error("llama", r, 760) for r in range(16)),
    )
    world.pass_to(900)
    assert world.only().id == name


def test_a_fault_in_maintenance_is_told_when_a_job_still_stands_there() -> None:
    world = World(cluster({"llama": ["n1"]}, spare=["n2"]))
    for node in ("n1", "n2"):
        world.tell(node_fact(node, since=0, maintenance=True))
    world.see(xid("n1", 79, 10), xid("n2", 79, 10))
    assert {(i.root.node, i.state) for i in world.incidents()} == {
        ("n1", IncidentState.OPEN),
        ("n2", IncidentState.SUPPRESSED),
    }


def test_what_happens_on_a_node_that_we_closed_and_emptied_asks_for_nothing_more() -> None:
    world = World(cluster({"llama": ["n1"]}, spare=["n2"]))
    world.see(xid("n2", 79, 0))
    first = world.only().id
    world.tell(node_fact("n2", since=20, unschedulable=True, owner_incident=first))
    world.see(run("started", first, 10), run("finished", first, 60, "succeeded"))
    world.see(not_ready("n2", 400), xid("n2", 95, 500, index=4))
    world.pass_to(700)
    later = [i for i in world.incidents() if i.id != first]
    assert later
    assert {i.state for i in later} == {IncidentState.SUPPRESSED}
    assert all(first in i.reason for i in later)
    world.tell(node_fact("n2", since=800, ready=True))
    assert {i.state for i in world.incidents() if i.family == "gpu_memory"} == {IncidentState.OPEN}


def test_a_second_fault_on_a_node_that_is_being_handled_joins_the_first() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    first = world.only().id
    world.see(run("started", first, 5))
    world.tell(node_fact("n2", since=10, unschedulable=True, owner_incident=first))
    world.see(pause("n2", "mlx5_2", "sent", 300), xid("n2", 95, 410, index=5))
    world.pass_to(600)
    assert [(i.id == first, i.family) for i in world.incidents()] == [
        (True, "gpu_off_bus"),
        (False, "pfc_storm"),
    ]
    world.see(run("finished", first, 700, "succeeded"), xid("n2", 119, 900, index=6))
    assert {i.family for i in world.incidents()} == {"gpu_off_bus", "pfc_storm", "gpu_fault"}


def test_a_lesser_incident_that_is_being_handled_takes_in_what_is_graver_later() -> None:
    world = World(cluster({"llama": ["n1"]}, spare=["n2"]))
    world.see(not_ready("n2", 0))
    world.pass_to(250)
    first = world.only().id
    world.see(run("started", first, 251))
    world.tell(node_fact("n2", since=252, ready=False, unschedulable=True, owner_incident=first))
    world.see(xid("n2", 79, 400))
    world.pass_to(500)
    assert world.only().id == first
    assert world.only().facts["later_faults"] == ("gpu_off_bus",)
    assert any(c.family == "gpu_off_bus" and not c.chosen for c in world.only().candidates)


def test_what_a_job_outlived_does_not_explain_what_stops_it_later() -> None:
    """A GPU with a memory error waits for a person for hours; its job goes on, and then hangs because of another node."""
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 95, 0))
    first = world.only().id
    world.see(*(progress("llama", 300.0 * i, i) for i in range(1, 12)))
    world.see(*timeouts("llama", range(24), 4200))
    world.pass_to(4300)
    assert [(i.id == first, i.family, i.root.node) for i in world.incidents()] == [
        (True, "gpu_memory", "n1"),
        (False, "silent_node", "n4"),
    ]


def test_progress_within_the_lag_of_a_driver_does_not_clear_the_gpu_that_stops_the_job() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n1", 95, 0), progress("llama", 60, 7))
    world.see(*timeouts("llama", range(24), 680))
    world.pass_to(800)
    assert world.only().family == "gpu_memory"


def test_what_a_restarted_pod_says_does_not_make_its_silent_predecessor_speak() -> None:
    """A node falls silent, its job is moved at once, and the pod that took the silent one's name meets an error elsewhere."""
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(*timeouts("llama", (r for r in range(32) if r // 8 != 1), 600))
    world.pass_to(625)
    accused = world.only()
    assert (accused.family, accused.root.node) == ("silent_node", "n2")
    for pod in pods("llama", FOUR, since=628, attempt=2):
        world.tell(replace(pod, node="n9" if pod.node == "n2" else pod.node, observed_at=at(628)))
    vague = nccl_error("llama", 9, 640)
    vague = replace(vague, entity=replace(vague.entity, rank=None), attributes={"status": 12})
    world.see(vague)
    world.pass_to(800)
    stands = {i.id: i for i in world.incidents()}
    assert stands[accused.id].family == "silent_node"
    assert not stands[accused.id].state.is_over


SILENT_N2 = [r for r in range(32) if r // 8 != 1]


def test_no_node_is_closed_for_silence_while_part_of_the_job_is_not_placed() -> None:
    facts = [f for f in cluster({"llama": FOUR}) if f.kind != "pod" or f.node in FOUR[:2]]
    world = World(facts)
    world.see(*timeouts("llama", range(8), 600))
    world.pass_to(700)
    assert not any(closes_a_node(i) for i in world.revisions)
    assert "16 of the job's 32 ranks" in world.only().reason
    for pod in pods("llama", FOUR):
        world.tell(pod)
    world.see(*timeouts("llama", range(16, 32), 602))
    world.pass_to(800)
    assert (world.only().root.node, world.only().certainty) == ("n2", Certainty.DECISIVE)


@pytest.mark.parametrize("told_late", [False, True])
def test_no_node_is_closed_for_the_silence_of_a_pod_that_was_taken_away(told_late: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    if not told_late:
        world.gone(pods("llama", FOUR)[1], 0)
    world.see(*timeouts("llama", SILENT_N2, 605))
    if told_late:
        world.gone(pods("llama", FOUR)[1], 0)
    world.pass_to(700)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("silent_node", "n2")
    assert not any(closes_a_node(i) for i in world.revisions)


def test_a_pod_that_ends_when_its_peers_give_up_was_silent_all_the_same() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", SILENT_N2, 600))
    for pod in pods("llama", FOUR):
        world.gone(pod, 601)
    world.pass_to(700)
    assert (world.only().root.node, world.only().certainty) == ("n2", Certainty.DECISIVE)
