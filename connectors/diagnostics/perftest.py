"""perftest (`ib_write_bw` and its sisters): peak and average bandwidth of the largest message, in Gb/s.

    #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
     65536      5000             392.51             392.40               0.748

With `--report_gbits` the unit is Gb/sec; without it, MB/sec (of 2^20 bytes) or MiB/sec.
Source: perftest, `src/perftest_parameters.h`.
"""

from __future__ import annotations

import re

from connectors.diagnostics.reading import Limits, Reading, unreadable

_HEADER = re.compile(
    r"^\s*#bytes\s+#iterations\s+BW peak\[(?P<unit>Gb/sec|MB/sec|MiB/sec)\]\s+BW average\[(?P=unit)\]",
    re.MULTILINE,
)
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([0-9.]+)\s+([0-9.]+)(?:\s+[0-9.]+)?\s*$")
_BROKEN = re.compile(
    r"^\s*(?:Couldn't|Unable to|Failed|failed|.*Completion with error)[^\n]{0,160}", re.MULTILINE
)
_GBITS_OF = {"Gb/sec": 1.0, "MB/sec": 8 * 2**20 / 1e9, "MiB/sec": 8 * 2**20 / 1e9}


def read_perftest(text: str, _limits: Limits) -> Reading:
    """Figures: `bw_peak_gbit_s` and `bw_avg_gbit_s` of the largest message."""
    faults = [" ".join(match[0].split()) for match in _BROKEN.finditer(text)]
    rows: list[tuple[int, float, float]] = []
    for header in _HEADER.finditer(text):
        factor = _GBITS_OF[header["unit"]]
        for line in text[header.end() :].splitlines()[1:]:
            if (row := _ROW.match(line)) is None:
                break
            try:
                rows.append((int(row[1]), float(row[3]) * factor, float(row[4]) * factor))
            except ValueError:
                break
    if not rows:
        return Reading(faults=tuple(faults)) if faults else unreadable("there is no table of perftest in it")
    _, peak, average = max(rows)
    return Reading({"bw_peak_gbit_s": peak, "bw_avg_gbit_s": average}, tuple(faults))
