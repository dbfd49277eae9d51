"""What is asked before RE2 is: the words that a pattern needs, and which of many patterns match at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import load_sheet, sheet_names
from streams.model.errors import ConfigError

SHEETS = [load_sheet(name) for name in sheet_names()]
PATTERNS = sorted(
    {
        pattern
        for sheet in SHEETS
        for pattern in (*sheet.fields, *(p for row in sheet.rows for p in (row.opens, *row.fields)))
    }
)
SAMPLES = [sample.text for sheet in SHEETS for row in sheet.rows for sample in row.samples]


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"OpType=(?P<op>\w+)", "OpType="),
        (r"ran for (?P<ms>\d+) milliseconds", " milliseconds"),
        (r"Timeout\(ms\)=(\d+)", "Timeout(ms)="),
        (r"NVRM\s?: x", "NVRM"),
        (r"ab?c{0,3}d", "a"),
        (r"a|b", ""),
        (r"(?:a|b)", ""),
        (r"(?i)Xid", ""),
        (r"x(?i:id)", ""),
        (r"[]a]foo+", "foo"),
        (r"[^\]|]foo(bar)?", "foo"),
        (r"\x1b\[0m", ""),
    ],
)
def test_the_literal_of_a_pattern_is_in_every_match(pattern: str, literal: str) -> None:
    assert re2_patterns.literal_of(pattern) == literal


def test_the_literal_hides_no_match_in_any_sample_of_the_catalog() -> None:
    for pattern in PATTERNS:
        compiled, plain = re2_patterns.compile(pattern), re2_patterns.compile(f"(?:{pattern})")
        for text in SAMPLES:
            spans = [match.span() for match in compiled.finditer(text)]
            assert spans == [match.span() for match in plain.finditer(text)], (pattern, text)


@given(st.text("ab(|)?*+{1,2}[]^\\.", max_size=12), st.text("ab(1,", max_size=12))
def test_the_literal_hides_no_match_of_any_pattern(pattern: str, text: str) -> None:
    try:
        compiled = re2_patterns.compile(pattern)
    except ConfigError:
        return
    # Nothing within a group counts as a literal.
    assert compiled.search(text) is not None or re2_patterns.compile(f"(?:{pattern})").search(text) is None


def test_of_several_patterns_those_that_match_are_named_in_order() -> None:
    several = re2_patterns.PatternSet([b"foo", b"ba[rz]", b"(?i)FO+"])
    assert several.found_in("a bar and a foo") == [0, 1, 2]
    assert several.found_in("nothing") == []
    assert re2_patterns.PatternSet([]).found_in("anything") == []
    with pytest.raises(ConfigError, match=r"\("):
        re2_patterns.PatternSet([b"("])
