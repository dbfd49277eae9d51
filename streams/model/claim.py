"""Values of the topic `installation`: which cluster the topics belong to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import AwareDatetime


@dataclass(frozen=True, slots=True)
class Claim:
    """A process with this `cluster` in its settings wants to use these topics.

    `replaces` is the previous name when an operator has renamed the cluster.
    """

    cluster: str
    by: str
    at: AwareDatetime
    replaces: str = ""
    schema: int = 1


def holder(claims: Iterable[Claim]) -> Claim | None:
    """The claim that holds the topics. It depends on the order of the log alone, so all readers agree.

    The first claim holds; a later one takes over only where it names the cluster that it replaces.
    """
    held: Claim | None = None
    for claim in claims:
        if held is None or (claim.cluster != held.cluster and claim.replaces == held.cluster):
            held = claim
    return held
