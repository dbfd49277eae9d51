"""The corpus as values: cases, the two ways in which their records come in, and what a signal says otherwise than expected.

A line of a file: `{"family", "records": [text or object, …], "expect"?: [{"kind", "attributes", "host"?, "nic"?, "state"?}, …]}`.
The records go in order through one detector; a case without `expect` must raise nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson

from streams.detect import Detector, cli_records
from streams.model.signal import Signal
from tests.streams.detect.lines import NOW, record

Case = dict[str, Any]
Way = Callable[[Case], list[Signal]]

CORPUS = Path(__file__).parent / "corpus"


def cases_of(path: Path) -> list[Case]:
    """The cases of one file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def raw(one: Any) -> bytes:
    """A record's value as its shipper would send it."""
    return one.encode() if isinstance(one, str) else orjson.dumps(one)


def from_kafka(case: Case) -> list[Signal]:
    """The case's signals when its records are Kafka records."""
    detector = Detector("c1")
    return [
        signal
        for number, one in enumerate(case["records"])
        for signal in detector.detect(record(raw(one), offset=number)).signals
    ]


def from_the_command(case: Case) -> list[Signal]:
    """The case's signals when its records are put to `faultline detect`."""
    # One record's text may hold many lines; records that build on one another come from a file line by line.
    texts = [raw(one).decode() for one in case["records"]]
    lines = texts if len(texts) > 1 else [orjson.dumps({"id": "a", "text": texts[0]}).decode()]
    return [signal for _, signal in cli_records(lines, cluster="c1", now=NOW + timedelta(seconds=1))]


def otherwise(signal: Signal, expected: Case) -> dict[str, Any]:
    """What the signal says otherwise than expected."""
    attributes = expected["attributes"]
    said = {name: _plain(signal.attributes.get(name)) for name in attributes}
    wrong = {name: value for name, value in said.items() if value != attributes[name]}
    if "host" in expected and expected["host"] not in (signal.entity.node, signal.entity.switch):
        wrong["host"] = signal.entity.key
    if "nic" in expected and expected["nic"] != signal.entity.nic:
        wrong["nic"] = signal.entity.nic
    if expected.get("state", signal.state) != signal.state:
        wrong["state"] = signal.state
    return wrong


def missing(case: Case, signals: list[Signal]) -> tuple[list[str], list[dict[str, Any]]]:
    """The kinds that were expected and not found, and for those found with other fields what they say instead."""
    left = list(signals)
    unfound: list[str] = []
    wrong: list[dict[str, Any]] = []
    for expected in case["expect"]:
        alike = [signal for signal in left if signal.kind == expected["kind"]]
        if not alike:
            unfound.append(expected["kind"])
            continue
        best = min(alike, key=lambda signal: len(otherwise(signal, expected)))
        left.remove(best)
        if difference := otherwise(best, expected):
            wrong.append(difference)
    return unfound, wrong


def _plain(value: Any) -> Any:
    """As JSON would have it."""
    return list(value) if isinstance(value, tuple) else value
