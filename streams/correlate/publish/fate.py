"""What became of an explanation that was weighed."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    """Whether a root is an incident, else why not."""

    TOLD = "told"
    """It is an incident of its own."""
    PART = "part"
    """It follows from another root, and is part of that one's incident."""
    UNFELT = "unfelt"
    """It is an incident only where a job suffers, and none does."""
    WAITS = "waits"
    """It may open only later: more evidence may be on its way."""
    BRIEF = "brief"
    """It may be over by itself soon, and costs nobody anything until then."""
    OLD_NEWS = "old_news"
    """It was known for so long without being one that only forgetting would make it one."""
    EXPECTED = "expected"
    """Somebody's work on the node does this to it."""
