"""A message says the same in every wrapping, and one that only quotes says nothing in any."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector
from streams.ingest import json_documents
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.detect.lines import record
from tests.streams.ingest.wrappings import HOST, KERNEL, PODS, Wrapping

KERNELS_MESSAGES = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    'NVRM: Xid (PCI:0000:9b:00): 31, pid=1942, name="py thon", Ch 00000008, intr 00000000. MMU Fault: ENGINE '
    "GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
]
RANKS_MESSAGES = [
    "[rank3]:[E1121 07:13:14.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600009 milliseconds "
    "before timing out.",
]
QUOTATIONS = [
    'dana: has anyone seen "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"?',
    "we saw NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus. yesterday",
    "test_xid_parser: input 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.' ok",
]


def found(value: bytes) -> list[Signal]:
    raw = record(value, key=HOST.encode())
    detector = Detector("c1")
    return [*detector.detect(raw).signals, *detector.flush_unfinished(raw.topic, raw.partition)]


def plain(signal: Signal) -> tuple[object, ...]:
    return signal.kind, dict(signal.attributes), signal.entity.gpu, signal.entity.rank


@pytest.mark.parametrize("message", KERNELS_MESSAGES, ids=lambda text: text[:40])
@pytest.mark.parametrize("name", KERNEL)
def test_a_kernels_message_says_the_same_in_every_wrapping(name: str, message: str) -> None:
    bare = [plain(signal) for signal in found(message.encode())]
    wrapped = found(KERNEL[name](message))
    assert bare
    assert [plain(signal) for signal in wrapped] == bare
    if name != "talos":  # which names the node by its address
        assert {signal.entity.node for signal in wrapped} == {HOST}


@pytest.mark.parametrize("message", [*RANKS_MESSAGES, KERNELS_MESSAGES[0]], ids=lambda text: text[:40])
@pytest.mark.parametrize("name", PODS)
def test_a_pods_message_says_the_same_in_every_wrapping(name: str, message: str) -> None:
    bare = [plain(signal) for signal in found(message.encode())]
    wrapped = found(PODS[name](message))
    assert bare
    assert [plain(signal) for signal in wrapped] == bare
    assert {signal.entity.node for signal in wrapped} == {HOST}
    if message in RANKS_MESSAGES:
        assert {signal.entity.pod.key for signal in wrapped if signal.entity.pod} == {"ml/train-0"}


@pytest.mark.parametrize("message", QUOTATIONS, ids=lambda text: text[:40])
@pytest.mark.parametrize("name", ["bare", "splunk", *PODS])
def test_a_quotation_says_nothing_in_any_wrapping(name: str, message: str) -> None:
    wrapping: Wrapping = {**KERNEL, **PODS}[name]
    assert not found(wrapping(message))


MESSAGE = KERNELS_MESSAGES[0]
MAPS = {
    name: document
    for name, wrapping in {**KERNEL, **PODS}.items()
    if name
    not in ("journal bytes", "cloudevent base64", "pubsub", "bytes that are not utf-8", "half a surrogate")
    and (raw := wrapping(MESSAGE)).startswith(b"{")
    and raw.count(b"\n{") == 0
    and isinstance(document := json_documents.parsed(raw.decode("utf-8", "replace")), dict)
}
OTHER = st.sampled_from([None, 7, -1.5, True, [], {}, "", "x y", ["a"], {"a": {"b": 1}}])


def holds(value: object) -> bool:
    """True for what holds the message, or part of it."""
    return "Xid" in orjson.dumps(value).decode()


@settings(max_examples=tries(400))
@given(st.sampled_from(sorted(MAPS)), st.randoms(use_true_random=False), OTHER)
def test_a_message_is_found_whatever_else_of_its_record_is_missing_or_of_another_type(
    name: str, chance: Random, other: object
) -> None:
    record_ = dict(MAPS[name])
    for field in list(record_):
        if not holds(record_[field]) and chance.random() < 0.5:
            if chance.random() < 0.5:
                del record_[field]
            else:
                record_[field] = other
    assert [signal.attributes["xid"] for signal in found(orjson.dumps(record_))] == [79]


@settings(max_examples=tries(300))
@given(st.sampled_from(sorted(KERNEL)), st.integers(0, 600), st.binary(max_size=8), st.integers(0, 600))
def test_a_record_that_is_cut_or_damaged_anywhere_is_read_without_a_fault(
    name: str, cut: int, damage: bytes, where: int
) -> None:
    raw = KERNEL[name](MESSAGE)
    for value in (raw[:cut], raw[cut:], raw[:where] + damage + raw[where:]):
        assert len(found(value)) <= 2


@settings(max_examples=tries(300))
@given(st.lists(st.sampled_from(sorted({**KERNEL, **PODS})), min_size=1, max_size=3), st.binary(max_size=60))
def test_any_bytes_in_any_wrapping_are_read_without_a_fault(names: list[str], message: bytes) -> None:
    text = message.decode("utf-8", "replace")
    for name in names:
        text = {**KERNEL, **PODS}[name](text).decode("utf-8", "replace")
    found(text.encode())
