"""Drains nodes of Slurm and returns them to service: `cordon_node`, `uncordon_node` and `drain_node`.

A drained node gets no new jobs, and those that run on it go on: nothing here ends a job. What somebody else drained, or Slurm has
set down itself, is closed already: it is left with the reason it has, and never resumed.
"""

from __future__ import annotations

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.slurm.api import Missing, SlurmApi
from streams.model.errors import BadInput
from streams.model.hostlists import hosts
from streams.model.slurm import SlurmJob, SlurmNode, job_of, node_of
from streams.model.slurm_marks import OPTED_OUT, NodeOwners, unmarked

JOBS_PAUSE_S = 5.0
DOWN_PAUSE_S = 15.0
LISTED = 5


class SlurmNodes:
    """What is done to one node. Each call reads the node first."""

    def __init__(self, api: SlurmApi) -> None:
        self._api = api

    async def close(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Drain it for an effect, or add the incident to those that hold it."""
        try:
            node = await self._node(effect)
        except Missing:
            return Refused(f"Slurm knows no node {effect.target.name}")
        owners = NodeOwners.of(node)
        if owners is not None and (changed := owners.taken_over(node)):
            if effect.incident in owners.keys:
                return Blocked.person(changed)
            owners = None  # that ended the earlier hold; a new incident may drain the node again
        if owners is not None and owners.keys.get(effect.incident) == effect.key:
            return AlreadyDone(_result(owners))
        if OPTED_OUT in node.comment:
            return Refused(f"{node.name} is opted out ({OPTED_OUT} in its comment)")
        if owners is None and (by := _closed_by_others(node)):
            return AlreadyDone({"prior": "unschedulable", "owners": ()}, by)
        after = NodeOwners({**(owners.keys if owners else {}), effect.incident: effect.key})
        why = owners.why(node.reason) if owners else _why(effect)
        await self._api.drain(node.name, after.reason(why), after.comment(node.comment), lease)
        shared = f", which {next(iter(after.keys))} holds too" if len(after.keys) > 1 else ""
        return Done(_result(after), f"{node.name} is drained{shared}: it gets no new jobs")

    async def open(self, effect: Effect, lease: LeaseHeld, *, whole_incident: bool) -> Outcome:
        """Take the incident, or only this effect, from those that hold it; the last one returns the node to service."""
        try:
            node = await self._node(effect)
        except Missing:
            return AlreadyDone(detail=f"Slurm knows no node {effect.target.name}")
        owners = NodeOwners.of(node)
        held = owners.keys.get(effect.incident) if owners else None
        if owners is None or held is None or (held != effect.key and not whole_incident):
            return AlreadyDone(detail=f"{node.name} is not held for {effect.incident}")
        if changed := owners.taken_over(node):
            return Blocked.person(changed)
        if OPTED_OUT in node.comment:
            return Blocked.person(f"{node.name} is opted out ({OPTED_OUT} in its comment)")
        if node.down and (not node.answers or not owners.is_reason(node.reason)):
            # A resume would bring it up. Slurm keeps a node down that it lost while it was drained, until somebody resumes it.
            return Blocked(
                "Slurm", f"Slurm has {node.name} down: {node.reason or 'no reason given'}", DOWN_PAUSE_S
            )
        left = NodeOwners({i: key for i, key in owners.keys.items() if i != effect.incident})
        if left.keys:
            reason = left.reason(owners.why(node.reason))
            await self._api.drain(node.name, reason, left.comment(node.comment), lease)
            return Done(detail=f"{node.name} stays drained for {', '.join(left.keys)}")
        await self._api.resume(node.name, unmarked(node.comment), lease)
        return Done(detail=f"{node.name} is returned to service")

    async def empty(self, effect: Effect) -> Outcome:
        """Wait until no job is left on it. Changes nothing."""
        try:
            node = await self._node(effect)
        except Missing:
            return AlreadyDone(detail=f"{effect.target.name} is no longer part of Slurm's cluster")
        owners = NodeOwners.of(node)
        if owners is not None and effect.incident in owners.keys and (changed := owners.taken_over(node)):
            return Blocked.person(changed)
        if not node.drained and not node.down:
            return Refused(f"{node.name} is not drained: new jobs would start on it")
        if not node.busy:
            done = f"no job is left on {node.name}"
            return Done(effect.prior, done) if effect.prior else AlreadyDone(detail=done)
        everything = effect.params.get("only") == "all" or not node.gpus
        jobs = [job for job in await self._jobs_on(node.name) if everything or job.gpus]
        running = [job for job in jobs if not job.cleaning_up]
        result = {"jobs": len(jobs)}
        if running:
            names = _names(running)
            return Blocked(names, f"{names} still on {node.name}: a drain ends no job", JOBS_PAUSE_S, result)
        if jobs:
            return Waiting(JOBS_PAUSE_S, f"{_names(jobs)} ending on {node.name}", result)
        return AlreadyDone(detail=f"no job with GPUs is left on {node.name}")

    async def find(self, effect: Effect) -> Outcome:
        """Whether an effect was made, for `lookup`."""
        if effect.action == "drain_node":
            found = await self.empty(effect)
            match found:
                case Done():
                    return AlreadyDone(found.result, found.detail)
                case Blocked() | Refused():
                    return Absent(found.reason)  # it changes nothing, so the next call may say this itself
            return found
        try:
            node = await self._node(effect)
        except Missing as gone:
            return Absent(str(gone)) if effect.action == "cordon_node" else AlreadyDone(detail=str(gone))
        owners = NodeOwners.of(node)
        held = owners.keys.get(effect.incident) if owners else None
        if effect.action == "uncordon_node":
            return AlreadyDone() if held is None else Absent()
        if owners is None or held != effect.key:
            return Absent()
        return AlreadyDone(_result(owners), owners.taken_over(node) or "")

    async def _node(self, effect: Effect) -> SlurmNode:
        return node_of(await self._api.node(effect.target.name))

    async def _jobs_on(self, node: str) -> list[SlurmJob]:
        jobs = [job_of(record) for record in await self._api.jobs()]
        return [job for job in jobs if (job.on_nodes or job.cleaning_up) and may_name(job.nodes, node)]


def may_name(host_list: str, node: str) -> bool:
    """Whether a node is in a host list; one that cannot be read may name any."""
    try:
        return node in hosts(host_list)
    except BadInput:
        return True


def _why(effect: Effect) -> str:
    """What is told in a reason: the incident's."""
    return str(effect.context.get("reason") or effect.context.get("title") or effect.action)


def _closed_by_others(node: SlurmNode) -> str:
    """By whom a node is closed already, in words; empty where it is open."""
    if node.drained:
        return (
            f"{node.name} is drained already by {node.reason_by or 'somebody'}: {node.reason}; it is left so"
        )
    if node.down:
        return f"Slurm has {node.name} down: {node.reason or 'no reason given'}; it gets no jobs"
    return ""


def _result(owners: NodeOwners) -> dict[str, str | tuple[str, ...]]:
    return {"prior": "schedulable", "owners": tuple(owners.keys)}


def _names(jobs: list[SlurmJob]) -> str:
    more = f" and {len(jobs) - LISTED} more" if len(jobs) > LISTED else ""
    return f"job{'s' * (len(jobs) > 1)} {', '.join(str(job.id) for job in jobs[:LISTED])}{more}"
