"""The result of a Job that works on a node. Pure decisions over Job, Pod and Node objects as the API server shows them.

A reset or a validation has the result of its Job. A reboot kills its own pod, so its Job proves nothing: it is done when the
node reports another boot id than when it was planned, and is Ready again. Source of the boot: Kubernetes, `NodeSystemInfo`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

from connectors.base import AlreadyDone, Done, Effect, Outcome, Refused, Result, Waiting
from connectors.kubernetes.annotations import EFFECT, WORK_BOOT_ID, annotations_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import replaced
from connectors.kubernetes.objects import condition, is_ready, name_of
from streams.model.clock import parse_rfc3339
from streams.model.message import plain

LOOK_AGAIN_S = 5.0
REBOOT_GRACE_S = 90.0
"""A node that goes down may report its pod as failed last: the reboot may still be in progress for this long."""
MAX_WORDS = 400
"""Characters kept of a container's termination message."""

State = Literal["running", "complete", "failed"]


def state_of(job: Object) -> State:
    """The state of a Job, by its conditions."""
    if condition(job, "Complete"):
        return "complete"
    return "failed" if condition(job, "Failed") else "running"


def is_of(job: Object, effect: Effect) -> bool:
    """Whether the Job was created for this effect."""
    return annotations_of(job).get(EFFECT) == effect.key


def boot_of(node: Object) -> str:
    """The id of the node's current boot; empty where it reports none."""
    return str(node.get("status", {}).get("nodeInfo", {}).get("bootID") or "")


def judged(job: Object, pods: Sequence[Object], effect: Effect) -> Outcome:
    """The outcome of a reset or a validation."""
    name = effect.target.name
    match state_of(job):
        case "complete":
            return _done(job, effect, f"{_what(effect)} of {name} is done")
        case "failed":
            return Refused(f"{_what(effect)} of {name} failed: {failure(job, pods)}")
    return Waiting(LOOK_AGAIN_S, f"{name_of(job)} is running on {name}: {_progress(pods)}", result_of(job))


def judged_reboot(
    job: Object, pods: Sequence[Object], node: Object | None, effect: Effect, now: datetime
) -> Outcome:
    """The outcome of a reboot. `node` is None when it is no longer in the cluster."""
    name, before = effect.target.name, annotations_of(job).get(WORK_BOOT_ID, "")
    if node is None:
        return Refused(f"{name} disappeared from the cluster during the reboot")
    if replaced(node, effect):
        return Refused(f"{name} was replaced: its uid differs from the one in the plan")
    result = result_of(job)
    if boot_of(node) not in ("", before):
        if is_ready(node):
            return _done(job, effect, f"{name} has rebooted and is ready")
        return Waiting(LOOK_AGAIN_S, f"{name} has rebooted and is not ready yet", result)
    failed = condition(job, "Failed")
    if failed is None:
        return Waiting(LOOK_AGAIN_S, f"{name} has not rebooted yet: {_progress(pods)}", result)
    since = failed.get("lastTransitionTime")
    settled = since is None or now >= parse_rfc3339(str(since)) + timedelta(seconds=REBOOT_GRACE_S)
    if settled and is_ready(node):
        return Refused(f"the reboot of {name} failed: {failure(job, pods)}")
    return Waiting(LOOK_AGAIN_S, f"{name} has not rebooted yet, and its Job has failed", result)


def failure(job: Object, pods: Sequence[Object]) -> str:
    """Why a Job failed: its condition and the termination messages of its pods, bounded and without control characters."""
    failed = condition(job, "Failed") or {}
    reasons = [f"{failed.get('reason') or 'Failed'}: {failed.get('message') or 'no message'}"]
    reasons += [f"{pod['metadata']['name']}: {text}" for pod in pods for text in _termination_messages(pod)]
    return _one_line("; ".join(reasons))


def result_of(job: Object) -> Result:
    """The stored result: namespace and name of the Job, and the boot id when it was planned."""
    return {"job": name_of(job), "boot_id": annotations_of(job).get(WORK_BOOT_ID, "")}


def _done(job: Object, effect: Effect, detail: str) -> Outcome:
    begun = effect.prior.get("job") == name_of(job)
    return Done(result_of(job), detail) if begun else AlreadyDone(result_of(job), detail)


def _termination_messages(pod: Object) -> Iterator[str]:
    status = pod.get("status", {})
    for container in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            message = _one_line(str(ended.get("message") or ""))
            yield f"exit code {ended['exitCode']}" + (f", {message}" if message else "")
    if status.get("phase") == "Failed" and status.get("message"):
        yield _one_line(str(status["message"]))


def _progress(pods: Sequence[Object]) -> str:
    for pod in pods:
        status = pod.get("status", {})
        if unscheduled := condition(pod, "PodScheduled", "False"):
            return _one_line(f"not scheduled: {unscheduled.get('message') or unscheduled.get('reason')}")
        for container in status.get("containerStatuses") or []:
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                return _one_line(f"{waiting.get('reason')} {waiting.get('message') or ''}")
        return f"its pod is {status.get('phase') or 'Pending'}"
    return "no pod yet"


def _one_line(text: str) -> str:
    """Bounded, without control characters and line breaks: messages of a pod are untrusted, like any log."""
    return " ".join(plain(text, MAX_WORDS).split())


def _what(effect: Effect) -> str:
    return {"reset_gpu": "the GPU reset", "validate_node": "the validation"}.get(effect.action, effect.action)
