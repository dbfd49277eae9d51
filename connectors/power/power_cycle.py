"""`power_cycle_node`: takes the power from a node and gives it back, through its BMC. With `leave_off` it only takes it.

It is the rung after a reboot, for a node that a reboot did not help or that does not answer any more, and the fence before a dead
node's pods are given up. Rules:

- As for a reboot, the node has to be held by this incident, and no pod may use its GPUs. On a node that is not Ready, pods that
  are Terminating past their grace do not count: only its kubelet could end them, and it is silent.
- The BMC has to be the node's own: its system's UUID is the one that the node reports.
- Never twice: the node is marked before the BMC is asked. Where the answer is lost, the boot id and the power state are read back
  first, and only a node that stayed Ready on the same boot is asked again.
- A BMC that takes a reset proves nothing. Done is another boot id and Ready; with `leave_off`, a power state of Off.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from connectors.base import (
    Absent,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from connectors.http import Ambiguous, outcome_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import ownership_of, replaced
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.node_work import Others, nobody
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.work_results import boot_of
from connectors.power.bmc_address import address_of, login_of
from connectors.power.node_guard import NodeGuard
from connectors.power.power_mark import PowerMark, mark_of, marked, unreadable
from connectors.power.redfish import Bmc, System, logged_in, refused_login
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import Clock, parse_rfc3339, rfc3339, utc_now
from streams.model.errors import Permanent, Temporary

ACTION = "power_cycle_node"
LOOK_AGAIN_S = 10.0
NO_SIGN_S = 180.0
"""A node that is Ready on the same boot so long after a reset that may have been sent was not reset: a kubelet that stops is
NotReady within 50 s."""
REFUSED_LOGIN_PAUSE_S = 120.0
"""BMCs lock an account after a few wrong passwords."""
MOST_ASKED = 2


class PowerCycle:
    """Power of the nodes of one cluster. The target's `name` is the node's; its `uid`, if given, must match."""

    actions = frozenset({ACTION})

    def __init__(
        self, cluster: Cluster, settings: NodeWorkSettings, clock: Clock = utc_now, others: Others = nobody
    ) -> None:
        self._cluster = cluster
        self._settings = settings.redfish
        self._clock = clock
        self._guard = NodeGuard(cluster, clock, others, settings.wait_for_others_s)

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Ask the BMC, or see what came of it: `Waiting`, finally `Done`.

        `Unknown` where the BMC may or may not have taken it, `Retry` where it certainly did not.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        if effect.params.get("leave_off", False) not in (True, False):
            return Refused(
                f"{ACTION}: `leave_off` is {effect.params['leave_off']!r}, known are true and false"
            )
        return await attempted(lambda: self._once(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Without our mark on the node nothing was sent. With it, something may have been."""

        async def once() -> Outcome:
            node = await self._guard.node(effect)
            mark = mark_of(node) if node is not None else None
            if node is not None and (why := unreadable(node)):
                return Waiting(LOOK_AGAIN_S, f"{effect.target.name}: {why}", {"unsure": True})
            if mark is None or mark.effect != effect.key:
                return Absent("the node has no mark of it, and that is written before the BMC is asked")
            return Waiting(
                LOOK_AGAIN_S,
                "the BMC may have been asked; boot and power are read back",
                {**_known(mark, effect), "unsure": True},
            )

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Always `Refused`."""
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _once(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        node = await self._guard.node(effect)
        if node is None or replaced(node, effect):
            return Refused(f"{effect.target.name} is not in the cluster any more, or another one")
        if why := unreadable(node):
            return Blocked("its mark", f"{effect.target.name}: {why}", 60.0)
        mark = mark_of(node)
        mine = mark is not None and mark.effect == effect.key
        if effect.prior.get("asked") or effect.prior.get("unsure"):
            if mark is None or not mine:
                return Blocked.person(f"someone took our mark off {effect.target.name}")
            return await self._watched(node, mark, effect, lease)
        # Whatever was tried before was certainly not sent: it begins anew.
        if (
            no := await self._guard.keeps_from(node, effect, must_boot=not effect.params.get("leave_off"))
        ) is not None:
            return no
        try:
            async with self._bmc(node) as bmc:
                system = await bmc.system()
                if why := _another(node, system, required=self._settings.match_uuid):
                    return Refused(why)
                way, first = _way(system, self._settings.way, leave_off=bool(effect.params.get("leave_off")))
                if not first:
                    return Refused(way)
                began = PowerMark(effect.key, effect.incident, way, boot_of(node), "")
                return await self._ask(bmc, system, first, began, effect, lease)
        except (Temporary, Permanent, Ambiguous) as error:
            return _failed(error)

    async def _ask(
        self, bmc: Bmc, system: System, kind: str, mark: PowerMark, effect: Effect, lease: LeaseHeld
    ) -> Outcome:
        """Mark the node, then send one reset."""
        asking = replace(mark, at=rfc3339(self._clock()))
        if (no := await self._write(asking, effect, lease)) is not None:
            return no
        task = await bmc.reset(system, kind, lease)
        asked = effect.prior.get("asked")
        count = (asked if isinstance(asked, int) else 0) + 1
        result = {**_known(asking, effect), "asked": count, "task": task, "last": kind, "unsure": False}
        return Waiting(LOOK_AGAIN_S, f"the BMC of {effect.target.name} has taken {kind}", result)

    async def _watched(self, node: Object, mark: PowerMark, effect: Effect, lease: LeaseHeld) -> Outcome:
        """What came of what was asked."""
        name, result = effect.target.name, {**_known(mark, effect)}
        booted = boot_of(node) not in ("", mark.boot)
        if mark.way != "off" and booted:
            if is_ready(node):
                return Done(result | {"boot_id": boot_of(node)}, f"{name} was power-cycled and is ready")
            return Waiting(LOOK_AGAIN_S, f"{name} has booted and is not ready yet", result)
        try:
            async with self._bmc(node) as bmc:
                return await self._by_power(bmc, node, mark, effect, lease)
        except Ambiguous as error:
            return Unknown(str(error))
        except (Temporary, Permanent) as error:
            # A BMC may be away while its machine has no power: only the step's deadline ends the wait.
            return Waiting(
                REFUSED_LOGIN_PAUSE_S if refused_login(error) else LOOK_AGAIN_S, str(error), result
            )

    async def _by_power(
        self, bmc: Bmc, node: Object, mark: PowerMark, effect: Effect, lease: LeaseHeld
    ) -> Outcome:
        name, result = effect.target.name, _known(mark, effect)
        system = await bmc.system()
        if why := _another(node, system, required=self._settings.match_uuid):
            return Refused(why)
        off = system.power == "Off"
        if off and mark.way == "off":
            return await self._is_off(mark, effect, lease)
        if off and mark.way == "off-on":
            return await self._ask(bmc, system, "On", mark, effect, lease)
        task = str(effect.prior.get("task") or "")
        state, said = await bmc.task(task) if task else ("done", "")
        if state == "failed":
            return Refused(f"the BMC of {name} could not do it: {said or 'it does not say why'}")
        age = self._clock() - parse_rfc3339(mark.at)
        untouched = is_ready(node) and boot_of(node) == mark.boot and system.power in ("On", "")
        if (
            effect.prior.get("unsure")
            and untouched
            and state == "done"
            and age >= timedelta(seconds=NO_SIGN_S)
        ):
            # What was lost had no effect: the machine would have stopped by now.
            asked = effect.prior.get("asked")
            if isinstance(asked, int) and asked >= MOST_ASKED:
                return Refused(f"{name} was asked to reset {asked} times, and nothing came of it")
            if (
                no := await self._guard.keeps_from(node, effect, must_boot=not effect.params.get("leave_off"))
            ) is not None:
                return no
            first = {"off": "ForceOff", "off-on": "ForceOff"}.get(mark.way, mark.way)
            return await self._ask(bmc, system, first, mark, effect, lease)
        if untouched and state == "done" and age >= timedelta(seconds=self._settings.no_effect_s):
            return Refused(
                f"the BMC took the reset, and {name} is ready on the same boot {age.total_seconds():.0f} s later"
            )
        told = f"the power is {system.power or 'unknown'}" + (
            ", the BMC is at work" if state == "running" else ""
        )
        return Waiting(LOOK_AGAIN_S, f"{name} has not booted anew yet: {told}", result)

    async def _is_off(self, mark: PowerMark, effect: Effect, lease: LeaseHeld) -> Outcome:
        off = replace(mark, off_at=rfc3339(self._clock()))
        if (no := await self._write(off, effect, lease)) is not None:
            return no
        return Done(_known(off, effect) | {"power": "Off"}, f"{effect.target.name} is off, its BMC says")

    async def _write(self, mark: PowerMark, effect: Effect, lease: LeaseHeld) -> Outcome | None:
        """Write the mark, on the very node that was planned for. None when it is there; else why it is not."""

        def decide(node: Object) -> GuardedChange | Outcome:
            if replaced(node, effect):
                return Refused(f"{effect.target.name} was replaced")
            if why := unreadable(node):
                return Blocked("its mark", f"{effect.target.name}: {why}", 60.0)
            other, hold = mark_of(node), ownership_of(node)
            theirs = other is not None and other.incident != effect.incident
            if other is not None and theirs and hold is not None and hold.by_incident(other.incident):
                return Blocked(
                    other.incident, f"{other.incident} changes the power of {effect.target.name}", 30.0
                )
            return GuardedChange(marked(mark), Done())

        path = path_of("v1", "nodes", name=effect.target.name)
        found = await change(self._cluster, path, decide, lease, if_gone=Refused("the node is gone"))
        return None if isinstance(found, Done) else found

    @asynccontextmanager
    async def _bmc(self, node: Object) -> AsyncIterator[Bmc]:
        name = str(node["metadata"]["name"])
        address, login = address_of(node, self._settings), login_of(name, self._settings)
        async with logged_in(address, login, self._settings) as bmc:
            yield bmc


def _known(mark: PowerMark, effect: Effect) -> dict[str, str | int | bool]:
    kept = {key: effect.prior[key] for key in ("asked", "task", "last", "unsure") if key in effect.prior}
    found: dict[str, str | int | bool] = {"boot_before": mark.boot, "way": mark.way, "marked_at": mark.at}
    return found | {key: value for key, value in kept.items() if isinstance(value, str | int | bool)}


def _another(node: Object, system: System, *, required: bool) -> str:
    """Why the BMC is not proven to be the node's; empty where it is, or where nobody asks for proof.

    The first three fields of an SMBIOS UUID are little-endian, and some firmware prints them as they lie in memory.
    """
    name = node["metadata"]["name"]
    told = str(((node.get("status") or {}).get("nodeInfo") or {}).get("systemUUID") or "").lower()
    theirs = system.uuid.lower()
    if told and theirs:
        if theirs in (told, _swapped(told)):
            return ""
        return f"the BMC is of another machine: its system has the UUID {theirs}, {name} reports {told}"
    if not required:
        return ""
    lacks = f"{name} reports no systemUUID" if not told else "the BMC tells no UUID"
    return f"{lacks}, so it is not proven that this BMC is the one of {name} (node_work.redfish.match_uuid)"


def _swapped(uuid: str) -> str:
    parts = uuid.split("-")
    if [len(part) for part in parts] != [8, 4, 4, 4, 12]:
        return uuid
    turned = ["".join(reversed([part[i : i + 2] for i in range(0, len(part), 2)])) for part in parts[:3]]
    return "-".join([*turned, *parts[3:]])


def _way(system: System, wanted: str, *, leave_off: bool) -> tuple[str, str]:
    """How, and the first reset type to send; or why not, and an empty type."""
    allows = system.allowed or frozenset({"PowerCycle", "ForceOff", "On", "ForceRestart"})
    if leave_off:
        ways = [("off", "ForceOff", {"ForceOff"})]
    else:
        known = {
            "PowerCycle": ("PowerCycle", "PowerCycle", {"PowerCycle"}),
            "off-on": ("off-on", "ForceOff", {"ForceOff", "On"}),
            "ForceRestart": ("ForceRestart", "ForceRestart", {"ForceRestart"}),
        }
        ways = [known["PowerCycle"], known["off-on"]] if wanted == "auto" else [known[wanted]]
        if wanted == "auto" and not system.allowed:
            ways = [known["off-on"]]  # every BMC knows these two
    for way, first, needs in ways:
        if needs <= allows:
            return way, first
    asked = " or ".join(way for way, *_ in ways)
    return f"the BMC allows {', '.join(sorted(allows))}, and not {asked}", ""


def _failed(error: Temporary | Permanent | Ambiguous) -> Outcome:
    if refused_login(error):
        return Retry(REFUSED_LOGIN_PAUSE_S, f"the BMC refuses the login: {error}")
    return outcome_of(error)
