import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from faultline.replay.capture import Capture, Meta
from faultline.replay.replay import Publication, Replayed, facts_of, replay_capture
from runbooks.language.loader import load
from streams.model.facts import LinkFact
from streams.model.record import RawRecord
from streams.model.watch import ObjectChange
from tests.effort import tries

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODES = [f"node-{number:02}" for number in range(40)]
TRAINING = NODES[:4]
LIBRARY = load()


def node(name: str) -> dict[str, Any]:
    room = {"nvidia.com/gpu": "8"}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": status,
    }


def pod(index: int) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    metadata = {
        "name": f"train-{index}",
        "namespace": "ml",
        "uid": f"uid-train-{index}",
        "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
        "ownerReferences": [owner],
    }
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    status = {
        "phase": "Running",
        "startTime": "2026-03-01T11:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    spec = {"nodeName": NODES[index], "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "ml", "uid": "uid-train"},
    "spec": {"completions": 4, "parallelism": 4, "completionMode": "Indexed"},
}


def kernel_line(seconds: int, host: str, message: str) -> tuple[str, int, dict[str, Any]]:
    at = (NOON + timedelta(seconds=seconds)).timestamp()
    return "raw.node-logs", seconds, {"@timestamp": at, "host": host, "priority": 4, "msg": message}


def rank_line(seconds: int, rank: int) -> tuple[str, int, dict[str, Any]]:
    text = (
        f"[rank{rank}]:[E301 12:10:59.222288244 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600009 milliseconds before timing out."
    )
    at = (NOON + timedelta(seconds=seconds)).timestamp()
    pod_of = {"pod_name": f"train-{rank // 8}", "namespace_name": "ml", "host": NODES[rank // 8]}
    return "raw.job-logs", seconds, {"@timestamp": at, "log": text, "stream": "stderr", "kubernetes": pod_of}


def failed_line(seconds: int, rank: int) -> tuple[str, int, dict[str, Any]]:
    topic, at, line = rank_line(seconds, rank)
    error = f"[rank{rank}]: RuntimeError: CUDA error: an illegal memory access was encountered"
    return topic, at, line | {"log": error}


def capture() -> Capture:
    """A GPU of the second node falls off the bus; every rank of its job times out ten minutes later."""
    lines = [
        kernel_line(
            60,
            TRAINING[1],
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus.",
        )
    ]
    lines += [
        kernel_line(61, host, "NVRM: Xid (PCI:0000:3b:00): 45, pid=77, name=python, Ch 00000008")
        for host in TRAINING
    ]
    lines += [rank_line(662, rank) for rank in range(32)]
    records: dict[str, list[RawRecord]] = {}
    for number, (topic, seconds, value) in enumerate(lines):
        at = NOON + timedelta(seconds=seconds)
        records.setdefault(topic, []).append(
            RawRecord(topic, number % 3, number // 3, at, None, orjson.dumps(value))
        )
    objects = [*map(node, NODES), JOB, *map(pod, range(4))]
    changes = tuple(ObjectChange(NOON, "ADDED", content) for content in objects)
    meta = Meta("east", NOON, NOON + timedelta(minutes=12))
    return Capture(meta, {topic: tuple(found) for topic, found in records.items()}, changes)


def decided_of(capture: Capture) -> Replayed:
    return replay_capture(capture, runbooks=LIBRARY)


@cache
def decided_once() -> Replayed:
    """What is decided of `capture()` as it is."""
    return decided_of(capture())


def test_one_dead_gpu_is_one_incident_and_one_plan() -> None:
    decided = decided_once()
    (incident,) = decided.incidents.values()
    assert (incident.family, incident.root.node, incident.root.gpu and incident.root.gpu.pci) == (
        "gpu_off_bus",
        TRAINING[1],
        "0000:3b:00",
    )
    assert [str(job) for job in incident.jobs] == ["ml/train"]
    nodes = {action.target.name for action in decided.actions if action.target.kind == "Node"}
    assert nodes == {TRAINING[1]}
    assert {action.verdict for action in decided.actions} == {"would"}


def test_every_revision_that_was_shown_is_counted_and_not_part_of_the_decision() -> None:
    decided = decided_once()
    (incident,) = decided.incidents.values()
    publication = decided.publications[incident.id]
    assert publication.revisions == incident.revision
    assert publication.told_at is not None
    assert timedelta() <= publication.told_at - incident.opened_at <= timedelta(seconds=2)
    assert replace(decided, publications=defaultdict(Publication)).decision_hash == decided.decision_hash


def test_the_json_lines_have_the_shape_that_scripts_rely_on() -> None:
    lines = list(decided_once().lines())
    assert [line["record"] for line in lines[:2]] == ["incident", "action"]
    assert lines[-1]["record"] == "summary"
    assert lines[0]["root"] == {"cluster": "east", "node": TRAINING[1], "gpu": {"pci": "0000:3b:00"}}
    assert set(lines[1]) == {
        "record",
        "incident",
        "runbook",
        "step",
        "action",
        "target",
        "verdict",
        "reason",
        "at",
    }
    assert set(lines[-1]) == {"record", "records", "signals", "incidents", "dead_letters", "decision_hash"}


def test_lines_that_are_too_old_to_count_are_told_with_their_number() -> None:
    whole = capture()
    _, _, value = kernel_line(
        90, NODES[0], "NVRM: Xid (PCI:0000:5e:00): 48, pid='<unknown>', name=<unknown>, DBE"
    )
    stale = value | {"@timestamp": (NOON - timedelta(hours=47)).timestamp()}
    late = [
        RawRecord(
            "raw.node-logs", 7, i, NOON + timedelta(seconds=90 + i), None, orjson.dumps(stale | {"n": i})
        )
        for i in range(3)
    ]
    with_late = Capture(
        whole.meta,
        {**whole.records, "raw.node-logs": (*whole.records["raw.node-logs"], *late)},
        whole.kube_changes,
    )
    decided = decided_of(with_late)
    told = [line for line in decided.lines() if line["record"] == "late"]
    assert told
    assert {line["place"] for line in told} == {NODES[0]}
    assert all(line["left_out"] == line["reports"] and "are left out" in line["text"] for line in told)
    assert decided.decision_hash == decided_once().decision_hash


@settings(max_examples=tries(10))
@given(st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_how_partitions_interleave(shuffle: random.Random) -> None:
    whole = capture()
    mixed: dict[str, tuple[RawRecord, ...]] = {}
    for topic, records in whole.records.items():
        lanes = {p: [r for r in records if r.partition == p] for p in range(3)}
        order = [r.partition for r in records]
        shuffle.shuffle(order)
        mixed[topic] = tuple(lanes[partition].pop(0) for partition in order)
    assert decided_of(replace(whole, records=mixed)).decision_hash == decided_once().decision_hash


HOURS = (0.3, 0.8, 1.3, 1.8)
"""When programs crash: not so young that it is their owner's business, far enough apart to be a crash each, all within a week."""


def crashes(*places: tuple[float, str, str]) -> Capture:
    """Programs of the job that fault at those hours, nodes and PCI addresses, and what their ranks print of it."""
    told = (
        "NVRM: Xid (PCI:%s): 31, pid=77, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
    )
    kernel = [kernel_line(int(hours * 3600), host, told % pci) for hours, host, pci in places]
    ended = {(hours, 8 * TRAINING.index(host)) for hours, host, _ in places}
    ranks = [failed_line(int(hours * 3600) + 1, rank) for hours, rank in sorted(ended)]
    lines = sorted((*kernel, *ranks), key=lambda at: at[1])
    records = tuple(
        RawRecord(topic, 0, number, NOON + timedelta(seconds=seconds), None, orjson.dumps(value))
        for number, (topic, seconds, value) in enumerate(lines)
    )
    meta = Meta("east", NOON, NOON + timedelta(seconds=lines[-1][1] + 60))
    return Capture(meta, {"raw.node-logs": records}, capture().kube_changes)


def test_crashes_that_follow_one_gpu_close_its_node_the_third_time_and_ask_first() -> None:
    bad, pci = TRAINING[1], "0000:3b:00"
    decided = decided_of(crashes(*((hours, bad, pci) for hours in HOURS[:3])))
    runs = sorted(decided.runs, key=lambda run: run.created_at)
    assert [run.plan.runbook for run in runs] == ["application", "application", "gpu-quarantine"]
    assert {run.offender for run in runs} == {f"gpu:{bad}/{pci}"}
    last = runs[-1].incident
    closed = [a for a in decided.actions if a.target.kind == "Node"]
    assert {(a.incident, a.target.name, a.verdict) for a in closed} == {(last, bad, "needs_approval")}
    assert {a.action for a in decided.actions if a.incident != last} <= {"open_ticket", "notify", "ask"}
    assert {incident.family for incident in decided.incidents.values()} == {"application"}


def test_crashes_all_over_a_job_are_its_own_and_one_incident_however_often() -> None:
    everywhere = [(hours, host, "0000:3b:00") for hours in HOURS for host in TRAINING]
    in_turn = [(hours, host, "0000:3b:00") for hours, host in zip(HOURS, TRAINING, strict=True)]
    one_node = [(hours, TRAINING[0], pci) for hours in HOURS for pci in ("0000:3b:00", "0000:5e:00")]
    for places in (everywhere, in_turn, one_node):
        decided = decided_of(crashes(*places))
        assert [run.plan.runbook for run in decided.runs] == ["application"]
        assert [incident.facts["crashes"] for incident in decided.incidents.values()] == [4]
        assert not [action for action in decided.actions if action.target.kind == "Node"]


def test_another_culprit_is_another_decision() -> None:
    def moved(records: Iterable[RawRecord]) -> tuple[RawRecord, ...]:
        swap = {TRAINING[1].encode(): TRAINING[2].encode()}
        return tuple(
            r._replace(
                value=(r.value or b"").replace(*next(iter(swap.items())))
                if b": 79" in (r.value or b"")
                else r.value,
            )
            for r in records
        )

    whole = capture()
    other: Mapping[str, tuple[RawRecord, ...]] = {t: moved(r) for t, r in whole.records.items()}
    assert decided_of(replace(whole, records=other)).decision_hash != decided_once().decision_hash


def test_garbage_in_a_capture_is_counted_and_changes_nothing() -> None:
    whole = capture()
    junk = tuple(
        RawRecord("raw.metrics", 0, n, NOON + timedelta(seconds=n), None, value)
        for n, value in enumerate([b"", b"\xff\xfe Xid", b'{"log": "NVRM: Xid', None, b"[" * 5000 + b"Xid"])
    )
    decided = decided_of(replace(whole, records={**whole.records, "raw.metrics": junk}))
    assert decided.records == decided_once().records + len(junk)
    assert decided.decision_hash == decided_once().decision_hash


def test_cabling_counts_where_no_kubernetes_object_is_recorded() -> None:
    topology = "leaf-1:\n  Ethernet8: {node: node-01, nic: mlx5_0}\n  Ethernet96: {switch: spine-1, port: Ethernet3}\n"
    alone = Capture(Meta("c1", NOON, NOON + timedelta(hours=1)), {}, (), topology)
    facts = [fact for _, _, fact in facts_of(alone)]
    assert {(f.switch, f.port, f.node, f.peer_switch) for f in facts if isinstance(f, LinkFact)} == {
        ("leaf-1", "Ethernet8", "node-01", None),
        ("leaf-1", "Ethernet96", None, "spine-1"),
    }
