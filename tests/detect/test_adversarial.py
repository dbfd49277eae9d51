"""Reports in every wrapping and look-alikes that only resemble them: `corpus/*.jsonl`.

A line of a file: `{"family", "records": [text or object, …], "expect"?: [{"kind", "attributes", "host"?, "nic"?, "state"?}, …]}`.
The records go in order through one detector, as Kafka records and as `faultline detect` reads them; what is expected must be
found with at least these attributes, and nothing else may be found.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from streams.detect import Detector, cli_records
from streams.model.signal import Signal
from tests.detect.lines import NOW, record

Case = dict[str, Any]

CORPUS: list[Case] = [
    orjson.loads(line)
    for path in sorted((Path(__file__).parent / "corpus").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
]
REPORTS = [case for case in CORPUS if "expect" in case]
LOOK_ALIKES = [case for case in CORPUS if "expect" not in case]


def _raw(one: Any) -> bytes:
    return one.encode() if isinstance(one, str) else orjson.dumps(one)


def from_kafka(case: Case) -> list[Signal]:
    detector = Detector("c1")
    return [
        signal
        for number, one in enumerate(case["records"])
        for signal in detector.detect(record(_raw(one), offset=number)).signals
    ]


def from_the_command(case: Case) -> list[Signal]:
    # One record's text may hold many lines; records that build on one another come from a file line by line.
    texts = [_raw(one).decode() for one in case["records"]]
    lines = texts if len(texts) > 1 else [orjson.dumps({"id": "a", "text": texts[0]}).decode()]
    return [signal for _, signal in cli_records(lines, cluster="c1", now=NOW + timedelta(seconds=1))]


def _misses(signal: Signal, expected: Case) -> dict[str, Any]:
    """What the signal says otherwise than expected."""
    attributes = expected["attributes"]
    wrong = {name: signal.attributes.get(name) for name in attributes}
    wrong = {name: value for name, value in wrong.items() if value != attributes[name]}
    if "host" in expected and expected["host"] not in (signal.entity.node, signal.entity.switch):
        wrong["host"] = signal.entity.key
    if "nic" in expected and expected["nic"] != signal.entity.nic:
        wrong["nic"] = signal.entity.nic
    if expected.get("state", signal.state) != signal.state:
        wrong["state"] = signal.state
    return wrong


WAYS = pytest.mark.parametrize("way", [from_kafka, from_the_command], ids=["kafka", "command"])


def _name(case: Any) -> str:
    return f"{case['family']}: {_raw(case['records'][0]).decode()[:60]}" if isinstance(case, dict) else ""


@WAYS
@pytest.mark.parametrize("case", REPORTS, ids=_name)
def test_a_report_is_found_with_its_fields_and_nothing_else(
    case: Case, way: Callable[[Case], list[Signal]]
) -> None:
    found = way(case)
    assert sorted(signal.kind for signal in found) == sorted(one["kind"] for one in case["expect"])
    for expected in case["expect"]:
        alike = [_misses(signal, expected) for signal in found if signal.kind == expected["kind"]]
        assert {} in alike, alike


@WAYS
@pytest.mark.parametrize("case", LOOK_ALIKES, ids=_name)
def test_a_look_alike_raises_nothing(case: Case, way: Callable[[Case], list[Signal]]) -> None:
    assert not way(case)


def test_the_corpus_is_as_large_as_its_claim() -> None:
    assert len(REPORTS) > 300
    assert len(LOOK_ALIKES) > 150
