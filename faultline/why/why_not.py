"""Why a node was not cordoned, a job not resumed, or no incident opened, at a time: a tree that begins with the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from faultline.replay.capture import Capture
from faultline.why.acting import decision_branches, incident_branch, standing_branches
from faultline.why.answer import answer_of
from faultline.why.counted import signal_branches
from faultline.why.observed import Observed
from faultline.why.silence import silent_sources
from faultline.why.subject import Subject, subject_of
from faultline.why.tree import Branch, branch
from faultline.why.unread import unread_lines
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.correlate.publish.fate import Fate
from streams.correlate.weighed import Weighed, Weighing
from streams.model.clock import moment
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident

SCHEMA = "faultline.why-not/1"
LOOK_BACK = timedelta(hours=1)
"""What was seen of the subject is told of from so long before the time on."""


def why_not(
    name: str, seen: Observed, capture: Capture, settings: ResponderSettings, runbooks: Sequence[Runbook]
) -> Branch:
    """The tree.

    Args:
        name: A node or a job.
        seen: What was known at the time.
        capture: Where it was read from.
        settings: The responder's.
        runbooks: Those that could have been chosen.

    Raises:
        BadInput: when neither the inventory nor any signal knows the name.
    """
    view = seen.standing.responder.view(capture.meta.cluster)
    control = seen.standing.responder.control(capture.meta.cluster)
    subject = subject_of(name, view, seen.pods.values(), seen.signals)
    mine = [s for s in seen.signals if subject.is_meant_by(s.entity) and s.occurred_at >= seen.at - LOOK_BACK]
    weighing = _weighing(seen, capture.meta.cluster)
    weighed = [one for one in weighing.explanations if _concerns(one, subject)]
    roles = {one.id: role for one in seen.replayed.incidents.values() if (role := _role(one, subject))}
    incidents = [one for one in seen.replayed.incidents.values() if one.id in roles]
    nodes = (
        [subject.name] if subject.kind == "node" else sorted({node for node in subject.pods.values() if node})
    )
    jobs = {key for node in nodes for key in view.jobs_on(node)}
    beside = {node for key in jobs for node in view.nodes_of(key)}
    silent = silent_sources(capture.records, nodes, beside if len(beside) > 1 else view.nodes, seen.at)
    later = [one for one in seen.later if _role(one, subject)]
    held = list(standing_branches(subject.fact, view, control, settings, seen.at))
    acting = [run for one in incidents for run in seen.runs_of(one.id)]
    answer = answer_of(subject, seen, incidents, roles, acting, weighed, mine, later, settings)
    return branch(
        "answer",
        f"{subject} at {moment(seen.at)}: {answer}",
        (
            _known(subject, seen),
            _section(
                "signals",
                "signals",
                signal_branches(mine, weighing),
                "no signal was read of it in the hour before",
            ),
            _section("unread", "lines that made no signal", unread_lines(capture.records, subject, seen)),
            _section(
                "silent", "silent sources", (branch("source", str(one), node=one.node) for one in silent)
            ),
            _section("weighed", "weighed", map(_weighed, weighed), "nothing was weighed about it"),
            _section(
                "incidents",
                "incidents",
                (
                    incident_branch(
                        one,
                        roles[one.id],
                        (r for r in acting if r.incident == one.id),
                        runbooks,
                        seen.reviews,
                    )
                    for one in sorted(incidents, key=lambda i: (i.fault_at, i.id))
                ),
                "no incident named it by then",
            ),
            _section("held", "what holds actions back", held),
            _section("decisions", "people's decisions", decision_branches(incidents, seen.commands)),
            _section(
                "later",
                "soon after",
                (
                    branch("incident", f"{i.id} opened at {moment(i.opened_at)}: {i.title}", id=i.id)
                    for i in later
                ),
            ),
        ),
        subject=subject.name,
        subject_kind=subject.kind,
        at=moment(seen.at),
        answer=answer,
    )


def document(tree: Branch) -> dict[str, Any]:
    """The tree for programs."""
    return {"schema": SCHEMA, "tree": tree.plain()}


def _weighing(seen: Observed, cluster: str) -> Weighing:
    engine = seen.standing.engines.get(cluster)
    return engine.weighing(seen.standing.now) if engine is not None else Weighing()


def _section(kind: str, name: str, below: Iterable[Branch], empty: str = "") -> Branch | None:
    found = tuple(below)
    if not found:
        return branch(kind, empty, count=0) if empty else None
    return branch(kind, f"{name}: {len(found)}", found, count=len(found))


def _concerns(one: Weighed, subject: Subject) -> bool:
    h = one.hypothesis
    if subject.is_meant_by(h.root) or (subject.kind == "node" and subject.name in h.nodes):
        return True
    if subject.job is None:
        return False
    return subject.job.key in (one.claims or {}) or any(job.key == subject.job.key for job in h.jobs)


def _role(incident: Incident, subject: Subject) -> str:
    """As what an incident names the subject; empty when it does not."""
    if subject.is_meant_by(incident.root):
        return "it is the root cause"
    if subject.kind == "node":
        return "it is a victim" if subject.name in incident.nodes else ""
    return (
        "it is a victim"
        if any(subject.job is not None and j.key == subject.job.key for j in incident.jobs)
        else ""
    )


def _known(subject: Subject, seen: Observed) -> Branch:
    fact = subject.fact
    if fact is None:
        return branch("known", f"the inventory knows no {subject.kind} {subject.name}: only signals name it")
    if isinstance(fact, NodeFact):
        places = [f"{name} {value}" for name in ("pool", "leaf", "rack") if (value := getattr(fact, name))]
        state = "Ready" if fact.ready else "NotReady"
        cordon = ", cordoned" if fact.unschedulable else ""
        return branch("known", f"known: {', '.join([f'{fact.gpus} GPUs', *places])}; {state}{cordon}")
    return branch("known", f"known: {_job_state(fact)}; {len(subject.pods)} pods were seen")


def _job_state(fact: JobFact) -> str:
    if fact.finished:
        return "failed" if fact.failed else "ended normally"
    return "suspended" if fact.suspended else "not over"


def _weighed(one: Weighed) -> Branch:
    h = one.hypothesis
    became = {Fate.TOLD: f"incident {one.incident}", Fate.PART: f"part of {one.incident}"}.get(
        one.fate, "no incident"
    )
    return branch(
        "hypothesis",
        f"{h.family} at {h.root} ({h.certainty.value}) since {moment(h.fault_at)}, by {h.rule}: {became}",
        (
            branch("reason", one.reason) if one.reason else None,
            branch("needs", f"it would have taken {one.needs}") if one.needs else None,
        ),
        family=h.family,
        fate=one.fate.value,
        incident=one.incident,
        reason=one.reason or None,
        needs=one.needs or None,
    )
