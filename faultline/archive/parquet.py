"""How the archive's Parquet is written: compressed, in groups of rows whose statistics tell which of them a reader needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faultline.archive.rows import ASKED_FOR

GROUP_ROWS = 10_000
"""Rows of a group: what a reader holds at a time, some 10 MB of JSON."""

_COMPARED = ("partition", "offset", "timestamp", "xid", "happened_at", *ASKED_FOR)
_REPEATED = ("topic", "envelope", *ASKED_FOR)


def encoded(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Buffer:
    """A Parquet file of some tables with this schema, one after the other."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out,
        schema,
        compression="zstd",
        use_dictionary=[name for name in _REPEATED if name in schema.names],
        write_statistics=[name for name in _COMPARED if name in schema.names],
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=GROUP_ROWS)
    return out.getvalue()


def spans(group: Any, name: str, low: int, high: int) -> bool:
    """Whether a row group may hold a value of an integer or time column in [low, high); without statistics it may."""
    columns = (group.column(number) for number in range(group.num_columns))
    found = next((column.statistics for column in columns if column.path_in_schema == name), None)
    if found is None or not found.has_min_max:
        return True
    return bool(found.min_raw < high and low <= found.max_raw)
