from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from sandbox.demo import cluster_layout, stories
from sandbox.demo.shippers import Record, RunningPod
from sandbox.demo.world import JOBS
from sandbox.simulation.topology import GPUS
from streams.detect.detector import Detected, Detector
from streams.model.record import RawRecord
from streams.model.signal import Signal

BEGIN = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
LANGUAGE, SPEECH, RESEARCH = JOBS


def cast() -> list[RunningPod]:
    """Every job on its first four nodes."""
    pods = []
    for number, job in enumerate(JOBS):
        namespace, name = job.split("/")
        for place in range(cluster_layout.PODS):
            node = cluster_layout.node_names()[number * cluster_layout.PODS + place]
            where = f"10.80.{number}.{place + 1}"
            pods.append(
                RunningPod(namespace, f"{name}-{place}", f"uid-{number}-{place}", node, where, job, place * 8)
            )
    return pods


def detected(records: list[Record]) -> list[Detected]:
    detector = Detector(cluster_layout.CLUSTER)
    return [
        detector.detect(
            RawRecord(
                record.topic.name, 0, offset, BEGIN, record.key.encode() if record.key else None, record.value
            )
        )
        for offset, record in enumerate(records)
    ]


def signals_of(scene: stories.Scene) -> list[Signal]:
    cues = sorted(scene.cues, key=lambda cue: cue.after_s)
    found = detected([cue.record for cue in cues])
    assert not [dead for one in found for dead in one.dead]
    return [signal for one in found for signal in one.signals]


def xids(signals: list[Signal], code: int) -> set[str | None]:
    return {s.entity.node for s in signals if s.kind == "gpu.xid" and s.attributes["xid"] == code}


def test_a_gpu_that_falls_off_the_bus_takes_its_whole_job_with_it() -> None:
    scene = stories.gpu_off_the_bus(cast(), LANGUAGE, BEGIN)
    signals = signals_of(scene)
    assert xids(signals, 79) == {scene.node} == {"gpu-03"}
    assert xids(signals, 154) == {"gpu-03"}
    assert xids(signals, 43) >= {"gpu-01", "gpu-02", "gpu-03", "gpu-04"}
    waiting = {s.entity.rank for s in signals if s.kind == "nccl.timeout"}
    assert waiting == set(range(32)) - {20}


def test_a_silent_node_says_nothing_and_all_others_wait() -> None:
    scene = stories.silent_node(cast(), SPEECH, BEGIN)
    signals = signals_of(scene)
    assert scene.node == "gpu-06"
    waiting = [s for s in signals if s.kind == "nccl.timeout"]
    assert {s.entity.node for s in waiting} == {"gpu-05", "gpu-07", "gpu-08"}
    assert {s.entity.rank for s in waiting} == set(range(32)) - set(range(8, 16))
    assert {s.attributes["seq"] for s in waiting} == {118_204}
    assert not [s for s in signals if s.entity.node == scene.node]


def test_a_storm_is_seen_from_the_switch_the_source_and_its_victims() -> None:
    scene = stories.pfc_storm(cast(), RESEARCH, BEGIN)
    storms = [s for s in signals_of(scene) if s.kind == "fabric.pfc_storm"]
    by_direction = {s.attributes["direction"]: s.entity for s in storms}
    assert by_direction["sent"].node == scene.node == "gpu-11"
    assert by_direction["received_by_switch"].switch == "leaf-3"
    assert by_direction["received_by_switch"].port == cluster_layout.port_of("gpu-11", stories.STORM_NIC)
    assert {s.entity.node for s in storms if s.attributes["direction"] == "received"} == {"gpu-03", "gpu-07"}
    assert set(scene.unharmed) == {LANGUAGE, SPEECH}


def test_a_fault_of_the_program_shows_on_every_node_of_its_job() -> None:
    scene = stories.application_fault(cast(), LANGUAGE, BEGIN)
    signals = signals_of(scene)
    assert scene.node is None
    assert xids(signals, 31) == xids(signals, 43) == {"gpu-01", "gpu-02", "gpu-03", "gpu-04"}
    assert Counter(s.kind for s in signals).keys() <= {"gpu.xid", "job.failed", "nccl.error"}


def test_a_host_whose_memory_fails_says_so_itself_and_its_runbook_asks() -> None:
    scene = stories.host_memory(cast(), LANGUAGE, BEGIN)
    signals = signals_of(scene)
    assert scene.asks
    assert scene.node == "gpu-02"
    assert {s.entity.node for s in signals if s.kind == "node.memory"} == {scene.node}
    waiting = {s.entity.rank for s in signals if s.kind == "nccl.timeout"}
    assert waiting == set(range(32)) - {10}


def test_a_healthy_cluster_gives_no_signal_and_one_record_that_nobody_can_read() -> None:
    found = detected(stories.background(BEGIN))
    assert not [signal for one in found for signal in one.signals]
    assert sum(1 for one in found if one.dead) == 1


@pytest.mark.parametrize("nic", range(GPUS))
def test_every_cable_of_the_topology_ends_at_the_port_that_the_stories_name(nic: int) -> None:
    import yaml

    switches = yaml.safe_load(cluster_layout.topology())
    for node in cluster_layout.node_names():
        end = switches[cluster_layout.leaf_of(node)][cluster_layout.port_of(node, nic)]
        assert end == {"node": node, "nic": f"mlx5_{nic}"}
