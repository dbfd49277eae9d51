"""The connector for Slurm, and which effects go to it.

A plan names nodes and jobs, not systems: the same steps close a node of Kubernetes and one of Slurm. Whose a target is says the
uid that the inventory gave it, and a job's kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.base import Absent, AlreadyDone, Blocked, Connector, Done, Effect, LeaseHeld, Outcome, Refused
from connectors.http import translated
from connectors.slurm.api import SlurmApi
from connectors.slurm.jobs import SlurmJobs
from connectors.slurm.nodes import SlurmNodes
from streams.model.clock import Clock, utc_now
from streams.model.entity import SLURM_JOB, is_of_slurm
from streams.model.run import Target

NODES = frozenset({"cordon_node", "uncordon_node", "drain_node"})
JOBS = frozenset({"suspend_job", "resume_job", "verify_job"})


def is_slurms(target: Target) -> bool:
    """Whether a target is a node or a job of Slurm."""
    return target.kind == SLURM_JOB or (target.kind == "Node" and is_of_slurm(target.uid))


class Slurm:
    """Effects on the nodes and jobs of one cluster of Slurm."""

    actions = NODES | JOBS

    def __init__(self, api: SlurmApi, clock: Clock = utc_now) -> None:
        self._api = api
        self._nodes = SlurmNodes(api)
        self._jobs = SlurmJobs(api, clock)

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Make the change, or find that it was made.

        cordon_node    drains the node; `AlreadyDone` where somebody else has, or where Slurm has it down
        uncordon_node  removes this incident from those that hold it; the last one returns the node to service
        drain_node     waits until the jobs on it have ended or were moved; param `only` as on Kubernetes
        suspend_job    `Waiting` until it is held in the queue and its nodes are free, then `Done`
        resume_job     only what this incident stopped; param `avoid`: nodes that its next start leaves out
        verify_job     `Waiting` until it runs, then `Done` with `placements`, `restarts` and `started_at`
        """
        match effect.action:
            case "cordon_node":
                return await translated(self._nodes.close(effect, lease))
            case "uncordon_node":
                return await translated(self._nodes.open(effect, lease, whole_incident=True))
            case "drain_node":
                return await translated(self._nodes.empty(effect))
            case "suspend_job":
                return await translated(self._jobs.stop(effect, lease))
            case "resume_job":
                return await translated(self._jobs.start(effect, lease))
            case "verify_job":
                return await translated(self._jobs.verify(effect))
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Read the node or the job; for `verify_job` check again."""
        if effect.action in NODES:
            return await translated(self._nodes.find(effect))
        if effect.action == "verify_job":
            judged = await translated(self._jobs.verify(effect))
            match judged:
                case Done():
                    return AlreadyDone(judged.result, judged.detail)
                case Refused() | Blocked():
                    return Absent(
                        judged.reason
                    )  # it changes nothing, so the next `apply` may say this itself
            return judged
        return await translated(self._jobs.find(effect)) if effect.action in JOBS else _unknown(effect)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Return the node, or release the job, while it is as this very effect left it."""
        if effect.action == "cordon_node":
            return await translated(self._nodes.open(effect, lease, whole_incident=False))
        if effect.action == "suspend_job":
            return await translated(self._jobs.take_back(effect, lease))
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()


class _Beside:
    """Another connector, for what is not Slurm's; of Slurm's targets it gets none."""

    def __init__(self, slurm: Slurm, other: Connector) -> None:
        self._slurm = slurm
        self._other = other
        self.actions = other.actions

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """By whose the target is."""
        if (of := self._of(effect)) is not None:
            return await of.apply(effect, lease)
        return _not_on_slurm(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """By whose the target is."""
        if (of := self._of(effect)) is not None:
            return await of.lookup(effect)
        return Absent(_not_on_slurm(effect).reason)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """By whose the target is."""
        if (of := self._of(effect)) is not None:
            return await of.undo(effect, lease)
        return _not_on_slurm(effect)

    async def close(self) -> None:
        """Close the other's connections; Slurm's are closed by itself."""
        await self._other.close()

    def _of(self, effect: Effect) -> Connector | None:
        if not is_slurms(effect.target):
            return self._other
        return self._slurm if effect.action in self._slurm.actions else None


def beside(slurm: Slurm, others: Sequence[Connector]) -> list[Connector]:
    """The connectors of a responder that acts on Slurm as well: one for each action, whosever the target is."""
    # For an action of two connectors the later one counts: Slurm's own is left for what nobody else does.
    return [slurm, *(_Beside(slurm, other) for other in others)]


def _not_on_slurm(effect: Effect) -> Refused:
    return Refused(
        f"{effect.action} is not made on nodes of Slurm: {effect.target.name} is left to its operators"
    )


def _unknown(effect: Effect) -> Refused:
    return Refused(f"unknown action {effect.action} for Slurm")
