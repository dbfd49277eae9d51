"""Scopes of a freeze: pools and namespaces of the inventory. A typo would silently freeze nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from faultline.cli.names import unknown_name
from streams.model.errors import BadInput
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.similar import suggestion

KINDS = ("pool", "namespace")


def check_shape(scope: str) -> None:
    """Check that a scope is `pool:NAME`, `namespace:NAME` or empty for the whole cluster.

    Raises:
        BadInput: with a suggestion.
    """
    if not scope:
        return
    kind, colon, name = scope.partition(":")
    if kind not in KINDS or not name:
        meant = "" if kind in KINDS else suggestion(kind, KINDS)
        if not colon:
            meant = f"; did you mean pool:{scope}?"
        raise BadInput(f"--scope {scope!r}: give pool:NAME, namespace:NAME or nothing for the cluster{meant}")


def check_known(scope: str, facts: Collection[Fact], cluster: str) -> None:
    """Check that the pool or namespace is in the inventory of the cluster.

    Raises:
        BadInput: listing the known names, with a suggestion.
    """
    kind, _, name = scope.partition(":")
    known = _pools(facts) if kind == "pool" else _namespaces(facts)
    if name in known:
        return
    if not known:
        raise BadInput(
            f"the inventory has no {kind} of cluster {cluster}, so {name} cannot be checked: is it the right cluster "
            "(FAULTLINE_CLUSTER), and is the inventory process running? --force freezes it anyway"
        )
    raise BadInput(
        f"{unknown_name(kind, name, known, place=f'in cluster {cluster}')} "
        "(--force freezes it anyway, for one that does not exist yet)"
    )


def _pools(facts: Iterable[Fact]) -> set[str]:
    return {fact.pool for fact in facts if isinstance(fact, NodeFact) and fact.pool}


def _namespaces(facts: Iterable[Fact]) -> set[str]:
    pods = {fact.namespace for fact in facts if isinstance(fact, PodFact)}
    return pods | {fact.job.namespace for fact in facts if isinstance(fact, JobFact)}
