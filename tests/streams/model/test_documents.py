from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from streams.model.codec import decode, encode
from streams.model.digest import digest
from streams.model.entity import Entity, Gpu
from streams.model.errors import BadInput
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import incident_id
from streams.model.signal import Evidence, Severity, Signal, SignalBatch, signal

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def off_bus(**changes: object) -> Signal:
    values: dict[str, object] = {
        "severity": Severity.CRITICAL,
        "occurred_at": NOW,
        "observed_at": NOW + timedelta(seconds=1),
        "attributes": {"xid": 79},
        "evidence": (Evidence("raw.node-logs", 2, 17, "NVRM: Xid …"),),
    } | changes
    return signal("gpu.xid", Entity("c1", node="n1", gpu=Gpu(pci="0000:1b:00")), **values)  # type: ignore[arg-type]


def test_a_batch_survives_the_way_to_bytes_and_back() -> None:
    batch = SignalBatch("c1", (off_bus(), off_bus(attributes={"xid": 45, "links": (1, 2)})))
    assert decode(SignalBatch, encode(batch)) == batch


def test_the_same_line_shipped_twice_is_one_signal() -> None:
    again = off_bus(observed_at=NOW + timedelta(seconds=9), evidence=(Evidence("raw.node-logs", 5, 99),))
    assert again.id == off_bus().id


@pytest.mark.parametrize("change", [{"attributes": {"xid": 48}}, {"occurred_at": NOW + timedelta(seconds=1)}])
def test_another_observation_is_another_signal(change: dict[str, object]) -> None:
    assert off_bus(**change).id != off_bus().id


def test_facts_of_every_kind_share_one_decoder() -> None:
    record = FactRecord(NodeFact("c1", "n1", "uid-1", NOW, gpus=8, taints=("a=b:NoSchedule",)))
    assert decode(FactRecord, encode(record)) == record


def test_a_document_that_is_wrong_names_the_field() -> None:
    raw = encode(SignalBatch("c1", (off_bus(),))).replace(b'"firing"', b'"maybe"')
    with pytest.raises(BadInput, match=r"SignalBatch: signals\.0\.state"):
        decode(SignalBatch, raw)


def test_an_older_reader_ignores_what_a_newer_writer_added() -> None:
    raw = encode(SignalBatch("c1", ())).replace(b'"schema":1', b'"schema":1,"colour":"blue"')
    assert decode(SignalBatch, raw) == SignalBatch("c1", ())


def test_an_incident_id_depends_on_cluster_root_family_and_incarnation_only() -> None:
    root = Entity("c1", node="n1", gpu=Gpu(pci="0000:1b:00"))
    base = incident_id("c1", root, "gpu_off_bus", 1)
    assert base == incident_id("c1", replace(root, gpu=Gpu(pci="0000:1b:00", uuid="GPU-1")), "gpu_off_bus", 1)
    others = {
        incident_id("c2", root, "gpu_off_bus", 1),
        incident_id("c1", root, "gpu_memory", 1),
        incident_id("c1", root, "gpu_off_bus", 2),
    }
    assert base not in others
    assert len(others) == 3


def test_parts_of_a_digest_cannot_be_confused() -> None:
    assert (
        len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", None), digest("abc", "")})
        == 5
    )
