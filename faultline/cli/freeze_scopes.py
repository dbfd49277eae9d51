"""What a freeze may be of: pools and namespaces that the inventory knows. A slip would freeze nothing, and nobody would know."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from streams.config.setting_types import suggestion
from streams.model.errors import BadInput
from streams.model.facts import Fact, JobFact, NodeFact, PodFact

KINDS = ("pool", "namespace")
_MOST_NAMED = 20


def check_shape(scope: str) -> None:
    """See that a scope is `pool:NAME`, `namespace:NAME` or empty for the whole cluster.

    Raises:
        BadInput: with what may have been meant.
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
    """See that the inventory of the cluster knows what the scope names.

    Raises:
        BadInput: naming what there is, and what may have been meant.
    """
    kind, _, name = scope.partition(":")
    known = _pools(facts) if kind == "pool" else _namespaces(facts)
    if name in known:
        return
    if not known:
        raise BadInput(
            f"no {kind} of cluster {cluster} is known, so none is {name}: is it the right cluster (FAULTLINE_CLUSTER), and "
            "does the inventory run? --force freezes it all the same"
        )
    listed = ", ".join(sorted(known)[:_MOST_NAMED]) + (", …" if len(known) > _MOST_NAMED else "")
    raise BadInput(
        f"there is no {kind} {name} in cluster {cluster}; known are {listed}{suggestion(name, known)} "
        "(--force freezes it all the same, for one that is to come)"
    )


def _pools(facts: Iterable[Fact]) -> set[str]:
    return {fact.pool for fact in facts if isinstance(fact, NodeFact) and fact.pool}


def _namespaces(facts: Iterable[Fact]) -> set[str]:
    pods = {fact.namespace for fact in facts if isinstance(fact, PodFact)}
    return pods | {fact.job.namespace for fact in facts if isinstance(fact, JobFact)}
