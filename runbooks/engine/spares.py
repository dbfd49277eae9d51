"""Which warm spare takes the place of a lost node, and what the new place costs. Pure, over the inventory.

A spare is a node that the site keeps in reserve: it bears the label and the taint `faultline.dev/spare`, so that nothing is
scheduled there. It is released (its taint removed) when a job needs a node of that place and none is free. Whoever needs several
nodes gets all of them or none: half a gang would hold the spares and still not run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runbooks.engine.job_condition import JobCondition, condition_of
from streams.inventory.cluster_view import ClusterView
from streams.model.entity import JobRef
from streams.model.facts import NodeFact, taint_key
from streams.model.message import some

SPARE = "faultline.dev/spare"
"""Label and taint of a node in reserve."""

MOST_NAMED = 8
"""How many spares a plan names: it is approved with them."""

TOLD = 3
"""How many of them are told with their places."""

_KEEPS_OUT = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, order=True)
class Spare:
    """A node in reserve, and how far it is from the place of the lost one: 0 is as good as before."""

    distance: int
    node: str
    place: str
    """What its place means for the job, e.g. `same leaf leaf-03`."""


@dataclass(frozen=True, slots=True)
class SpareChoice:
    """The spares to release, nearest first, or why none is."""

    spares: tuple[Spare, ...] = ()
    why_none: str = ""

    @property
    def listed(self) -> str:
        """As the parameter `spares` of the two actions: `node=place` each, between ` | `."""
        return " | ".join(f"{spare.node}={spare.place}" for spare in self.spares)

    @property
    def told(self) -> str:
        """For people: the nearest few, with their places."""
        return some([f"{spare.node} ({spare.place})" for spare in self.spares], TOLD)


def is_spare(node: NodeFact) -> bool:
    """Whether the node is in reserve now."""
    return any(taint_key(taint) == SPARE for taint in node.taints)


def choice(node: str, jobs: Iterable[JobRef], view: ClusterView) -> SpareChoice:
    """The spares that may take the place of `node`. Without any spare in the cluster there is nothing to say."""
    lost = view.nodes.get(node)
    reserve = view.tainted(SPARE)
    if lost is None or not reserve:
        return SpareChoice()
    moving = [job for job in jobs if condition_of(job.key, view) is JobCondition.STANDS]
    if not moving:
        return SpareChoice(why_none="no job needs a node in its place")
    fit = sorted(
        Spare(*_place(fact, lost))
        for fact in reserve
        if _fits(fact, lost) and not any(view.pods_on(fact.name))
    )
    if not fit:
        return SpareChoice(why_none=f"none of {len(reserve)} spares is ready and like {node}")
    missing = max(len(_missing(job, node, view)) for job in moving)
    free = [_place(fact, lost)[0] for fact in view.nodes.values() if _is_free(fact, lost, view)]
    if sum(distance <= fit[0].distance for distance in free) >= missing:
        return SpareChoice(why_none="nodes as near as the spares are free")
    if len(free) + len(fit) < missing:
        there = f"{len(fit)} spares and {len(free)} free nodes"
        return SpareChoice(why_none=f"the job lacks {missing} nodes and there are {there}: all or none")
    return SpareChoice(tuple(fit[:MOST_NAMED]))


def _place(fact: NodeFact, lost: NodeFact) -> tuple[int, str, str]:
    """Distance, name and meaning of a node's place, compared with the lost one's; only what is known of both counts."""
    if lost.nvlink_domain and fact.nvlink_domain != lost.nvlink_domain:
        where = f"outside the NVLink domain {lost.nvlink_domain}"
        return 3, fact.name, f"{where}: what went over NVLink now goes over the network, expect a slower job"
    if lost.nvlink_domain:
        return 0, fact.name, f"same NVLink domain {lost.nvlink_domain}"
    if lost.leaf and fact.leaf == lost.leaf:
        return 0, fact.name, f"same leaf {lost.leaf}"
    if lost.leaf and fact.leaf:
        where = f"leaf {fact.leaf} instead of {lost.leaf}"
        near = lost.rack is not None and fact.rack == lost.rack
        return (
            (1 if near else 2),
            fact.name,
            f"{where}: its traffic crosses a spine, expect slower collectives",
        )
    if lost.rack and fact.rack == lost.rack:
        return 1, fact.name, f"same rack {lost.rack}, its leaf is not known"
    return 2, fact.name, "its place in the network is not known"


def _fits(fact: NodeFact, lost: NodeFact) -> bool:
    """Whether a job that ran on the lost node can run here once the spare's taint is gone."""
    others = [t for t in fact.taints if taint_key(t) != SPARE and t.rpartition(":")[2] in _KEEPS_OUT]
    usable = (
        fact.ready and not fact.unschedulable and not fact.joining and fact.worked_on is None and not others
    )
    return (
        usable
        and fact.managed
        and fact.protected_by is None
        and not fact.owners
        and fact.gpus_allocatable >= max(1, lost.gpus)
        and (lost.pool is None or fact.pool in (None, lost.pool))
    )


def _is_free(fact: NodeFact, lost: NodeFact, view: ClusterView) -> bool:
    """Whether the scheduler could use the node now: like the lost one, in nobody's reserve, and empty."""
    return (
        not is_spare(fact)
        and fact.name != lost.name
        and _fits(fact, lost)
        and not any(view.pods_on(fact.name))
    )


def _missing(job: JobRef, node: str, view: ClusterView) -> set[str]:
    """The nodes of a job that it cannot come back to."""
    unusable = {
        name
        for name in view.nodes_of(job.key)
        if (fact := view.nodes.get(name)) is None or not fact.ready or fact.unschedulable
    }
    return unusable | {node}
