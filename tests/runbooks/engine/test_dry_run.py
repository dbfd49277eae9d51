"""The replay decides as the responder does, touches nothing, and gives the same lines for the same feed."""

from __future__ import annotations

from dataclasses import replace

from runbooks.engine.dry_run import ActionLine, ShadowResponder
from streams.model.codec import encode_plain
from streams.model.entity import Entity
from streams.model.facts import JobFact, NodeFact, PodFact
from streams.model.incident import Certainty, IncidentState
from tests.runbooks.scenes import CLUSTER, JOB, LIBRARY, OTHER_JOB, at, cluster, incident, radius


def fed(**changes: object) -> ShadowResponder:
    shadow = ShadowResponder(LIBRARY, radius(max_per_window=100, max_share=1.0, **changes))
    view = cluster()
    facts: list[NodeFact | PodFact | JobFact] = [
        *view.nodes.values(),
        *view.pods.values(),
        *view.jobs.values(),
    ]
    for fact in facts:
        shadow.take_fact(fact.key, fact)
    return shadow


def verdicts(lines: tuple[ActionLine, ...]) -> list[tuple[str, str, str]]:
    return [(line.action, line.target.name, line.verdict) for line in lines]


def test_a_lost_gpu_would_be_closed_and_its_job_moved() -> None:
    shadow = fed()
    signals = shadow.take_incident(incident(), at(0))
    assert [s.kind for s in signals] == ["run.finished"]
    assert verdicts(shadow.actions())[1:4] == [
        ("cordon_node", "node-03", "would"),
        ("suspend_job", "llm", "would"),
        ("drain_node", "node-03", "would"),
    ]
    line = encode_plain(shadow.actions()[2])
    assert line["record"] == "action"
    assert line["target"] == {"kind": "PyTorchJob", "namespace": "research", "name": "llm"}
    assert line["at"] == "2026-03-01T12:00:00Z"


def test_hours_later_the_decision_is_still_the_one_of_its_time() -> None:
    shadow = fed()
    shadow.take_incident(incident(), at(0))
    before = shadow.actions()
    shadow.tick(at(10 * 3600))
    assert shadow.actions() == before


def test_a_later_revision_is_decided_anew_and_a_later_job_is_added() -> None:
    shadow = fed()
    shadow.take_incident(incident(certainty=Certainty.LIKELY, jobs=()), at(0))
    assert ("cordon_node", "node-03", "needs_approval") in verdicts(shadow.actions())
    shadow.take_incident(incident(revision=2, updated_at=at(5)), at(5))
    assert ("cordon_node", "node-03", "would") in verdicts(shadow.actions())
    assert ("suspend_job", "llm", "would") in verdicts(shadow.actions())


def test_an_incident_that_first_fits_no_runbook_gets_the_right_one_when_it_does() -> None:
    shadow = fed()
    down = incident("node_down", Entity(CLUSTER, node="node-05"), jobs=())
    shadow.take_incident(down, at(0))
    assert verdicts(shadow.actions())[-1:] == [("ask", down.id, "needs_approval")]
    shadow.take_incident(replace(down, revision=2, jobs=(OTHER_JOB, JOB)), at(1))
    assert ("cordon_node", "node-05", "would") in verdicts(shadow.actions())
    assert "ask" not in {line.action for line in shadow.actions()}


def test_more_nodes_than_allowed_are_refused_until_an_incident_is_over() -> None:
    shadow = fed(max_nodes=1)
    first = incident()
    shadow.take_incident(first, at(0))
    second = incident("silent_node", Entity(CLUSTER, node="node-09"), jobs=())
    shadow.take_incident(second, at(1))
    lines = [line for line in shadow.actions() if line.incident == second.id]
    assert ("cordon_node", "node-09", "refused") in verdicts(tuple(lines))
    assert "blast radius" in lines[1].reason
    shadow.take_incident(replace(first, revision=2, state=IncidentState.RESOLVED), at(2))
    shadow.take_incident(replace(second, revision=2), at(3))
    lines = [line for line in shadow.actions() if line.incident == second.id]
    assert ("cordon_node", "node-09", "would") in verdicts(tuple(lines))


def test_application_faults_close_nothing() -> None:
    shadow = fed()
    shadow.take_incident(incident("application", Entity(CLUSTER, job=JOB)), at(0))
    assert {line.action for line in shadow.actions()} == {"open_ticket", "notify", "ask"}


def test_the_same_feed_gives_the_same_lines() -> None:
    def played() -> tuple[ActionLine, ...]:
        shadow = fed()
        for seconds, family, node in ((0, "gpu_off_bus", 3), (1, "silent_node", 5), (2, "node_down", 6)):
            root = Entity(CLUSTER, node=f"node-{node:02}")
            shadow.take_incident(incident(family, root, jobs=(OTHER_JOB, JOB)), at(seconds))
        return shadow.actions()

    assert played() == played()
