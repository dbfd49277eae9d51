"""Entries of management controllers' logs, by the samples of `catalog/sel.yaml`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.detect.sel import SelSample, sheet
from tests.streams.detect.lines import signals


@pytest.mark.parametrize("sample", sheet().samples, ids=lambda sample: sample.text[:60])
def test_an_entry_is_read_in_any_layout(sample: SelSample) -> None:
    (signal,) = signals(sample.text)
    assert (signal.kind, signal.state) == (sample.kind, sample.state)
    assert {name: signal.attributes.get(name) for name in sample.expect} == sample.expect


@pytest.mark.parametrize("text", sheet().look_alikes, ids=lambda text: text[:60])
def test_an_entry_of_no_fault_raises_nothing(text: str) -> None:
    assert not signals(text)


def test_an_entry_is_dated_by_its_own_clock_unless_that_was_never_set() -> None:
    row = "1 | {} | 07:13:13 | Power Supply #0x51 | Failure detected () | Asserted"
    (signal,) = signals(row.format("11/21/2026"))
    assert signal.occurred_at == datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)
    (unset,) = signals(row.format("13/45/1970"))
    assert unset.occurred_at == unset.observed_at
