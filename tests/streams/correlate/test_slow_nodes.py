"""A node whose GPUs all run at a fraction of the clock of its job's other nodes is slow, whatever partition anything lies in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.model.facts import Fact, NodeFact, PodFact
from streams.model.incident import Certainty
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, GPUS, World, at, cluster, failed, job, sign
from tests.streams.ingest.wire import sample, series, write_request

PARTITIONS = 4
H200 = "NVIDIA H200"


@dataclass(frozen=True)
class Reading:
    """What an exporter reads of one GPU."""

    node: str
    gpu: int
    clock: float = 1755.0
    power: float = 640.0
    busy: float = 99.0
    reasons: int | None = None
    model: str = H200
    mig: str = ""


Shipper = Callable[[Sequence[Reading], int], Iterator[tuple[bytes | None, bytes]]]
"""Keys and values of the records about one scrape of all nodes at a time (ms)."""


def dcgm(reading: Reading) -> Iterator[tuple[dict[str, str], float]]:
    labels = {
        "Hostname": reading.node,
        "UUID": f"GPU-{reading.node}-{reading.gpu}",
        "gpu": str(reading.gpu),
        "modelName": reading.model,
        **({"GPU_I_ID": reading.mig} if reading.mig else {}),
    }
    values = {
        "GPU_UTIL": reading.busy,
        "SM_CLOCK": reading.clock,
        "POWER_USAGE": reading.power,
        "CLOCKS_EVENT_REASONS": reading.reasons,
    }
    for name, value in values.items():
        if value is not None:
            yield {"__name__": f"DCGM_FI_DEV_{name}", **labels}, value


def in_batches(readings: Sequence[Reading]) -> Iterator[Sequence[Reading]]:
    """Three nodes each."""
    for start in range(0, len(readings), 3 * GPUS):
        yield readings[start : start + 3 * GPUS]


def remote_write_json(readings: Sequence[Reading], millis: int) -> Iterator[tuple[bytes | None, bytes]]:
    for batch in in_batches(readings):
        found = [
            {
                "labels": [{"name": name, "value": text} for name, text in labels.items()],
                "samples": [{"value": value, "timestamp": str(millis)}],
            }
            for reading in batch
            for labels, value in dcgm(reading)
        ]
        yield None, orjson.dumps({"timeseries": found})


def remote_write(readings: Sequence[Reading], millis: int) -> Iterator[tuple[bytes | None, bytes]]:
    for batch in in_batches(readings):
        yield (
            None,
            write_request(
                *(
                    series(labels, sample(value, millis))
                    for reading in batch
                    for labels, value in dcgm(reading)
                )
            ),
        )


def adapter(readings: Sequence[Reading], millis: int) -> Iterator[tuple[bytes | None, bytes]]:
    """One sample a record."""
    when = at(0) + timedelta(milliseconds=millis - _millis(0))
    for reading in readings:
        for labels, value in dcgm(reading):
            one = {
                "timestamp": when.isoformat(),
                "value": str(value),
                "name": labels["__name__"],
                "labels": labels,
            }
            yield None, orjson.dumps(one)


def telegraf(readings: Sequence[Reading], millis: int) -> Iterator[tuple[bytes | None, bytes]]:
    """One batch a node, under its name."""
    for node in sorted({reading.node for reading in readings}):
        metrics = [
            {
                "name": "nvidia_smi",
                "tags": {"host": node, "index": str(r.gpu), "name": r.model, "uuid": f"GPU-{node}-{r.gpu}"},
                "fields": {"clocks_current_sm": r.clock, "power_draw": r.power, "utilization_gpu": r.busy},
                "timestamp": millis // 1000,
            }
            for r in readings
            if r.node == node
        ]
        yield node.encode(), orjson.dumps({"metrics": metrics})


def exposition(readings: Sequence[Reading], millis: int) -> Iterator[tuple[bytes | None, bytes]]:
    """nvidia_gpu_exporter's page of each node: the clock in hertz, the load as a ratio, and no model."""
    for node in sorted({reading.node for reading in readings}):
        lines = [
            f'{name}{{uuid="{node}-{r.gpu}",index="{r.gpu}",node="{node}"}} {value} {millis}'
            for r in readings
            if r.node == node
            for name, value in (
                ("nvidia_smi_utilization_gpu_ratio", r.busy / 100),
                ("nvidia_smi_clocks_current_sm_clock_hz", r.clock * 1e6),
                ("nvidia_smi_power_draw_watts", r.power),
            )
        ]
        yield None, "\n".join(["# TYPE nvidia_smi_utilization_gpu_ratio gauge", *lines]).encode()


SHIPPERS: dict[str, Shipper] = {
    "Prometheus, remote-write as JSON": remote_write_json,
    "Prometheus, remote-write": remote_write,
    "prometheus-kafka-adapter": adapter,
    "Telegraf": telegraf,
    "nvidia_gpu_exporter's page": exposition,
}


def _millis(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


Fleet = Callable[[float], Iterable[Reading]]
"""What is read of all nodes at a time (seconds)."""


def shipped(fleet: Fleet, until: float, shipper: Shipper, step: float = 60) -> Iterator[Signal]:
    """The signals of a detector that reads four partitions, in which what has no key lies anywhere."""
    detector, anywhere = Detector(CLUSTER), random.Random(7)
    detector.set_partitions({"raw.metrics": PARTITIONS})
    offset, seconds = 0, -1200.0
    while seconds < until:
        for key, value in shipper(list(fleet(seconds)), _millis(seconds)):
            partition = anywhere.randrange(PARTITIONS) if key is None else sum(key) % PARTITIONS
            offset += 1
            raw = RawRecord("raw.metrics", partition, offset, at(seconds + 2), key, value)
            found = detector.detect(raw)
            assert not found.dead
            yield from found.signals
        seconds += step


def world_of(
    signals: Iterable[Signal], facts: Iterable[Fact], until: float, more: Iterable[Signal] = ()
) -> World:
    world = World(facts)
    for one in sorted([*signals, *more], key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=30)
        world.see(one)
    world.pass_to(until, step=30)
    return world


NODES = [f"n{i}" for i in range(1, 13)]
SIX = NODES[:6]
JOBS: dict[str, Sequence[str]] = {"llama": SIX, "gpt": NODES[6:10]}


def all_of(nodes: Iterable[str], **more: object) -> Iterator[Reading]:
    for node in nodes:
        for gpu in range(GPUS):
            yield replace(Reading(node, gpu), **more)  # type: ignore[arg-type]


def low_on(*nodes: str, **more: object) -> Fleet:
    """All nodes at work; from the beginning on these run at a quarter."""
    low = {"clock": 480.0, "power": 215.0, **more}

    def fleet(seconds: float) -> Iterator[Reading]:
        for node in NODES:
            yield from all_of([node], **(low if node in nodes and seconds >= 0 else {}))

    return fleet


@pytest.mark.parametrize("name", SHIPPERS)
def test_a_node_far_below_its_jobs_others_is_slow(name: str) -> None:
    world = world_of(shipped(low_on("n3"), 3000, SHIPPERS[name]), cluster(JOBS), 3600)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.root.gpu) == ("straggler", "n3", None)
    assert (incident.jobs, incident.certainty) == ((job("llama"),), Certainty.LIKELY)
    assert abs(incident.fault_at - at(0)) <= timedelta(minutes=3)
    assert "run at 480 MHz" in incident.reason
    assert "at 215 W each; none of the 5 other nodes of PyTorchJob/train/llama does" in incident.reason


def test_it_is_over_when_the_clocks_are_back() -> None:
    def fleet(seconds: float) -> Iterable[Reading]:
        return low_on("n3")(seconds if seconds < 1500 else -1)

    world = world_of(shipped(fleet, 3000, telegraf), cluster(JOBS), 3600)
    assert world.only().state.is_over


@pytest.mark.parametrize("hosts", [True, False])
def test_a_node_of_no_known_job_is_compared_with_its_own_past(hosts: bool) -> None:
    """Where Slurm's controller logged the job's start before anything was read, nobody knows what runs there."""
    known = [] if hosts else cluster({}, spare=NODES)
    world = world_of(shipped(low_on("n3"), 3000, telegraf), known, 3600)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == ("straggler", "n3", Certainty.WEAK)
    assert "its work went on as that fell" in incident.reason


def slow_steps(name: str, seconds: float) -> Signal:
    return failed(name, 0, seconds, "slow", kind="job.stalled", percent=38, elapsed_ms=900_000)


def test_a_job_of_one_node_says_by_its_steps_that_it_is_slow() -> None:
    found = list(shipped(low_on("n3"), 2400, telegraf))
    alone = cluster({"one": ["n3"], "gpt": NODES[6:10]})
    assert world_of(found, alone, 3600).incidents() == []
    incident = world_of(found, alone, 3600, [slow_steps("one", 1000)]).only()
    assert (incident.family, incident.root.node, incident.jobs) == ("straggler", "n3", (job("one"),))


def test_the_steps_of_its_job_are_a_second_witness() -> None:
    found = list(shipped(low_on("n3"), 2400, remote_write_json))
    incident = world_of(found, cluster(JOBS), 3600, [slow_steps("llama", 1100)]).only()
    assert any(proof.kind == "job.stalled" for proof in incident.proofs)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_what_is_seen_does_not_matter(seed: int) -> None:
    found = list(shipped(low_on("n3"), 2400, remote_write_json))
    world = World()
    world.play(found, 3600, seed)
    for fact in cluster(JOBS):
        world.tell(fact)
    world.pass_to(4500, step=30)
    assert world.only().root.node == "n3"


def power_capped(seconds: float) -> Iterator[Reading]:
    """The whole site, at four tenths of its clocks."""
    yield from all_of(NODES, **({"clock": 790.0, "power": 300.0} if seconds >= 0 else {}))


def varying(seconds: float) -> Iterator[Reading]:
    """Inference: clocks and load of each GPU come and go."""
    drawn = random.Random(seconds)
    for node in NODES:
        for gpu in range(GPUS):
            works = drawn.random() < 0.6
            clock = drawn.uniform(1200, 1980) if works else 345.0
            yield Reading(node, gpu, clock, 500.0 if works else 90.0, 85.0 if works else 2.0)


def evaluating(seconds: float) -> Iterator[Reading]:
    """Each quarter of an hour a checkpoint of four minutes, in which the GPUs rest."""
    rests = {"clock": 345.0, "power": 110.0, "busy": 0.0} if seconds % 900 < 240 else {}
    yield from all_of(SIX, **rests)
    yield from all_of(NODES[6:])


def other_models(seconds: float) -> Iterator[Reading]:
    """Older GPUs, whose clocks are never as high."""
    yield from all_of(NODES[:11])
    yield from all_of(NODES[11:], model="NVIDIA A40", clock=780.0, power=200.0)


def one_gpu(seconds: float) -> Iterator[Reading]:
    for reading in all_of(NODES):
        hot = reading.node == "n3" and reading.gpu == 5 and seconds >= 0
        yield replace(reading, clock=600.0, power=250.0) if hot else reading


def held_by_its_work(seconds: float) -> Iterator[Reading]:
    """One node's program is held by the power that it may draw, and not braked."""
    yield from all_of((n for n in NODES if n != "n3"), clock=1980.0)
    yield from all_of(["n3"], **({"clock": 1000.0, "power": 640.0} if seconds >= 0 else {"clock": 1980.0}))


def idle(seconds: float) -> Iterator[Reading]:
    yield from all_of(NODES[:10], **({"clock": 345.0, "power": 80.0, "busy": 0.0} if seconds >= 0 else {}))
    yield from all_of(NODES[10:])


def with_slices(seconds: float) -> Iterator[Reading]:
    for reading in low_on("n3")(seconds):
        yield replace(reading, mig="1")


def step_by_step(seconds: float) -> Iterator[Reading]:
    """An operator caps a rack, node after node."""
    for i, node in enumerate(NODES[4:8]):
        yield from all_of([node], **({"clock": 480.0, "power": 215.0} if seconds >= 120 * i else {}))
    yield from all_of([*NODES[:4], *NODES[8:]])


QUIET: dict[str, Fleet] = {
    "the whole site is capped": power_capped,
    "a rack is capped, across jobs": low_on("n4", "n5", "n6", "n7"),
    "a rack is capped, node after node": step_by_step,
    "clocks that a job's user set on all of its nodes": low_on(*SIX),
    "clocks that a user set on one node, as DCGM says": low_on("n3", reasons=2),
    "half of a job": low_on("n1", "n2", "n3"),
    "GPUs that rest": idle,
    "inference": varying,
    "checkpoints": evaluating,
    "another model": other_models,
    "one hot GPU": one_gpu,
    "a program at its limit of power": held_by_its_work,
    "MIG": with_slices,
}


@pytest.mark.parametrize("name", QUIET)
def test_what_a_healthy_cluster_does_is_nothing(name: str) -> None:
    shipper = telegraf if name in ("inference", "checkpoints") else remote_write_json
    world = world_of(shipped(QUIET[name], 3600, shipper), cluster(JOBS), 5400)
    slow = [i for i in world.incidents() if i.root.gpu is None]
    assert [(str(i.root), i.reason) for i in slow] == []


def low(node: str, seconds: float, *, unbroken: bool = True, cleared: bool = False) -> Signal:
    """What the detector reports of a node that has been low for eight minutes."""
    return sign(
        "gpu.slow", node, seconds, "node_clock", cleared=cleared, clock_mhz=480, percent=25, before=1755,
        unbroken=unbroken, elapsed_ms=480_000, series="0bde14482639",
    )  # fmt: skip


ALSO_NOTHING: dict[str, tuple[dict[str, Sequence[str]], list[Signal]]] = {
    "a job of two nodes, both low": ({"llama": ["n1", "n2"]}, [low("n1", 500), low("n2", 800)]),
    "single nodes of three jobs at once": (
        {"a": ["n1", "n2"], "b": ["n3", "n4"], "c": ["n5", "n6"]},
        [low("n1", 500), low("n3", 600), low("n5", 700)],
    ),
    "two nodes of four": ({"llama": ["n1", "n2", "n3", "n4"]}, [low("n1", 500), low("n2", 800)]),
    "a node of no job that rested before": ({}, [low("n1", 500, unbroken=False)]),
    "two nodes of no job": ({}, [low("n1", 500), low("n2", 900)]),
    "a node of no job, for some minutes": ({}, [low("n1", 500), low("n1", 700, cleared=True)]),
}


@pytest.mark.parametrize("name", ALSO_NOTHING)
def test_who_else_is_low_decides(name: str) -> None:
    jobs, signals = ALSO_NOTHING[name]
    world = world_of(signals, cluster(jobs, spare=NODES), 5400)
    assert [i for i in world.incidents() if not i.state.is_over] == []


def test_a_second_node_hours_later_is_another_event() -> None:
    world = world_of([low("n1", 500), low("n2", 9000)], cluster({"llama": ["n1", "n2", "n3"]}), 10_800)
    assert [i.root.node for i in world.incidents()] == ["n1", "n2"]


def test_a_job_that_comes_to_a_node_that_is_low_is_slowed_there() -> None:
    world = World(cluster({}, spare=NODES))
    world.see(low("n3", 500, unbroken=False))
    world.pass_to(1800, step=30)
    assert world.incidents() == []
    for fact in cluster({"llama": SIX}):
        world.tell(replace(fact, scheduled_at=at(1800)) if isinstance(fact, PodFact) else fact)
    world.pass_to(3000, step=30)
    assert (world.only().root.node, world.only().jobs) == ("n3", (job("llama"),))


def in_racks() -> list[Fact]:
    """The cluster, with four nodes in each rack."""
    return [
        replace(fact, rack=f"r{(int(fact.name[1:]) - 1) // 4}") if isinstance(fact, NodeFact) else fact
        for fact in cluster(JOBS)
    ]


@pytest.mark.parametrize("reasons", [0x88, 0x48, 0x8])
def test_nodes_of_a_rack_that_the_hardware_brakes_are_one_incident_of_the_rack(reasons: int) -> None:
    """An external brake, heat, and a board that does not say for which of them."""
    found = list(shipped(low_on("n1", "n2", "n3", reasons=reasons), 2400, adapter))
    incident = world_of(found, in_racks(), 3600, [slow_steps("llama", 1100)]).only()
    assert (incident.family, incident.root.rack) == ("power_cooling", "r0")
    assert "3 of 4 nodes of rack r0" in incident.reason


@pytest.mark.parametrize("reasons", [0x4, 0x2, None])
def test_a_rack_that_somebody_capped_is_not_told_of(reasons: int | None) -> None:
    found = list(shipped(low_on("n1", "n2", "n3", reasons=reasons), 2400, adapter))
    assert not world_of(found, in_racks(), 3600, [slow_steps("llama", 1100)]).incidents()


def test_a_node_that_its_board_slows_down_is_one_incident() -> None:
    found = list(shipped(low_on("n3", reasons=0x8), 2400, adapter))
    incident = world_of(found, in_racks(), 3600).only()
    assert (incident.family, incident.root.node) == ("straggler", "n3")
