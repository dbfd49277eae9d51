"""Collects evidence in the pods of the incident's jobs on its node, before they are stopped: `collect_evidence`.

Each command is declared in the settings and bounded in time and output. It changes nothing, so it may be run again after a crash.
What cannot be collected is said and holds nothing up: the step is done with what there is.
"""

from __future__ import annotations

import asyncio
import re

from connectors.base import Absent, Done, Effect, LeaseHeld, Outcome, Refused
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.pod_exec import run_in
from streams.config.evidence_settings import EvidenceHook, EvidenceSettings
from streams.model.errors import FaultlineError

MAX_KEPT = 600
"""Characters of each output that the run keeps: its first lines."""
MAX_RESULTS = 12
_SECRET = re.compile(
    r"(?i)((?:[\w-]*(?:token|secret|password|passwd|credential|api[_-]?key|access[_-]?key)[\w-]*)[\"']?\s{0,4}[:=]\s{0,4}|bearer\s+)\S+"
)


class PodEvidence:
    """`collect_evidence` on a node of one cluster. Param `pods`: `namespace/name`, separated by commas, as planned."""

    actions = frozenset({"collect_evidence"})

    def __init__(self, cluster: Cluster, settings: EvidenceSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Run every hook that is for this family in the pods that are ready; always `Done`, with the first lines of each."""
        family = str(effect.context.get("family") or "")
        hooks = [hook for hook in self._settings.hooks if not hook.families or family in hook.families]
        names = [name for name in str(effect.params.get("pods") or "").split(",") if "/" in name]
        if not hooks:
            return Done({}, f"no evidence is collected for {family}")

        async def once() -> Outcome:
            pods, unread = list[Object](), ""
            for name in names[: self._settings.max_pods]:
                try:
                    pod = await self._ready(name, effect)
                except FaultlineError as error:
                    unread = f": {str(error)[:200]}"
                else:
                    pods += [pod] if pod is not None else []
            if not pods:
                answers = f"no pod on {effect.target.name} answers: no evidence is collected there"
                return Done({}, f"{answers}{unread}")
            lease.check()
            told = await asyncio.gather(*(self._of(hook, pod) for pod in pods for hook in hooks))
            kept = dict(told[:MAX_RESULTS])
            failed = [name for name, text in kept.items() if text.startswith("(")]
            what = ", ".join(name for name in kept if name not in failed) or "nothing"
            lacks = f"; not: {', '.join(failed)}" if failed else ""
            return Done(kept, f"collected {what}{lacks}")

        return await attempted(once)

    async def lookup(self, effect: Effect) -> Outcome:
        """Nothing was changed, so it may be done again."""
        return Absent("evidence may be collected again")

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """There is nothing to undo."""
        return Refused("collect_evidence cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _ready(self, name: str, effect: Effect) -> Object | None:
        """The pod, if it is still there and ready, and on this node."""
        namespace, _, pod = name.partition("/")
        try:
            found = await self._cluster.get(path_of("v1", "pods", namespace=namespace, name=pod))
        except NotFound:
            return None
        here = (found.get("spec") or {}).get("nodeName") == effect.target.name
        return found if here and is_ready(found) else None

    async def _of(self, hook: EvidenceHook, pod: Object) -> tuple[str, str]:
        about = pod["metadata"]
        name = f"{hook.name} in {about['namespace']}/{about['name']}"
        try:
            ran = await run_in(
                self._cluster,
                about["namespace"],
                about["name"],
                hook.command,
                container=hook.container,
                timeout_s=hook.timeout_s,
                max_bytes=hook.max_bytes,
            )
        except FaultlineError as error:
            return name, f"({str(error)[:200]})"
        if ran.exit_code != 0:
            return name, f"(exit code {ran.exit_code}: {first_lines(ran.output or ran.reason)[:200]})"
        return name, first_lines(ran.output) or "(no output)"


def first_lines(output: str) -> str:
    """The first lines of an output, without what looks like a secret, and with a mark where it was cut."""
    text = _SECRET.sub(r"\1***", output.strip())
    return text if len(text) <= MAX_KEPT else text[: MAX_KEPT - 1] + "…"
