"""Lines in the forms they arrive in. Each is put through alone, as `faultline detect` does with a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from streams.detect import cli_records
from streams.model.signal import Signal
from tests.streams.detect.lines import NOW, firm

CORPUS = yaml.safe_load((Path(__file__).parent / "corpus.yaml").read_text())


def of_text(text: str) -> list[Signal]:
    line = orjson.dumps({"id": 1, "text": text}).decode()
    return [signal for _, signal in cli_records([line], cluster="c1", now=NOW)]


@pytest.mark.parametrize("line", CORPUS["found"], ids=lambda line: line["text"][:70])
def test_a_line_is_found_with_all_its_fields(line: dict[str, Any]) -> None:
    signal = of_text(line["text"])[0]
    assert signal.kind == line["kind"]
    expect = {name: tuple(v) if isinstance(v, list) else v for name, v in line["expect"].items()}
    assert {name: signal.attributes.get(name) for name in expect} == expect
    assert line.get("host") == (signal.entity.node or signal.entity.switch)


@pytest.mark.parametrize("text", CORPUS["left_alone"], ids=lambda text: text[:70])
def test_a_line_that_says_nothing_of_ours_is_left_alone(text: str) -> None:
    assert not firm(of_text(text))
