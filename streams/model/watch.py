"""Events of a watch of an API server, live or from a capture."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from streams.model.facts import Fact


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One object as it now is, or was when it was deleted. A repeated list reports existing objects as ADDED again.

    `where` is the file and line of a recorded one, for whoever has to mend it.
    """

    at: datetime
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Mapping[str, Any]
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class KindListed:
    """A full list of one kind is complete: objects that it did not name are gone.

    `kind` is `group/version/Kind`; `names` are `(namespace, name)`, the namespace empty for cluster-wide kinds. None
    instead of names: the server does not serve the kind now, which says nothing about its objects. `served` is False while
    it does not, even once its objects count as gone. `permitted` is False while it is served and may not be listed: its objects
    never count as gone for that.
    """

    at: datetime
    kind: str
    names: frozenset[tuple[str, str]] | None
    served: bool = True
    permitted: bool = True


@dataclass(frozen=True, slots=True)
class FactsListed:
    """All that another system than an API server runs, as facts: of what it told before, what is not among them is gone."""

    at: datetime
    kind: str
    facts: tuple[Fact, ...]


WatchEvent = ObjectChange | KindListed | FactsListed
Emit = Callable[[WatchEvent], Awaitable[None]]


class Watches(Protocol):
    """The port through which the inventory receives the objects of a cluster."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that are watched, `group/version/Kind` each; a `KindListed` is emitted for every one."""

    async def run(self, emit: Emit) -> None:
        """Emit every change, through outages, until cancelled."""
