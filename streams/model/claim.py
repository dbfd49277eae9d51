"""Whose topics these are: the values of the topic `installation`, and who holds them after all that was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import AwareDatetime


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody with this `cluster` in the settings wants to work with these topics.

    `replaces` is the cluster that held them, when a person has given the cluster another name.
    """

    cluster: str
    by: str
    at: AwareDatetime
    replaces: str = ""
    schema: int = 1


def holder(claims: Iterable[Claim]) -> Claim | None:
    """Who holds the topics, by the order of the log alone: so all that read it agree, whoever was first to ask.

    The first claim holds; a later one takes its place only where it names the cluster that it replaces.
    """
    held: Claim | None = None
    for claim in claims:
        if held is None or (claim.cluster != held.cluster and claim.replaces == held.cluster):
            held = claim
    return held
