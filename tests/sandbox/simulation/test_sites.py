"""The kinds of sites: each has names and pipelines of its own, and no place for faults of what it lacks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import orjson
import pytest

from sandbox.simulation import faults
from sandbox.simulation.campaign import NoPlace, Simulated, simulate
from sandbox.simulation.scenario import load
from sandbox.simulation.sites import choose, sites
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS
from streams.model.errors import BadInput

SCENARIOS = load(Path(__file__).parents[3] / "bench" / "scenarios.yaml")
SITES = sorted(sites())


@cache
def at(site: str, name: str = "gpu_off_bus", nodes: int = 32) -> Simulated:
    return simulate(SCENARIOS[name].sized(nodes).model_copy(update={"site": site}), 1)


def values(simulated: Simulated, topic: str) -> list[bytes]:
    return [record.value or b"" for record in simulated.capture.records.get(topic, ())]


@pytest.mark.parametrize("site", SITES)
def test_the_same_seed_gives_the_same_records_at_every_site(site: str) -> None:
    again = simulate(SCENARIOS["gpu_off_bus"].sized(32).model_copy(update={"site": site}), 1)
    assert again.capture.records == at(site).capture.records
    assert again.truth.lines() == at(site).truth.lines()


@pytest.mark.parametrize("site", SITES)
def test_keys_and_partitions_are_those_of_the_site(site: str) -> None:
    row = sites()[site]
    for topic, pipelines in ((RAW_NODE_LOGS, row.node_logs), (RAW_JOB_LOGS, row.job_logs)):
        records = at(site).capture.records[topic.name]
        assert {record.partition for record in records} <= set(range(row.partitions))
        assert any(record.key is None for record in records) == any(not each.keyed for each in pipelines)


@pytest.mark.parametrize(
    ("site", "topic", "name"),
    [
        ("onprem", RAW_NODE_LOGS, b'"_HOSTNAME":"gpu-a01-01.dc2.kestrel.example"'),
        ("onprem", RAW_JOB_LOGS, b'"host":"gpu-a'),
        ("cloud", RAW_NODE_LOGS, b'"host":"ip-10-64-0-2"'),
        ("cloud", RAW_JOB_LOGS, b'.us-east-2.compute.internal"'),
        ("slurm", RAW_JOB_LOGS, b'.hpc.borealis.example"'),
        ("nvl72", RAW_NODE_LOGS, b"gb-r01-t01.helios.internal"),
        ("lab", RAW_FABRIC, b'"system_name":"lab-01"'),
    ],
)
def test_hosts_go_by_the_names_that_each_pipeline_has_for_them(site: str, topic: str, name: bytes) -> None:
    assert any(name in value for value in values(at(site, nodes=64), topic.name))  # type: ignore[attr-defined]


def test_slurm_shows_neither_objects_nor_events_but_its_controller_speaks() -> None:
    simulated = at("slurm")
    assert simulated.capture.kube_changes == ()
    assert RAW_K8S_EVENTS.name not in simulated.capture.records
    lines = values(simulated, RAW_NODE_LOGS.name)
    assert any(b"sched: Allocate JobId=48001" in line for line in lines)
    job = simulated.truth.faults[0].jobs[0]
    assert job["kind"] == "Slurm"
    assert any(
        orjson.loads(v)["fields"]["slurm_job_id"] == job["name"] for v in values(simulated, RAW_JOB_LOGS.name)
    )


@pytest.mark.parametrize(
    ("kind", "speaker", "opening"),
    [("MPIJob", b"-launcher-", b"[1,"), ("RayCluster", b"-head-", b"(TrainWorker pid=")],
)
def test_a_launcher_prints_the_lines_of_all_workers_and_says_whose_each_is(
    kind: str, speaker: bytes, opening: bytes
) -> None:
    scenario = SCENARIOS["user_exception"].sized(32).bare()
    mix = scenario.jobs.model_copy(update={"controllers": (kind,)})
    simulated = simulate(scenario.model_copy(update={"site": "lab", "jobs": mix}), 1)
    lines = values(simulated, RAW_JOB_LOGS.name)
    assert lines
    assert all(speaker in line and b'"log":"' + opening in line for line in lines)


def test_mpirun_tags_a_line_that_names_no_rank_with_the_rank_that_printed_it() -> None:
    """Before PyTorch 2.2 a watchdog's line has the place in the group alone, in a group of all ranks the rank."""
    scenario = SCENARIOS["silent_rank"].sized(32).bare()
    mix = scenario.jobs.model_copy(
        update={"controllers": ("MPIJob",), "torch": ("2.1",), "tensor": (1,), "pipeline": (1,)}
    )
    simulated = simulate(scenario.model_copy(update={"site": "lab", "jobs": mix}), 1)
    said = [
        re.search(rb"\[1,(\d+)\]<stderr>:\[E ProcessGroupNCCL.cpp:616\] \[Rank (\d+)\]", line)
        for line in values(simulated, RAW_JOB_LOGS.name)
    ]
    ranks = [(match[1], match[2]) for match in said if match is not None]
    assert len(ranks) > 8
    assert all(tag == rank for tag, rank in ranks)


def test_a_collector_sends_a_scrape_of_a_host_as_one_record() -> None:
    scrapes = [orjson.loads(value) for value in values(at("nvl72", "straggler", 48), RAW_METRICS.name)]
    about = [scrape["resourceMetrics"][0] for scrape in scrapes]
    points = [
        [p for m in one["scopeMetrics"][0]["metrics"] for p in m["gauge"]["dataPoints"]] for one in about
    ]
    assert max(map(len, points)) >= 8 * 3
    assert all(len({point["timeUnixNano"] for point in mine}) == 1 for mine in points)


def test_what_tells_where_things_are_is_a_file_a_label_or_a_neighbour() -> None:
    assert at("onprem").capture.topology
    assert not at("nvl72").capture.topology
    node = next(c.object for c in at("nvl72").capture.kube_changes if c.object["kind"] == "Node")
    assert node["metadata"]["labels"]["helios.internal/power-feed"] == "feed-a-r01"
    assert any(b'"lldp"' in value for value in values(at("lab"), RAW_FABRIC.name))


@pytest.mark.parametrize(
    ("site", "name"),
    [("cloud", "pfc_storm_host"), ("cloud", "nic_flap"), ("slurm", "image_pull"), ("lab", "rack_cooling")],
)
def test_a_fault_of_what_a_site_lacks_has_no_place_there(site: str, name: str) -> None:
    with pytest.raises(NoPlace):
        at(site, name)


def test_scenarios_go_around_the_sites_by_their_seeds() -> None:
    needs = [faults.needs("gpu_off_bus")]
    assert {choose(None, needs, seed) for seed in range(5)} == set(SITES)
    assert {choose(None, [faults.needs("pfc_storm_host")], seed) for seed in range(5)} == {
        "onprem",
        "nvl72",
        "lab",
    }
    assert "lab" not in {choose(None, needs, seed, nodes=512) for seed in range(9)}


def test_an_unknown_site_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="atlantis"):
        at("atlantis")
