"""A proxy whose faults befall the request of one step, and not whatever comes next."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from connectors.jobs.suspension import RESUMED, SUSPENDED
from connectors.kubernetes.annotations import EFFECT, NODE_WORK
from connectors.kubernetes.spares import RELEASED_BY, TAKES_PLACE_BY
from tests.contract.faults import Answer, Cut, Fault, FaultProxy, Hang, IsWrite, by_method
from tests.crash_matrix.cases import BESIDES, BY_HAND

Aim = Callable[[str, str, Mapping[str, Any]], bool]
"""Called with method, path and body of a request that changes something: is it the one?"""


def _marks(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return (body.get("metadata") or {}).get("annotations") or {}


def _patch(collection: str, mark: str, *, put: bool) -> Aim:
    """A patch of an object of the collection that puts the mark on it, or takes it away."""

    def it_is(method: str, path: str, body: Mapping[str, Any]) -> bool:
        marks = _marks(body)
        return method == "PATCH" and f"/{collection}/" in path and mark in marks and bool(marks[mark]) is put

    return it_is


def _delete(collection: str) -> Aim:
    def it_is(method: str, path: str, body: Mapping[str, Any]) -> bool:
        return method == "DELETE" and f"/{collection}/" in path

    return it_is


def _post(end: str) -> Aim:
    def it_is(method: str, path: str, body: Mapping[str, Any]) -> bool:
        return method == "POST" and path.partition("?")[0].endswith(end)

    return it_is


def _work(action: str) -> Aim:
    """A Job that is to be made for an action."""

    def it_is(method: str, path: str, body: Mapping[str, Any]) -> bool:
        labels = (body.get("metadata") or {}).get("labels") or {}
        return _post("/jobs")(method, path, body) and labels.get(NODE_WORK) == action

    return it_is


_AIMS: dict[str, Aim] = {
    "open_ticket": _post("/issue"),
    "comment_ticket": _post("/comment"),
    "close_ticket": _post("/transitions"),
    "cordon_node": _patch("nodes", EFFECT, put=True),
    "uncordon_node": _patch("nodes", EFFECT, put=False),
    "undo_cordon_node": _patch("nodes", EFFECT, put=False),
    "undo_by_uncordon_node": _patch("nodes", EFFECT, put=False),
    "drain_node": _post("/eviction"),
    "suspend_job": _patch("jobs", SUSPENDED, put=True),
    "undo_suspend_job": _patch("jobs", SUSPENDED, put=False),
    "resume_job": _patch("jobs", RESUMED, put=True),
    "reset_gpu": _work("reset_gpu"),
    "validate_node": _work("validate_node"),
    "reboot_node": _work("reboot_node"),
    "release_spare": _patch("nodes", RELEASED_BY, put=True),
    "return_spare": _patch("nodes", TAKES_PLACE_BY, put=True),
    "apply_template": _post("/maintenancerequests"),
    "undo_apply_template": _delete("maintenancerequests"),
    "replace_node": _delete("nodeclaims"),
    "diagnose_nodes": _work("diagnose_nodes"),
    "power_cycle_node": _post("/Actions/ComputerSystem.Reset"),
    "validate_node@session": _work("validate_node"),
    "suspend_job@evict": _post("/eviction"),
    "suspend_job@command": _post("/commands"),
    "resume_job@command": _post("/commands"),
    "undo_suspend_job@command_back": _post("/commands"),
    "suspend_job@admitted": _patch("workloads", SUSPENDED, put=True),
    "resume_job@admitted": _patch("workloads", RESUMED, put=True),
    "undo_suspend_job@admitted_back": _patch("workloads", SUSPENDED, put=False),
    "suspend_job@replaced": _post("/eviction"),
    "undo_suspend_job@evict": _patch("leaderworkersets", SUSPENDED, put=False),
}
AIMS: Mapping[str, Aim] = {
    **_AIMS,
    **{f"{step}@{book}": _AIMS[step] for step, book in BESIDES if book in BY_HAND},
}
"""How the request of a step is known."""

_JSON = "application/json"

FAULTS: Mapping[str, Fault] = {
    "throttled": Answer(429, "{}", {"Content-Type": _JSON, "Retry-After": "3"}),
    "broken": Answer(503, "{}"),
    "lost_answer": Cut(forward=True),
    "no_answer": Hang(forward=True),
}
"""What can become of it; `cases.FAULTS` says what they mean."""


class AimedProxy(FaultProxy):
    """Plays one fault on the first request of a step."""

    def __init__(
        self, upstream: str, is_write: IsWrite = by_method, tls: ssl.SSLContext | bool = True
    ) -> None:
        super().__init__(upstream, is_write, tls)
        self._aimed: tuple[Aim, Fault] | None = None

    def aim(self, step: str, fault: str) -> bool:
        """Play this fault on the first request of this step from now on; another takes an unused one away.

        False where the step is not known to send a request.
        """
        self._aimed = (AIMS[step], FAULTS[fault]) if fault in FAULTS and step in AIMS else None
        return self._aimed is not None

    @property
    def spent(self) -> bool:
        """Whether there is no fault left to play."""
        return self._aimed is None

    def _fault(self, method: str, path: str, body: bytes, write: bool) -> Fault | None:
        if self._aimed is None or not write or not body:
            return None
        is_it, fault = self._aimed
        if not is_it(method, path, json.loads(body)):
            return None
        self._aimed = None
        return fault


def jira_writes(method: str, path: str) -> bool:
    """What changes something at the ticket system: its search is a POST too."""
    return method in ("POST", "PUT") and "/search/" not in path
