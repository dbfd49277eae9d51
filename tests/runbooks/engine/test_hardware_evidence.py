"""The evidence for a vendor: what the incident knows, what it does not know, and never more than fits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from connectors.tickets.evidence_files import UNKNOWN, evidence_text, files_of
from runbooks.engine.hardware_evidence import MAX_BYTES, evidence_of
from runbooks.engine.partition_state import PartitionState
from streams.model.codec import decode, encode
from streams.model.entity import Entity, Gpu
from streams.model.facts import Fact, NodeFact
from streams.model.hardware_evidence import EVIDENCE, TIMELINE_SVG, HardwareEvidence
from streams.model.incident import Incident, Proof
from streams.model.run import Run
from streams.model.signal import Evidence
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, NOW, ROOT, at, cluster, incident, policy

NEIGHBOUR = Entity(CLUSTER, node="node-03", gpu=Gpu(pci="0000:5d:00"))
MACHINE = NodeFact(CLUSTER, "node-03", "uid-3", NOW, aliases=("sn-4711", "uuid-9"), boot_id="boot-1")


def proof(kind: str, line: str, entity: Entity = ROOT, seconds: float = 0.0, count: int = 1) -> Proof:
    place = Evidence("raw.node-logs", 3, int(seconds), line)
    return Proof(
        f"s{seconds}", kind, entity, NOW + timedelta(seconds=seconds), "cause", kind, (place,), count
    )


def fault(*proofs: Proof, root: Entity = ROOT, family: str = "gpu_off_bus") -> Incident:
    return incident(family, root, proofs=proofs)


def gathered(*proofs: Proof, **changes: object) -> HardwareEvidence:
    found = evidence_of(fault(*proofs, **changes), MACHINE)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_it_says_what_lines_and_inventory_tell_of_the_part() -> None:
    root = replace(ROOT, gpu=Gpu(pci="0000:1b:00", uuid="GPU-1b2c", index=3))
    found = gathered(
        proof("gpu.xid", "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.", root),
        proof("gpu.row_remap", "Row Remapper: 1 correctable, 2 uncorrectable, pending: yes", root, 5),
        proof("gpu.driver", "GPU 3: Serial Number: 1653722011234 VBIOS Version: 96.00.89.00.01", root, 6),
        proof("gpu.driver", "NVRM version: NVIDIA UNIX Kernel Module  535.129.03", NEIGHBOUR, 7),
        proof("gpu.driver", "dcgmi diag -r 3: Memory fail", root, 8),
        root=root,
    )
    assert (found.uuid, found.pci_slot, found.index) == ("GPU-1b2c", "0000:1b:00", "3")
    assert (found.serial, found.vbios, found.driver) == ("1653722011234", "96.00.89.00.01", "535.129.03")
    assert (found.node_names, found.boot_id) == (("sn-4711", "uuid-9"), "boot-1")
    assert [one.code for one in found.xids] == ["79"]
    assert len(found.row_remaps) == len(found.diagnostics) == 1


def test_a_neighbours_serial_number_is_not_taken_for_the_parts() -> None:
    assert gathered(proof("gpu.driver", "Serial Number: 1653722011234", NEIGHBOUR)).serial is None


def test_two_lines_that_differ_tell_nothing() -> None:
    lines = [proof("gpu.driver", f"Serial Number: 165372201123{n}", seconds=n) for n in (4, 5)]
    assert gathered(*lines).serial is None


def test_what_is_unknown_is_said_to_be_unknown() -> None:
    text = evidence_text(gathered(proof("gpu.off_bus", "GPU is lost")))
    rows = {line.strip() for line in text.splitlines() if UNKNOWN in line}
    assert {row.partition(":")[0] for row in rows} == {
        "serial number",
        "part number",
        "GPU UUID",
        "index",
        "VBIOS version",
        "driver version",
    }
    assert "none known" in text
    assert "nvidia-bug-report.sh" in text


@pytest.mark.parametrize(
    ("family", "root", "part"),
    [
        ("gpu_memory", ROOT, "GPU"),
        ("nic_link", Entity(CLUSTER, node="node-03", nic="mlx5_0"), "NIC"),
        ("host_fault", Entity(CLUSTER, node="node-03"), "host"),
    ],
)
def test_each_part_is_named_as_what_it_is(family: str, root: Entity, part: str) -> None:
    assert gathered(proof("x", "y", root), root=root, family=family).part == part


def test_an_nvswitch_is_told_by_its_sxids() -> None:
    root = Entity(CLUSTER, node="node-03")
    line = proof("gpu.sxid", "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30", root)
    about = incident("gpu_nvlink", root, proofs=(line,), facts={"sxids": (20034,)})
    found = evidence_of(about, MACHINE)
    assert found is not None
    assert (found.part, found.xids[0].code) == ("NVSwitch", "20034")


@pytest.mark.parametrize("family", ["application", "preemption", "straggler", "fabric_fault", "unknown"])
def test_what_no_vendor_replaces_has_no_evidence(family: str) -> None:
    assert evidence_of(fault(family=family), MACHINE) is None


def test_it_never_exceeds_its_size_and_says_what_is_missing() -> None:
    many = [proof("gpu.xid", "\u20ac" * 1024, seconds=n) for n in range(900)]
    found = gathered(*many)
    assert len(encode(found)) <= MAX_BYTES
    assert found.left_out > 0
    assert "raw lines did not fit" in evidence_text(found)
    assert decode(HardwareEvidence, encode(found)) == found


def test_lines_cannot_forge_or_garble_the_text() -> None:
    text = evidence_text(gathered(proof("gpu.xid", "\x1b[2J\u202ex\x00 Xid (PCI:0000:1b:00): 79")))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_files_are_json_text_and_where_there_is_one_the_drawing() -> None:
    context = {EVIDENCE: encode(gathered()).decode()}
    assert [file.name for file in files_of(context)] == ["evidence.json", "evidence.txt"]
    drawn = files_of({**context, TIMELINE_SVG: "<svg/>"})
    assert [file.name for file in drawn][2:] == ["timeline.svg"]
    assert files_of({}) == []


def test_evidence_of_a_newer_version_is_attached_as_it_is() -> None:
    (only,) = files_of({EVIDENCE: '{"schema": 2}'})
    assert (only.name, only.content) == ("evidence.json", b'{"schema": 2}')


def state() -> PartitionState:
    made = PartitionState(LIBRARY, policy(), ACTIONS)
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        made.take_fact(fact.key, fact)
    return made


def test_the_call_that_opens_a_ticket_carries_it_and_the_stored_run_does_not() -> None:
    responder = state()
    responder.take_incident(fault(proof("gpu.xid", "Xid (PCI:0000:1b:00): 79")))
    responder.advance(at(0))
    batch = responder.collect()
    (call,) = [call for call in batch.calls if call.effect.action == "open_ticket"]
    assert decode(HardwareEvidence, str(call.effect.context[EVIDENCE])).node == "node-03"
    assert all(EVIDENCE not in c.effect.context for c in batch.calls if c is not call)
    (run,) = responder.runs.values()
    assert isinstance(run, Run)
    assert EVIDENCE not in run.context
    assert run.context["node"] == "node-03"


def test_the_ticket_of_a_program_carries_none() -> None:
    responder = state()
    responder.take_incident(fault(family="application"))
    responder.advance(at(0))
    assert all(EVIDENCE not in call.effect.context for call in responder.collect().calls)
