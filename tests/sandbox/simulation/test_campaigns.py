"""Scenarios, captures and the truth beside them."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import cache
from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from faultline.replay.capture import read
from faultline.replay.record_format import record_line
from sandbox.simulation import look_alikes
from sandbox.simulation.campaign import TEAMS, NoPlace, Simulated, simulate
from sandbox.simulation.faults import KINDS
from sandbox.simulation.kube import GPU, LAUNCHED
from sandbox.simulation.scenario import Scenario, load, pick
from sandbox.simulation.sites import sites
from sandbox.simulation.topology import GPUS
from streams.inventory.recorded_watch import facts
from streams.inventory.topology_file import read_topology
from streams.model.errors import BadInput
from streams.model.facts import PodFact

FILE = Path(__file__).parents[3] / "bench" / "scenarios.yaml"
SCENARIOS = load(FILE)
NAMES = sorted(SCENARIOS)
FAULTY = [name for name in NAMES if SCENARIOS[name].campaign.kinds]


@cache
def played(name: str) -> Simulated:
    return simulate(SCENARIOS[name].sized(32), 1)


def _bytes(simulated: Simulated) -> bytes:
    lines = [record_line(r) for records in simulated.capture.records.values() for r in records]
    changes = [orjson.dumps([str(c.at), c.type, c.object]) for c in simulated.capture.kube_changes]
    truth = [orjson.dumps(line) for line in simulated.truth.lines()]
    return b"".join([*lines, *changes, *truth])


def test_there_are_scenarios_for_every_kind_of_fault() -> None:
    played_kinds = {kind for scenario in SCENARIOS.values() for kind in scenario.campaign.kinds}
    assert played_kinds == set(KINDS)
    assert len(KINDS) >= 40


@pytest.mark.parametrize("name", FAULTY)
def test_a_scenario_finds_a_place_for_its_faults(name: str) -> None:
    simulated = played(name)
    assert simulated.truth.faults
    assert simulated.truth.look_alikes


@pytest.mark.parametrize("name", NAMES)
def test_the_truth_names_what_exists(name: str) -> None:
    simulated = played(name)
    nodes = {
        c.object["metadata"]["name"] for c in simulated.capture.kube_changes if c.object["kind"] == "Node"
    }
    begin, end = simulated.capture.meta.begin, simulated.capture.meta.end
    for fault in simulated.truth.faults:
        assert begin < fault.at < fault.until <= end + timedelta(hours=1)
        if nodes:  # Slurm shows none
            assert {*fault.nodes, *fault.may_cordon} <= nodes
        assert fault.root.plain(), f"{fault.id} has no root"
        if fault.root.node is not None:
            assert fault.root.node in fault.nodes
        if fault.family in ("application", "storage_fault", "fabric_fault"):
            assert not fault.may_cordon
    hit = {(fault.at, node) for fault in simulated.truth.faults for node in fault.may_cordon}
    for thing in simulated.truth.look_alikes:
        near = [
            at
            for at, node in hit
            if node == thing.place and timedelta() <= thing.at - at < timedelta(minutes=4)
        ]
        assert not near, f"{thing.kind} would be taken for part of a fault on {thing.place}"


@pytest.mark.parametrize("name", NAMES[::7])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(name: str) -> None:
    scenario = SCENARIOS[name].sized(32)
    assert _bytes(simulate(scenario, 1)) == _bytes(simulate(scenario, 1))
    assert _bytes(simulate(scenario, 1)) != _bytes(simulate(scenario, 2))


def test_records_are_in_kafkas_order_within_each_partition() -> None:
    for records in played(NAMES[0]).capture.records.values():
        for partition in {record.partition for record in records}:
            mine = [record for record in records if record.partition == partition]
            assert [record.offset for record in mine] == list(range(len(mine)))
            assert [record.timestamp for record in mine] == sorted(record.timestamp for record in mine)


def test_no_two_pods_hold_the_same_gpus_at_a_time() -> None:
    for name in NAMES[::5]:
        there: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for change in played(name).capture.kube_changes:
            if change.object["kind"] != "Pod":
                continue
            uid, node = change.object["metadata"]["uid"], change.object["spec"].get("nodeName", "none")
            gpus = int(change.object["spec"]["containers"][0]["resources"]["limits"].get(GPU, 0))
            there[node].pop(uid, None)
            if change.type != "DELETED" and change.object["status"]["phase"] == "Running":
                there[node][uid] = gpus
                assert sum(there[node].values()) <= GPUS, f"{name}: too many pods on {node} at {change.at}"


@pytest.mark.parametrize(
    "site", sorted(name for name, site in sites().items() if "kubernetes" in site.features)
)
def test_the_inventory_learns_the_ranks_of_every_controllers_pods(site: str) -> None:
    simulated = simulate(SCENARIOS["month"].sized(32).model_copy(update={"site": site}), 1)
    cluster = simulated.capture.meta.cluster
    links = read_topology(cluster, simulated.capture.topology, simulated.capture.meta.begin).links
    learned = [
        record.fact for _, (_, record) in facts(cluster, simulated.capture.kube_changes, links) if record
    ]
    others = [c.object for c in simulated.capture.kube_changes if c.object["kind"] not in ("Node", "Pod")]
    jobs = {thing["metadata"]["name"] for thing in others if thing["metadata"]["namespace"] in TEAMS}
    pods = [
        fact for fact in learned if isinstance(fact, PodFact) and fact.job and fact.job.namespace in TEAMS
    ]
    assert jobs == {pod.job.name for pod in pods if pod.job}
    # A launcher has no rank, and Ray gives its workers theirs when they start.
    numbered = [pod for pod in pods if pod.job and pod.job.kind not in LAUNCHED]
    assert all(pod.rank is not None and pod.ranks == 8 for pod in numbered)


@pytest.mark.parametrize("kind", sorted(look_alikes.KINDS))
def test_each_look_alike_can_be_played_alone(kind: str) -> None:
    scenario = Scenario.model_validate(
        {
            "name": "t", "about": "", "site": "onprem",
            "campaign": {"kinds": ["user_exception"], "faults": 1, "per_hundred_nodes": 0},
            "look_alikes": {"kinds": [kind], "per_fault": 3},
        }
    )  # fmt: skip
    simulated = simulate(scenario, 4)
    assert {thing.kind for thing in simulated.truth.look_alikes} == {kind}


def test_a_cluster_without_a_second_leaf_has_no_place_for_a_broken_uplink() -> None:
    scenario = SCENARIOS["uplink_down"]
    with pytest.raises(NoPlace):
        simulate(scenario.sized(4), 1)


def test_an_unknown_kind_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump({"name": "x", "about": "", "campaign": {"kinds": ["gremlins"]}}))
    with pytest.raises(BadInput, match="gremlins"):
        simulate(pick(file, None), 1)


def test_a_wrong_field_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        yaml.safe_dump({"name": "x", "about": "", "campaign": {"kinds": ["host_oom"]}, "noise": {"lost": 1}})
    )
    with pytest.raises(BadInput, match="noise"):
        load(file)


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "choose one with --name; known are one, two"), ("three", "there is no three; kno")],
)
def test_a_scenario_of_several_has_to_be_chosen(tmp_path: Path, name: str | None, said: str) -> None:
    one = "{name: NAME, about: a, campaign: {kinds: [gpu_hot]}}"
    file = tmp_path / "x.yaml"
    file.write_text(f"- {one.replace('NAME', 'one')}\n- {one.replace('NAME', 'two')}\n")
    assert pick(file, "two").name == "two"
    with pytest.raises(BadInput, match=said):
        pick(file, name)
    file.write_text(f"- {one}\n- {one}\n")
    with pytest.raises(BadInput, match="two scenarios are called NAME"):
        pick(file, "NAME")
    file.write_text(one)
    assert pick(file, None).name == "NAME"


def test_the_command_writes_a_capture_that_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "capture"
    arguments = [str(FILE), "--name", "gpu_off_bus", "--seed", "7", "--nodes", "8", "--out", str(out)]
    done = CliRunner().invoke(cli, ["simulate", *arguments])
    assert done.exit_code == 0, done.output
    simulated = simulate(SCENARIOS["gpu_off_bus"].sized(8), 7)
    again = read(out)
    assert again.topology == simulated.capture.topology
    assert {topic: tuple(records) for topic, records in again.records.items()} == simulated.capture.records
    lines = [orjson.loads(line) for line in (out / "truth.jsonl").read_bytes().splitlines()]
    assert [line["id"] for line in lines if line["record"] == "fault"] == [
        f.id for f in simulated.truth.faults
    ]


def test_the_command_writes_over_a_capture_only_when_it_is_told_to(tmp_path: Path) -> None:
    def simulated(name: str, *more: str) -> Result:
        arguments = [str(FILE), "--name", name, "--nodes", "8", "--out", str(tmp_path), *more]
        return CliRunner().invoke(cli, ["simulate", *arguments])

    assert simulated("gpu_off_bus").exit_code == 0
    (tmp_path / "raw.alerts.jsonl").touch()
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    refused = simulated("quiet_day")
    assert isinstance(refused.exception, BadInput)
    assert "--force" in str(refused.exception)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == held
    assert simulated("gpu_off_bus", "--seed", "7", "--force").exit_code == 0
    assert (
        read(tmp_path).records.keys() == simulate(SCENARIOS["gpu_off_bus"].sized(8), 7).capture.records.keys()
    )


def test_the_command_writes_into_no_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    refused = CliRunner().invoke(
        cli, ["simulate", str(FILE), "--name", "gpu_off_bus", "--out", str(tmp_path), "--force"]
    )
    assert isinstance(refused.exception, BadInput)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
