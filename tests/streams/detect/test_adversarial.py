"""Reports in every wrapping and look-alikes that only resemble them: `corpus/*.jsonl`, in the form that `cases.py` describes.

What is expected must be found with at least these attributes, and nothing else may be found.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.streams.detect.cases import CORPUS as FOLDER
from tests.streams.detect.cases import Case, Way, cases_of, from_kafka, from_the_command, missing, raw

CORPUS = [case for path in sorted(FOLDER.glob("*.jsonl")) for case in cases_of(path)]
REPORTS = [case for case in CORPUS if "expect" in case]
LOOK_ALIKES = [case for case in CORPUS if "expect" not in case]


WAYS = pytest.mark.parametrize("way", [from_kafka, from_the_command], ids=["kafka", "command"])


def _name(case: Any) -> str:
    return f"{case['family']}: {raw(case['records'][0]).decode()[:60]}" if isinstance(case, dict) else ""


@WAYS
@pytest.mark.parametrize("case", REPORTS, ids=_name)
def test_a_report_is_found_with_its_fields_and_nothing_else(case: Case, way: Way) -> None:
    found = way(case)
    assert sorted(signal.kind for signal in found) == sorted(one["kind"] for one in case["expect"])
    assert missing(case, found) == ([], [])


@WAYS
@pytest.mark.parametrize("case", LOOK_ALIKES, ids=_name)
def test_a_look_alike_raises_nothing(case: Case, way: Way) -> None:
    assert not way(case)


def test_the_corpus_is_as_large_as_its_claim() -> None:
    assert len(REPORTS) > 300
    assert len(LOOK_ALIKES) > 150
