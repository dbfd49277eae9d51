"""The tools themselves: questions to a `LiveView`, answered as fenced text. Pure; nothing here can change anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faultline.live_view.overview import Overview
from faultline.live_view.view import LiveView
from faultline.mcp.fenced_text import answer, json_line
from runbooks.engine.containment import PendingRepair
from runbooks.engine.guardrails.cordoned_nodes import is_held
from streams.model.clock import rfc3339
from streams.model.errors import BadInput
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import Run

MAX_LISTED = 200

Explain = Callable[[Incident, Sequence[Run], Sequence[PendingRepair]], str]
"""`faultline.why.explanation.explain`, which stands above this package."""


class Tools:
    """What a model may ask. Every method returns text of bounded size.

    Raises, in all of them:
        BadInput: for an incident or cluster that is not known.
    """

    def __init__(self, view: LiveView, explain: Explain) -> None:
        self._view = view
        self._explain = explain

    def list_incidents(self, cluster: str = "", *, include_resolved: bool = False, limit: int = 50) -> str:
        """One line of JSON per incident, open ones first, newest first."""
        self._known_cluster(cluster)
        found = [
            one
            for one in self._view.overviews(everything=include_resolved)
            if cluster in ("", one.incident.cluster)
        ]
        shown = found[: _within(limit)]
        kind = "incidents" if include_resolved else "incidents that are open or still hold a node"
        return answer(
            f"{len(found)} {kind}, {len(shown)} shown.", (json_line(_summary(one)) for one in shown)
        )

    def get_incident(self, incident: str) -> str:
        """One incident: what is known, what it waits for, the steps of its runs, and the nodes that stay cordoned."""
        one = self._overview(incident)
        lines = [json_line(_summary(one) | _details(one.incident))]
        lines += [json_line({"run": run.id} | step) for run in one.runs for step in _steps(run)]
        lines += [
            json_line({"stays_cordoned": repair.text, "since": _at(repair.since)}) for repair in one.repairs
        ]
        return answer(
            "One incident, then the steps of its runs, then the nodes that stay cordoned for it.", lines
        )

    def explain_incident(self, incident: str) -> str:
        """Why this is the root cause: the evidence with its lines, the rule, the candidates that were ruled out, and the plan."""
        one = self._overview(incident)
        explained = self._explain(one.incident, one.runs, one.repairs)
        return answer("How the root cause and the actions were decided.", explained.splitlines())

    def get_timeline(self, incident: str, limit: int = 100) -> str:
        """What happened in an incident, oldest first; of a long one the latest lines."""
        name = self._overview(incident).incident.id
        entries = self._view.timeline(name)
        shown = entries[-_within(limit) :]
        lines = (
            json_line({"at": rfc3339(e.at), "who": e.actor, "event": e.event, "text": e.text}) for e in shown
        )
        return answer(f"{len(entries)} lines are kept, the latest {len(shown)} shown.", lines)

    def list_nodes(self, cluster: str = "", *, include_healthy: bool = False, limit: int = 100) -> str:
        """One line of JSON per node that is cordoned, not Ready, short of GPUs or held by an incident."""
        self._known_cluster(cluster)
        clusters = [cluster] if cluster else list(self._view.clusters)
        nodes = [node for name in clusters for node in self._view.nodes(name).values()]
        found = sorted(
            (node for node in nodes if include_healthy or _is_noteworthy(node)),
            key=lambda node: (node.cluster, node.name),
        )
        shown = found[: _within(limit)]
        which = (
            "" if include_healthy else " that are cordoned, not Ready, short of GPUs or held by an incident"
        )
        words = f"{len(nodes)} nodes in {len(clusters)} clusters; {len(found)} of them{which}, {len(shown)} shown."
        return answer(words, (json_line(_node(node)) for node in shown))

    def _overview(self, prefix: str) -> Overview:
        """The incident whose id begins so.

        Raises:
            BadInput: when there is none, or more than one. The text a caller gave is not repeated: it may not be the model's own.
        """
        wanted = prefix.strip()
        names = self._view.find(wanted) if wanted.removeprefix("inc-") else []
        one = self._view.overview(names[0]) if len(names) == 1 else None
        if one is None:
            raise BadInput(
                "more than one incident begins so; give the whole id"
                if names
                else "no incident of the last 14 days has this id; list_incidents lists those there are"
            )
        return one

    def _known_cluster(self, cluster: str) -> None:
        if cluster and cluster not in self._view.clusters:
            raise BadInput("no such cluster; without one, all clusters are listed with their names")


def _within(limit: int) -> int:
    return min(max(limit, 1), MAX_LISTED)


def _summary(one: Overview) -> dict[str, Any]:
    incident = one.incident
    return {
        "id": incident.id,
        "cluster": incident.cluster,
        "state": one.standing,
        "severity": incident.severity.value,
        "family": incident.family,
        "root": str(incident.root),
        "certainty": incident.certainty.value,
        "title": incident.title,
        "fault_at": rfc3339(incident.fault_at),
        "opened_at": rfc3339(incident.opened_at),
        "jobs": len(incident.jobs),
        "nodes": len(incident.nodes),
        "gpus_stopped": incident.impact.gpus,
        "waits_for": one.waits_for,
    }


def _details(incident: Incident) -> dict[str, Any]:
    return {
        "reason": incident.reason,
        "revision": incident.revision,
        "updated_at": rfc3339(incident.updated_at),
        "closed_at": _at(incident.closed_at),
        "merged_into": incident.merged_into,
        "job_names": [str(job) for job in incident.jobs],
        "node_names": list(incident.nodes),
        "other_workloads": _other_workloads(incident),
        "gpu_hours_per_hour": incident.impact.gpu_hours_per_hour,
        "facts": dict(incident.facts),
    }


def _other_workloads(incident: Incident) -> dict[str, Any] | None:
    others = incident.other_workloads
    return {"count": others.count, "first": list(others.names)} if others is not None else None


def _steps(run: Run) -> list[dict[str, Any]]:
    found = []
    for planned in run.plan.steps:
        record = run.step(planned.id)
        found.append(
            {
                "run_state": run.state.value,
                "mode": run.plan.mode.value,
                "runbook": run.plan.runbook,
                "step": planned.id,
                "action": planned.action,
                "target": str(planned.target) if planned.target else "",
                "destructive": planned.destructive,
                "state": record.state.value,
                "reason": record.reason,
                "deadline_at": _at(record.deadline_at),
            }
        )
    return found


def _node(node: NodeFact) -> dict[str, Any]:
    return {
        "cluster": node.cluster,
        "node": node.name,
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "gpus": node.gpus,
        "gpus_allocatable": node.gpus_allocatable,
        "pool": node.pool,
        "rack": node.rack,
        "leaf": node.leaf,
        "held_for": list(node.owners),
        "maintenance": node.maintenance,
        "protected_by": node.protected_by,
    }


def _is_noteworthy(node: NodeFact) -> bool:
    return not node.ready or node.unschedulable or node.gpus_allocatable < node.gpus or is_held(node)


def _at(moment: Any) -> str | None:
    return rfc3339(moment) if moment is not None else None
