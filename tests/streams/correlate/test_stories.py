"""The stories an operator would tell, each as the incident that has to come of it."""

from __future__ import annotations

from streams.model.incident import Certainty, IncidentState
from tests.streams.correlate.world import (
    FOUR,
    World,
    cluster,
    job,
    link,
    nccl_error,
    not_ready,
    off_bus,
    pause,
    storm,
    summary,
    timeouts,
    xid,
)


def test_a_gpu_off_the_bus_is_one_incident_with_all_its_noise() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0, index=3))
    opened = world.only()
    assert (opened.family, opened.certainty, opened.revision) == ("gpu_off_bus", Certainty.DECISIVE, 1)
    assert opened.jobs == (job("llama"),)
    world.see(*(xid(n, 45, 3, index=i) for n in FOUR for i in range(8)), *(xid(n, 43, 3.5) for n in FOUR))
    world.see(*timeouts("llama", [r for r in range(32) if r != 11], 600))
    world.pass_to(700)
    incident = world.only()
    assert incident.id == opened.id
    assert (incident.root.node, incident.root.gpu and incident.root.gpu.pci) == ("n2", "0000:13:00")
    assert incident.nodes == tuple(FOUR)
    assert incident.impact.gpus == 32
    assert incident.facts["xid"] == 79
    assert {p.kind for p in incident.proofs if p.role == "symptom"} == {"gpu.xid", "nccl.timeout"}


def test_ranks_of_one_node_that_say_nothing_while_all_others_wait_accuse_that_node() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    assert world.incidents() == []
    world.pass_to(630)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == (
        "silent_node",
        "n3",
        Certainty.DECISIVE,
    )
    assert incident.facts["culprit_ranks"] == tuple(range(16, 24))
    assert incident.facts["silent"] is True
    assert incident.jobs == (job("llama"),)


def test_ranks_that_never_enqueued_what_the_others_wait_in_accuse_their_node() -> None:
    world = World(cluster({"llama": FOUR}))
    waiting = [r for r in range(32) if r // 8 != 1]
    world.see(
        *timeouts("llama", waiting, 600, seq=100),
        *(summary("llama", r, 603, enqueued=102, seq=100) for r in waiting),
    )
    world.see(*(summary("llama", r, 604, enqueued=99) for r in range(8, 16)))
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == (
        "silent_node",
        "n2",
        Certainty.DECISIVE,
    )
    assert incident.facts["silent"] is False


def test_a_storm_sent_by_one_host_takes_the_jobs_it_starves_as_victims() -> None:
    facts = [
        *cluster({"llama": ["n1", "n2"], "gemma": ["n3", "n4"]}),
        link("leaf-1", "Ethernet8", "n1", "mlx5_2"),
    ]
    world = World(facts)
    world.see(storm("leaf-1", "Ethernet8", 0))
    world.pass_to(3)
    world.see(
        pause("n1", "mlx5_2", "sent", 15),
        pause("n3", "mlx5_0", "received", 15),
        pause("n4", "mlx5_0", "received", 15),
    )
    world.see(
        *(nccl_error("gemma", r, 31) for r in range(16)), *(nccl_error("llama", r, 32) for r in range(8, 16))
    )
    world.pass_to(120)
    incident = world.only()
    assert (incident.family, incident.certainty) == ("pfc_storm", Certainty.DECISIVE)
    root = incident.root
    assert (root.node, root.nic, root.switch, root.port) == ("n1", "mlx5_2", "leaf-1", "Ethernet8")
    assert incident.jobs == (job("gemma"), job("llama"))
    assert incident.facts["direction"] == "sent"


def test_the_same_code_on_many_nodes_of_a_job_is_the_application() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(xid(n, 31, i * 0.7, index=i) for i, n in enumerate(FOUR)), *(xid(n, 45, 3) for n in FOUR))
    world.pass_to(30)
    incident = world.only()
    assert (incident.family, incident.root.job, incident.root.node) == ("application", job("llama"), None)
    assert incident.state is IncidentState.OPEN
    world.see(*timeouts("llama", range(32), 602))
    world.pass_to(700)
    assert world.only().id == incident.id


def test_off_bus_without_an_xid_and_without_an_address_is_the_same_gpu() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(off_bus("n2", 0), xid("n2", 79, 1, index=3), off_bus("n2", 1.5, 3))
    world.pass_to(10)
    assert world.only().root.gpu is not None


def test_a_node_that_goes_away_takes_its_jobs_as_victims() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n4", 50))
    world.pass_to(200)
    assert world.incidents() == []
    world.pass_to(300)
    opened = world.only()
    assert (opened.family, opened.root.node, opened.certainty, opened.jobs) == (
        "node_down",
        "n4",
        Certainty.LIKELY,
        (job("llama"),),
    )
