"""One observation that comes in more than once counts once: two pipelines, several partitions, any order."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson
import pytest

from streams.detect.batch import read_safely
from streams.detect.deduplication import RollUp
from streams.detect.detector import Detector
from streams.model.clock import to_millis
from streams.model.incident import Incident
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import CLUSTER, FOUR, at, cluster

FACTS = cluster({"llama": FOUR})
Line = tuple[float, str, str]
"""When the kernel printed it, on which node, and what."""

DOWN, UP = "mlx5_core 0000:3b:00.0 eth2: Link down", "mlx5_core 0000:3b:00.0 eth2: Link up"


def journal(line: Line) -> RawRecord:
    """The line as Fluent Bit reads it from the journal: the host's long name and microseconds."""
    seconds, node, text = line
    value = {
        "@timestamp": at(seconds).timestamp(),
        "MESSAGE": text,
        "_HOSTNAME": f"{node}.example.internal",
        "SYSLOG_IDENTIFIER": "kernel",
        "_TRANSPORT": "kernel",
    }
    return RawRecord("raw.node-logs", 0, int(seconds * 1e6), at(seconds + 1.3), None, orjson.dumps(value))


def syslog(line: Line, late: float = 6.1) -> RawRecord:
    """The same line as rsyslog writes it: the short name, whole seconds, a header before it, and later."""
    seconds, node, text = line
    stamp = at(seconds).strftime("%b %e %H:%M:%S")
    value = f"<4>{stamp} {node} kernel: [{4000 + seconds:12.6f}] {text}"
    return RawRecord(
        "raw.node-logs", 1, int(seconds * 1e6), at(seconds + late), node.encode(), value.encode()
    )


def untimed(line: Line) -> RawRecord:
    """The same line of a shipper that sends the text alone, so that only its arrival is known."""
    seconds, node, text = line
    offset = int(seconds * 1e6)
    return RawRecord("raw.node-logs", 2, offset, at(seconds + 7.7), node.upper().encode(), text.encode())


def signals_of(records: Iterable[RawRecord]) -> list[Signal]:
    """What a detector makes of the records, each partition with windows of its own."""
    detector, found = Detector(CLUSTER), list[Signal]()
    rollups: defaultdict[tuple[str, int], RollUp] = defaultdict(RollUp)
    end: datetime = at(0)
    for record in sorted(records, key=lambda r: r.timestamp):
        end = record.timestamp
        rollup = rollups[record.topic, record.partition]
        found += read_safely(detector, record, rollup).signals
        found += rollup.due(to_millis(end), end.timestamp())
    for rollup in rollups.values():
        found += rollup.due(to_millis(end) + 10_000, end.timestamp() + 10)
    return found


def told(signals: Sequence[Signal], seed: int = 0, until: float = 3000) -> list[Incident]:
    """What stands after these signals, half of them late when there is a seed."""
    arrivals = on_time(FACTS, signals)
    if seed:
        chance = random.Random(seed)
        arrivals = [(when + chance.choice([0.0, 0.0, 400.0]), what) for when, what in arrivals]
    return outcome(arrivals, until=until, restarts=0.05 if seed else 0, seed=seed)


BOUNCE: list[Line] = [(10.31, "n2", DOWN), (10.72, "n2", UP)]
THREE: list[Line] = [
    line for begin in (10.31, 60.05, 150.97) for line in ((begin, "n2", DOWN), (begin + 0.4, "n2", UP))
]
DEAD: list[Line] = [
    (10.31, "n2", DOWN),
    (300.4, "n3", "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."),
    (300.9, "n3", "NVRM: Xid (PCI:0000:5d:00): 31, pid=99, Ch 00000008, MMU Fault"),
    (310.2, "n3", "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus."),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lines", [BOUNCE, THREE, DEAD], ids=["bounce", "three bounces", "dead parts"])
def test_a_line_that_two_pipelines_ship_counts_once(lines: list[Line], seed: int) -> None:
    once = told(signals_of(map(journal, lines)))
    again = told(signals_of([*map(journal, lines), *map(syslog, lines)]), seed)
    assert list(map(essence, again)) == list(map(essence, once))


def test_neither_does_one_of_a_pipeline_that_has_no_clock() -> None:
    once = told(signals_of(map(journal, THREE)))
    again = told(signals_of([*map(journal, THREE), *map(untimed, THREE)]), 7)
    assert list(map(essence, again)) == list(map(essence, once))


def test_a_bounce_shipped_three_times_is_no_flap_and_three_bounces_are() -> None:
    thrice = [record for line in BOUNCE for record in (journal(line), syslog(line), untimed(line))]
    assert not told(signals_of(thrice))
    (flaps,) = told(signals_of([*map(syslog, THREE), *map(journal, THREE)]))
    assert (flaps.family, flaps.flaps, flaps.facts["link"]) == ("nic_link", 2, "link flaps")


def test_a_line_that_is_really_printed_twice_is_two() -> None:
    twice = [DEAD[1], DEAD[3]]
    (incident,) = told(signals_of(map(journal, twice)))
    assert [proof.count for proof in incident.proofs if proof.kind == "gpu.xid"] == [2]


def without_inventory(signals: Sequence[Signal], seed: int = 0) -> list[Incident]:
    """What stands where nobody knows the hosts, as with Slurm alone."""
    arrivals = on_time([], signals)
    chance = random.Random(seed)
    if seed:
        arrivals = [(when + chance.choice([0.0, 0.0, 400.0]), what) for when, what in arrivals]
    return outcome(arrivals, until=3000, restarts=0.1 if seed else 0, seed=seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lines", [BOUNCE, THREE, DEAD], ids=["bounce", "three bounces", "dead parts"])
def test_a_host_that_no_inventory_knows_is_one_under_its_long_and_its_short_name(
    lines: list[Line], seed: int
) -> None:
    once = without_inventory(signals_of(map(syslog, lines)))
    again = without_inventory(signals_of([*map(journal, lines), *map(syslog, lines)]), seed)

    def seen(incidents: list[Incident]) -> list[tuple[Any, ...]]:
        return [(i.id, i.root, i.family, i.flaps, [p.count for p in i.proofs]) for i in incidents]

    assert seen(again) == seen(once)


def test_one_short_name_with_two_domains_is_two_hosts() -> None:
    east, west = (
        replace(signal, entity=replace(signal.entity, node=f"n3.{domain}"))
        for signal, domain in zip(
            signals_of([journal(DEAD[1])]) * 2, ("east.example", "west.example"), strict=True
        )
    )
    west = replace(west, id="other")
    found = without_inventory([east, west, *signals_of([syslog(DEAD[1])])])
    assert {i.root.node for i in found} == {"n3", "n3.east.example", "n3.west.example"}


def sample(metric: str, node: str, seconds: float, value: float, **labels: str) -> dict[str, Any]:
    """A sample as prometheus-kafka-adapter writes it."""
    own = {"__name__": metric, "node": node, "instance": f"{node}:9100", "job": "node", **labels}
    stamp = at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"timestamp": stamp, "value": str(value), "name": metric, "labels": own}


def steps(*when: float, before: int = 0) -> list[tuple[float, int]]:
    """A counter scraped each 15 s for 35 min, that rises at these times."""
    return [(15.0 * n, before + sum(15.0 * n >= t for t in when)) for n in range(140)]


DOWNED, OOM = "node_infiniband_link_downed_total", "node_vmstat_oom_kill"
HOT = "DCGM_FI_DEV_GPU_TEMP"


def counters() -> list[dict[str, Any]]:
    """A link that fell once, another that fell three times, a page error, a hot GPU, and the same of healthy nodes."""
    found = []
    for node in FOUR:
        falls = {"n1": (600.0,), "n2": (600.0, 1200.0, 1800.0)}.get(node, ())
        for seconds, value in steps(*falls, before=2):
            found.append(sample(DOWNED, node, seconds, value, device="mlx5_3", port="1"))
        for seconds, value in steps(*((900.0,) if node == "n3" else ())):
            gpu = {"gpu": "0", "UUID": f"GPU-{node}", "pci_bus_id": "00000000:10:00.0"}
            found.append(sample("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", node, seconds, value, **gpu))
            celsius = 93.0 if node == "n4" and seconds >= 600 else 60.0
            found.append(sample(HOT, node, seconds, celsius, **gpu))
    return found


def shipped(samples: Iterable[dict[str, Any]], partitions: int, seed: int = 1) -> list[RawRecord]:
    """The samples on so many partitions, keyed by node on one and without keys on several."""
    chance = random.Random(seed)
    found = []
    for offset, one in enumerate(samples):
        when = datetime.fromisoformat(one["timestamp"])
        key = one["labels"]["node"].encode() if partitions == 1 else None
        place = chance.randrange(partitions)
        found.append(RawRecord("raw.metrics", place, offset, when, key, orjson.dumps(one)))
    return found


def core(incident: Incident) -> tuple[Any, ...]:
    """What must be the same although rules see each partition by itself, and so some scrapes later."""
    return (
        *(incident.id, incident.root, incident.family, incident.incarnation, incident.certainty),
        *(incident.flaps, incident.facts, incident.jobs, incident.nodes),
        [(proof.kind, proof.entity, proof.role, proof.count) for proof in incident.proofs],
    )


@pytest.mark.parametrize("seed", range(1, 5))
def test_six_partitions_without_keys_tell_what_one_with_keys_does(seed: int) -> None:
    keyed = told(signals_of(shipped(counters(), 1)))
    keyless = told(signals_of(shipped(counters(), 6, seed)), seed)
    assert {i.root.node: i.flaps for i in keyed if i.family == "nic_link"}["n2"] == 2
    assert list(map(core, keyless)) == list(map(core, keyed))


def test_a_counter_that_was_set_back_and_rises_again_is_counted_again() -> None:
    rises = [
        sample(DOWNED, "n2", 15.0 * n, v, device="mlx5_3", port="1")
        for n, v in enumerate([0] * 20 + [1] * 20 + [0] * 20 + [1] * 20 + [0] * 20 + [1] * 20)
    ]
    (flaps,) = told(signals_of(shipped(rises, 1)))
    assert flaps.facts["link"] == "link flaps"
