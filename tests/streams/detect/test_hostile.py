"""Whatever bytes come: no exception, no time beyond what their length is worth, no state without bound."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from re import _constants as sre_constants
from re import _parser as sre_parser
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector, xid_catalog
from streams.detect.matching.log_patterns import MAX_HITS, load_sheet, sheet_names
from streams.detect.rule_state import RuleState
from streams.ingest import header, timestamps
from tests.effort import tries
from tests.streams.detect.lines import NOW, record

SAMPLES = [
    *(sample.text for sample in xid_catalog.catalog().samples),
    *(sample.text for sample in xid_catalog.catalog().glued),
    *(sample.text for name in sheet_names() for row in load_sheet(name).rows for sample in row.samples),
    "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: fallen off the bus and is not responding to commands.",
]
HEADERS = [
    "",
    "[ 12.3] ",
    "Nov 21 07:13:13 h kernel: ",
    "<4>1 2026-11-21T07:13:13Z h kernel - - - ",
    "4,1,2,-;",
    "\ufeff",
    "\x00",
]

REPEATS = (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT, sre_constants.POSSESSIVE_REPEAT)

line = st.one_of(
    st.text(max_size=200),
    st.builds(
        lambda head, text, cut, tail: (head + text)[:cut] + tail,
        st.sampled_from(HEADERS),
        st.sampled_from(SAMPLES),
        st.integers(0, 300),
        st.one_of(st.text(max_size=40), st.sampled_from(SAMPLES)),
    ),
)
scalar = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**63), st.floats(), line)
value = st.recursive(
    scalar,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = [
    "msg",
    "MESSAGE",
    "log",
    "message",
    "kubernetes",
    "host",
    "hostname",
    "@timestamp",
    "date",
    "time",
    "SYSLOG_IDENTIFIER",
    "name",
    "labels",
    "value",
    "timestamp",
    "reason",
    "involvedObject",
    "regarding",
    "object",
    "event",
    "type",
    "metadata",
    "series",
    "lastTimestamp",
    "eventTime",
    "source",
    "pod_name",
    "namespace_name",
    "kind",
]
shipped = st.dictionaries(st.sampled_from(KEYS), value, max_size=8)
metric = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["DCGM_FI_DEV_XID_ERRORS", "rx_prio3_pause_duration", "tx_prio0_pause", "x"]),
        "labels": st.dictionaries(
            st.sampled_from(["gpu", "device", "node", "pci_bus_id", "GPU_I_ID"]), value
        ),
        "value": scalar,
        "timestamp": scalar,
    }
)

ONE = Detector("c")
"""One detector for all examples: what earlier ones left in its state is part of the test."""


def through(raw: bytes) -> None:
    found = ONE.read(record(raw))
    assert len(found.signals) <= 2000
    assert found.ignored <= found.observations
    for signal in found.signals:
        assert len(signal.evidence[0].text) <= 1024
        orjson.dumps(dict(signal.attributes))
    assert not ONE.detect(record(raw)).signals or ONE.select([raw]) == [0]


@settings(max_examples=tries(400))
@given(st.one_of(st.binary(max_size=400), line.map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_read(raw: bytes) -> None:
    through(raw)


@settings(max_examples=tries(400))
@given(st.one_of(shipped, metric, st.lists(st.one_of(shipped, metric), max_size=3), value))
def test_any_json_is_read(document: Any) -> None:
    through(
        orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS, default=str)
    )


@settings(max_examples=tries(300))
@given(st.lists(line, max_size=6), st.integers(0, 2000))
def test_any_batch_of_lines_cut_anywhere_is_read(lines: list[str], cut: int) -> None:
    through("\n".join(lines).encode("utf-8", "replace")[:cut])
    through(b"\n".join(orjson.dumps({"log": text}) for text in map(_encodable, lines))[:cut])


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@settings(max_examples=tries(300))
@given(st.text(max_size=80), st.datetimes(timezones=st.just(UTC)))
def test_any_text_has_a_header_or_none(text: str, reference: datetime) -> None:
    found = header.read(text, reference)
    assert 0 <= found.start <= len(text)
    timestamps.any_form(text)


HOSTILE = [
    "NVRM: Xid (" * 1500,
    "NVRM: Xid (PCI:" + "0" * 16000,
    "NVRM: Xid (PCI:0000:3b:00): 79, " * 500,
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=" + "a, " * 5000,
    "NVRM: Xid (PCI:0000:3b:00): 149, " + "A_" * 8000,
    "NVRM: Xid (PCI:0000:3b:00): 145, " + "RLW_X Fatal XC0 i0 Link " * 600,
    "NVRM: " * 2700,
    "[" * 16000 + "NVRM: Xid (PCI:0000:3b:00): 79",
    "(" * 8000 + ")" * 8000 + "NVRM: Xid (PCI:0000:3b:00): 79",
    "a " * 8000 + "NVRM: Xid (PCI:0000:3b:00): 79",
    "Watchdog caught collective operation timeout " * 350,
    "WorkNCCL(" * 1800 + "timed out in blocking wait",
    "NET/IB : " * 1700 + "Got completion from peer",
    "last enqueued NCCL work: 1, last completed " * 350,
    "PFC Watchdog detected PFC storm on " * 460,
    "PFC Watchdog detected PFC storm on" + " " * 16000,
    "epoch 1 [" * 1700,
    "step: " * 2600,
    "iteration 1/" * 1300,
    "fallen off the bus and is not " * 540,
    "<1>1 " + "[" * 16000,
    "1 a b c d " + "[x]" * 5000,
    "\"'`" * 5000 + "NVRM: Xid (PCI:0000:3b:00): 79",
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_a_hostile_line_is_read_and_gives_no_more_signals_than_a_line_may(text: str) -> None:
    pod = {"pod_name": "p", "namespace_name": "ns"}
    found = Detector("c").read(record(orjson.dumps({"log": text, "kubernetes": pod})))
    assert len(found.signals) <= MAX_HITS * 4


def patterns_of(package: str) -> list[tuple[str, Any]]:
    """Every compiled pattern that a package's modules and the rows of its data files hold."""
    found: list[tuple[str, Any]] = []
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if hasattr(value, "finditer") and hasattr(value, "pattern"):
                found.append((f"{info.name}.{name}", value))
    return found


PATTERNS = sorted(
    {
        name: value
        for package in ("streams.detect", "streams.ingest")
        for name, value in patterns_of(package)
    }.items()
)


def test_the_patterns_of_both_packages_are_looked_at() -> None:
    assert len(PATTERNS) > 40


@pytest.mark.parametrize(
    ("name", "pattern"), PATTERNS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_pattern_is_linear_by_its_engine_or_bounded_by_its_form(name: str, pattern: Any) -> None:
    """RE2 is linear whatever the text. Another engine may only be given patterns in which every repetition is bounded."""
    if isinstance(pattern, re.Pattern):
        assert not list(unbounded(sre_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))), name


def unbounded(tree: Any) -> Iterator[Any]:
    """Repetitions without an upper bound, wherever they stand, but for those of one class at a pattern's very end."""
    for position, (operation, argument) in enumerate(tree):
        if operation in REPEATS:
            _, most, inner = argument
            if most == sre_constants.MAXREPEAT:
                yield tree[position]
            yield from unbounded(inner)
        elif operation is sre_constants.SUBPATTERN:
            yield from unbounded(argument[3])
        elif operation is sre_constants.BRANCH:
            for branch in argument[1]:
                yield from unbounded(branch)
        elif operation in (sre_constants.ASSERT, sre_constants.ASSERT_NOT):
            yield from unbounded(argument[1])


def test_the_check_of_bounds_sees_what_is_unbounded() -> None:
    for text in ("a+", "(?:a|b*)c", "(?=x*)", "(a{2,})"):
        assert list(unbounded(sre_parser.parse(text))), text
    assert not list(unbounded(sre_parser.parse("a{0,9}(?:b|c?){1,4}")))


def test_state_forgets_the_oldest() -> None:
    table = RuleState().table("a rule's", 3)
    for number in range(10):
        table[(number,)] = (number,)
        table[(0,)] = (0,)
    assert set(table) == {(8,), (9,), (0,)}


def test_years_at_both_ends_of_the_calendar_are_no_error() -> None:
    for stamp in (
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "Feb 29 00:00:00",
        "Nov 31 00:00:00",
    ):
        ONE.read(record(f"{stamp} h kernel: NVRM: Xid (PCI:0000:3b:00): 79", at=NOW))
