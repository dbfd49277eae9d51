"""Settings for nodes that go at a known time: spot notices and announced maintenance."""

from __future__ import annotations

from pydantic import Field

from streams.config.section import Section


class NoticeSettings(Section):
    """How long before its announced end a node is closed and emptied."""

    move_s: float = Field(
        1200.0,
        gt=0,
        le=86_400,
        description="time to move the jobs of a node, until it is known how long that takes here",
    )
    margin_s: float = Field(600.0, ge=0, le=86_400, description="and this much earlier than that")
    stop_s: float = Field(
        180.0,
        gt=0,
        le=86_400,
        description="with less time left than this no job is suspended and no pod evicted: the cloud's own SIGTERM does it",
    )
