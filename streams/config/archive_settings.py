"""Settings of the archive: where it is, how often it is written, how long it is kept."""

from __future__ import annotations

from pydantic import Field

from streams.config.section import DAY_S, Section


class ArchiveSettings(Section):
    """The archive: months of signals, facts, incidents and runs as Parquet. Off until there is a `url`."""

    url: str | None = Field(
        None,
        min_length=1,
        description="folder, or s3://BUCKET/PATH, gs://BUCKET/PATH; what else the store needs (region, endpoint_override) as "
        "?KEY=VALUE, its login by the store's own variables. One installation each",
    )
    flush_s: float = Field(
        300.0, gt=0, le=DAY_S, description="a record is written this long after it was read at the latest"
    )
    flush_rows: int = Field(
        50_000, ge=1, le=1_000_000, description="rows that are held in memory before some are written"
    )
    keep_days: int | None = Field(
        None, ge=1, le=36_500, description="whole days older than this are deleted; none when not set"
    )
