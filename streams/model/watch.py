"""What a watch of an API server tells, whoever does the watching: the server itself, or the lines of a capture."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object as it now is, or was when it was deleted. A repeated list tells what exists as ADDED again."""

    at: datetime
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KindListed:
    """A full list of one kind has been told: what it did not name is gone.

    `kind` is `group/version/Kind`; `names` are `(namespace, name)`, the namespace empty for cluster-wide kinds. None
    instead of names: the server does not serve the kind now, which says nothing about its objects. `served` is False as long
    as it does not, also when its objects count as gone by then.
    """

    at: datetime
    kind: str
    names: frozenset[tuple[str, str]] | None
    served: bool = True


WatchEvent = ObjectChange | KindListed
Tell = Callable[[WatchEvent], Awaitable[None]]


class Watches(Protocol):
    """The port through which the inventory hears of a cluster."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that are watched, `group/version/Kind` each; every one is told as listed sooner or later."""

    async def run(self, tell: Tell) -> None:
        """Tell every change, for ever, through outages. Ends only by cancellation."""
