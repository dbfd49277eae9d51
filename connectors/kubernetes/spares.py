"""The connector for warm spares: `release_spare` gives one to the scheduler, `return_spare` fills the reserve up again.

A spare bears the label and the taint `faultline.dev/spare`, which its site has set. Written on one that is released, in the
request that takes its taint away:

    annotation  faultline.dev/spare-for             the incident it was released for
    annotation  faultline.dev/effect-release_spare  the key of the effect
    annotation  faultline.dev/spare-taint           the effect and value that its taint had

When the lost node is sound again, an idle spare goes back into the reserve; one that is used stays, and the returned node takes
its place there.
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import (
    DOMAIN,
    MANAGED,
    annotations_of,
    effect_mark,
    labels_of,
    opted_out,
)
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_marked
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.objects import has_ended, is_ready
from connectors.kubernetes.pod_roles import asks_for_gpu

SPARE = f"{DOMAIN}/spare"
RELEASED_FOR = f"{DOMAIN}/spare-for"
RELEASED_BY = effect_mark("release_spare")
TAKES_PLACE_BY = effect_mark("return_spare")
FORMER_TAINT = f"{DOMAIN}/spare-taint"


class Spares:
    """Effects on the nodes in reserve. The target is the lost node; param `spares` names the candidates, best first."""

    actions = frozenset({"release_spare", "return_spare"})

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Release the first candidate that is still in reserve, or fill the reserve up again.

        release_spare  `Done` with `spare` and `place`; `Refused` (moot) where no candidate is in reserve any more
        return_spare   `Done`; its detail names the node that is in reserve now
        """
        match effect.action:
            case "release_spare":
                return await attempted(lambda: self._release(effect, lease))
            case "return_spare":
                return await attempted(lambda: self._fill_up(effect, lease))
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Read the candidates' annotations, or the lost node's."""

        async def once() -> Outcome:
            if effect.action == "release_spare":
                ours = await self._released(effect, by_key=True)
                return AlreadyDone(_given(effect, ours)) if ours is not None else Absent()
            if effect.action != "return_spare":
                return _unknown(effect)
            return Absent() if await self._released(effect) is not None else AlreadyDone()

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Put the released spare back into the reserve while nothing uses its GPUs; else it stays in service."""
        if effect.action != "release_spare":
            return Refused(f"{effect.action} cannot be undone")

        async def once() -> Outcome:
            ours = await self._released(effect, by_key=True)
            if ours is None:
                return AlreadyDone(detail="no spare is released by this effect")
            if used := await self._users(ours):
                return AlreadyDone(detail=f"{ours} stays in service: {used} pods use its GPUs")
            return await self._put_back(effect, ours, lease)

        return await attempted(once)

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _release(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        if (ours := await self._released(effect, by_key=True)) is not None:
            return AlreadyDone(_given(effect, ours))
        unfit: list[str] = []

        def decide(node: Object) -> GuardedChange | Outcome:
            decided = released(node, effect)
            if isinstance(decided, Refused):
                unfit.append(decided.reason)
            return decided

        for name in _candidates(effect):
            before = len(unfit)
            gone = Refused(f"{name} is gone")
            done = await change(self._cluster, _path(name), decide, lease, if_gone=gone)
            if len(unfit) == before and done is not gone:
                return done
        why = "; ".join(unfit[:5]) or "none of them is there"
        return Refused(f"no spare is left for it: {why}", moot=True)

    async def _fill_up(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        spare = await self._released(effect)
        if spare is None:
            return AlreadyDone(detail="no spare is released for this incident")
        # A call that died halfway has the lost node in reserve already: one of the two is enough.
        if not await self._is_in_place(effect) and not await self._users(spare):
            return await self._put_back(effect, spare, lease)
        # The lost node is back and sound: it goes into the reserve, if nothing has been scheduled there meanwhile.
        name = effect.target.name
        if not await self._is_in_place(effect) and (used := await self._users(name)):
            kept = await self._let_go(effect, spare, lease)
            short = f"{spare} stays in service and {name} is used by {used} pods again: the reserve is one node short"
            return Done(detail=short) if isinstance(kept, Done | AlreadyDone) else kept
        placed = await change(
            self._cluster,
            _path(name),
            lambda node: put_in_reserve(node, effect, await_of=spare),
            lease,
            if_gone=Refused(f"there is no node {name}", moot=True),
        )
        if not isinstance(placed, Done | AlreadyDone):
            return placed
        kept = await self._let_go(effect, spare, lease)
        return placed if isinstance(kept, Done | AlreadyDone) else kept

    async def _put_back(self, effect: Effect, name: str, lease: LeaseHeld) -> Outcome:
        return await change(
            self._cluster,
            _path(name),
            lambda node: put_back(node, effect),
            lease,
            if_gone=AlreadyDone(detail=f"{name} is gone"),
        )

    async def _let_go(self, effect: Effect, name: str, lease: LeaseHeld) -> Outcome:
        return await change(
            self._cluster,
            _path(name),
            lambda node: let_go(node, effect),
            lease,
            if_gone=AlreadyDone(detail=f"{name} is gone"),
        )

    async def _released(self, effect: Effect, *, by_key: bool = False) -> str | None:
        """The candidate that this effect, or this incident, has released."""
        for name in _candidates(effect):
            try:
                marks = annotations_of(await self._cluster.get(_path(name)))
            except NotFound:
                continue
            if marks.get(RELEASED_FOR) == effect.incident and (
                not by_key or marks.get(RELEASED_BY) == effect.key
            ):
                return name
        return None

    async def _is_in_place(self, effect: Effect) -> bool:
        """Whether this effect has put the lost node in reserve."""
        try:
            marks = annotations_of(await self._cluster.get(_path(effect.target.name)))
        except NotFound:
            return False
        return marks.get(TAKES_PLACE_BY) == effect.key

    async def _users(self, node: str) -> int:
        """How many pods hold GPUs of a node."""
        on = {"fieldSelector": f"spec.nodeName={node}"}
        pods = await self._cluster.list_all(path_of("v1", "pods"), query=on)
        return sum(1 for pod in pods if asks_for_gpu(pod) and not has_ended(pod))


def released(node: Object, effect: Effect) -> GuardedChange | Outcome:
    """Take the taint of a node in reserve away, if it still is one and sound."""
    name, marks = node["metadata"]["name"], annotations_of(node)
    if marks.get(RELEASED_BY) == effect.key:
        return AlreadyDone(_given(effect, name))
    taint = _taint(node)
    if taint is None or SPARE not in labels_of(node):
        return Refused(f"{name} is no spare any more")
    if (other := marks.get(RELEASED_FOR)) is not None:
        return Refused(f"{name} bears marks of {other}")
    if opted_out(node):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    if node["spec"].get("unschedulable") or is_marked(node) or not is_ready(node):
        return Refused(f"{name} is cordoned or not ready")
    was = f"{taint.get('value') or ''}:{taint['effect']}"
    patch = {
        "metadata": {
            "annotations": {RELEASED_FOR: effect.incident, RELEASED_BY: effect.key, FORMER_TAINT: was}
        },
        "spec": {"taints": _others(node) or None},
    }
    given = _given(effect, name)
    return GuardedChange(
        patch, Done(given, f"{name} takes the place of {effect.target.name}: {given['place']}")
    )


def put_back(node: Object, effect: Effect) -> GuardedChange | Outcome:
    """Taint a released spare again, as it was."""
    name, marks = node["metadata"]["name"], annotations_of(node)
    if marks.get(RELEASED_FOR) != effect.incident:
        return AlreadyDone(detail=f"{name} is not released for this incident")
    if opted_out(node):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    if SPARE not in labels_of(node) or _taint(node) is not None:
        return Blocked.person(f"label or taint {SPARE} of {name} was changed manually since it was released")
    value, _, kept_out = marks.get(FORMER_TAINT, "").rpartition(":")
    taints = [*_others(node), _made_taint(value, kept_out)]
    patch = {"metadata": {"annotations": _no_marks()}, "spec": {"taints": taints}}
    return GuardedChange(patch, Done(detail=f"{name} is in reserve again"))


def put_in_reserve(node: Object, effect: Effect, *, await_of: str) -> GuardedChange | Outcome:
    """Make the returned node a spare in place of `await_of`, which stays in service."""
    name = node["metadata"]["name"]
    said = f"{name} is in reserve now: {await_of} stays in service in its place"
    if annotations_of(node).get(TAKES_PLACE_BY) == effect.key:
        return AlreadyDone(detail=said)
    if effect.target.uid is not None and effect.target.uid != node["metadata"].get("uid"):
        return Refused(f"{name} was replaced: its uid differs from the one in the plan", moot=True)
    if opted_out(node):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    if node["spec"].get("unschedulable") or is_marked(node) or not is_ready(node):
        return Waiting(10.0, f"{name} is cordoned or not ready")
    patch = {
        "metadata": {"labels": {SPARE: "true"}, "annotations": {TAKES_PLACE_BY: effect.key}},
        "spec": {"taints": [*_others(node), _made_taint("", "NoSchedule")]},
    }
    return GuardedChange(patch, Done(detail=said))


def let_go(node: Object, effect: Effect) -> GuardedChange | Outcome:
    """Take the marks and the label off a spare that stays in service."""
    name = node["metadata"]["name"]
    if annotations_of(node).get(RELEASED_FOR) != effect.incident:
        return AlreadyDone(detail=f"{name} is not released for this incident")
    patch = {"metadata": {"labels": {SPARE: None}, "annotations": _no_marks()}}
    return GuardedChange(patch, Done(detail=f"{name} stays in service"))


def _no_marks() -> dict[str, None]:
    return dict.fromkeys((RELEASED_FOR, RELEASED_BY, FORMER_TAINT))


def _candidates(effect: Effect) -> Sequence[str]:
    return [one.partition("=")[0] for one in _listed(effect)]


def _given(effect: Effect, name: str) -> dict[str, str]:
    place = next((one.partition("=")[2] for one in _listed(effect) if one.partition("=")[0] == name), "")
    return {"spare": name, "place": place}


def _listed(effect: Effect) -> Sequence[str]:
    return [one for one in str(effect.params.get("spares") or "").split(" | ") if one]


def _taint(node: Object) -> Object | None:
    return next((t for t in node["spec"].get("taints") or [] if t.get("key") == SPARE), None)


def _others(node: Object) -> list[Object]:
    return [t for t in node["spec"].get("taints") or [] if t.get("key") != SPARE]


def _made_taint(value: str, effect: str) -> Object:
    return {"key": SPARE, **({"value": value} if value else {}), "effect": effect or "NoSchedule"}


def _path(node: str) -> str:
    return path_of("v1", "nodes", name=node)


def _unknown(effect: Effect) -> Refused:
    return Refused(f"unknown spare action {effect.action}")
