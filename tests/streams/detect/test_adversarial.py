"""Reports in every wrapping and look-alikes that only resemble them: `corpus/*.jsonl`, in the form that `cases.py` describes.

What is expected must be found with at least these attributes, and nothing else may be found but weak
signs. The quick tier puts the cases of a file to both ways in turn, since what matches does not depend on the way; every case
goes both ways at night.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from tests.streams.detect.cases import CORPUS, Case, Way, cases_of, from_kafka, from_the_command, missing, raw
from tests.streams.detect.lines import firm

FILES = sorted(CORPUS.glob("*.jsonl"))
WAYS = (from_kafka, from_the_command)


def faults(case: Case, way: Way) -> list[str]:
    """What is wrong with what the detector says of a case."""
    found, expected = firm(way(case)), case.get("expect", [])
    unfound, otherwise = missing({"expect": expected}, found)
    if not unfound and not otherwise and len(found) == len(expected):
        return []
    said = [signal.kind for signal in found]
    return [
        f"{way.__name__} {case['family']}: {raw(case['records'][0]).decode()[:200]}\n"
        f"  not found: {unfound}, with other fields: {otherwise}, found: {said}"
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_report_is_found_with_its_fields_and_a_look_alike_raises_nothing(path: Path) -> None:
    wrong = [
        fault for case, way in zip(cases_of(path), cycle(WAYS), strict=False) for fault in faults(case, way)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("way", WAYS, ids=["kafka", "command"])
def test_every_case_says_the_same_in_both_ways(path: Path, way: Way) -> None:
    wrong = [fault for case in cases_of(path) for fault in faults(case, way)]
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_as_large_as_its_claim() -> None:
    cases = [case for path in FILES for case in cases_of(path)]
    assert sum("expect" in case for case in cases) > 300
    assert sum("expect" not in case for case in cases) > 150
