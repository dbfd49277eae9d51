"""nccl-tests (`all_reduce_perf` and its sisters): bus bandwidth out of place and in place, in GB/s, and wrong elements.

    #       size   count   type  redop  root   time  algbw  busbw  #wrong   time  algbw  busbw  #wrong
       8589934592  ...     float   sum    -1  34567  248.5  465.9       0  34569  248.4  465.8       0
    # Out of bounds values : 0 OK
    # Avg bus bandwidth    : 465.9

The largest message counts as the peak. `Avg bus bandwidth` is over all sizes: it says something only where the template fixes
them.
Source: nccl-tests, `doc/PERFORMANCE.md` and `src/common.cu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.diagnostics.reading import Limits, Reading, unreadable

_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([0-9.]+|-?nan|inf)", re.MULTILINE)
_OUT_OF_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s*(\w+)", re.MULTILINE)
_FAILED = re.compile(r"^[^#\n]*\b(?:Test (?:NCCL|CUDA) failure|NCCL failure)\b[^\n]{0,160}", re.MULTILINE)
_GPU = re.compile(r"^#\s+Rank\s+\d+\b", re.MULTILINE)
_TRIPLE = 4
"""Columns of one half: time, algbw, busbw, #wrong."""


def read_nccl_tests(text: str, _limits: Limits) -> Reading:
    """Figures: `busbw_avg_gb_s`, and of the largest message `busbw_out_of_place_gb_s` and `busbw_in_place_gb_s`."""
    faults = [" ".join(match[0].split()) for match in _FAILED.finditer(text)]
    figures: dict[str, float] = {}
    average = _AVERAGE.search(text)
    if average is not None and (value := _number(average[1])) is not None:
        figures["busbw_avg_gb_s"] = value
    rows = sorted(_rows(text))
    if rows:
        _, out_of_place, in_place, _ = rows[-1]
        figures["busbw_out_of_place_gb_s"] = out_of_place
        figures["busbw_in_place_gb_s"] = in_place
        figures["busbw_min_gb_s"] = min(out_of_place, in_place)
    if wrong := sum(row[3] for row in rows):
        faults.append(f"{wrong} wrong elements")
    bounds = _OUT_OF_BOUNDS.search(text)
    if bounds is not None and (bounds[1] != "0" or bounds[2] != "OK"):
        faults.append(f"out of bounds values: {bounds[1]} {bounds[2]}")
    if not figures and not faults:
        return unreadable("there is no bandwidth of nccl-tests in it")
    if average is None:
        faults.append("it did not come to its end: there is no average")
    return Reading(figures, tuple(faults), len(_GPU.findall(text)) or None)


def _rows(text: str) -> Iterator[tuple[int, float, float, int]]:
    """Size in bytes, both bandwidths in GB/s, wrong elements."""
    for line in text.splitlines():
        words = line.split()
        # Columns differ between collectives only before the two halves.
        if len(words) < 2 + 2 * _TRIPLE or not words[0].isdigit():
            continue
        halves = words[-2 * _TRIPLE :]
        found = [_number(halves[2]), _number(halves[2 + _TRIPLE])]
        if found[0] is None or found[1] is None:
            continue
        wrong = sum(int(one) for one in (halves[3], halves[3 + _TRIPLE]) if one.isdigit())
        yield int(words[0]), found[0], found[1], wrong


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
