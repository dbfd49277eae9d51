"""How a victim hangs on the root cause: by a rank, a port, a switch, a rack, another part, storage, or only by its job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from streams.model.entity import JobRef, Part
from streams.model.facts import NodeFact
from streams.model.incident import Incident, Proof

TieKind = Literal["itself", "rank", "port", "switch", "rack", "part", "storage", "job", "named"]


@dataclass(frozen=True, slots=True)
class Tie:
    """What joins a victim to the root: of which kind, and in words."""

    kind: TieKind
    text: str


def tie_of_node(node: str, incident: Incident, nodes: Mapping[str, NodeFact]) -> Tie:
    """How a node of an incident hangs on its root; what was seen on it counts before what the inventory says."""
    root = incident.root
    if node == root.node:
        return Tie("itself", "is the place of the root cause")
    if root.storage is not None:
        return Tie("storage", f"does not reach {root.storage}")
    fact, host = nodes.get(node), nodes.get(root.node or "")
    if root.node is None and fact is not None and (tie := _by_place(incident, fact)) is not None:
        return tie
    seen = [proof for proof in incident.proofs if proof.role != "cause" and proof.entity.node == node]
    if (by_port := _first(seen, "fabric.")) is not None:
        return Tie("port", by_port.summary)
    if (by_rank := _first(seen, "nccl.")) is not None:
        return Tie("rank", by_rank.summary)
    if fact is not None and host is not None and (shared := _shared(fact, host)) is not None:
        kind: TieKind = "switch" if shared.kind == "leaf" else "rack" if shared.kind == "rack" else "part"
        return Tie(kind, f"runs the same job, and shares {shared} with {root.node}")
    if incident.jobs:
        return Tie("job", "runs a job that was hit")
    return Tie("named", "is named by the evidence")


def tie_of_job(job: JobRef, incident: Incident) -> Tie:
    """How a job of an incident hangs on its root."""
    symptoms = [p for p in incident.proofs if p.role == "symptom" and _is_of(p, job)]
    ranks = [p for p in symptoms if p.kind.startswith("nccl.")]
    if incident.root.job is not None and incident.root.job.key == job.key:
        return Tie("itself", "is the root cause itself")
    if ranks:
        return Tie("rank", ranks[0].summary)
    if symptoms:
        return Tie("rank", symptoms[0].summary)
    causes = [p for p in incident.proofs if p.role == "cause" and p.kind.startswith("job.")]
    if complaints := [p for p in causes if _is_of(p, job)]:
        return Tie("named", complaints[0].summary)
    if incident.root.node is not None:
        return Tie("job", f"had pods on {incident.root.node} when it began")
    return Tie("job", "ran on its nodes when it began")


def _by_place(incident: Incident, fact: NodeFact) -> Tie | None:
    """The part of the root that a node hangs on, as the inventory has it."""
    root = incident.root
    nics = sorted(nic for nic, leaf in fact.rails.items() if leaf == root.switch)
    if root.switch is not None and (nics or fact.leaf == root.switch):
        return Tie("switch", f"hangs on {root.switch}" + (f" with {', '.join(nics)}" if nics else ""))
    if root.rack is not None and fact.rack == root.rack:
        return Tie("rack", f"stands in rack {root.rack}")
    if root.part is not None and root.part in fact.shared_parts:
        return Tie("part", f"depends on {root.part}")
    return None


def _shared(one: NodeFact, other: NodeFact) -> Part | None:
    """The closest thing that two nodes share."""
    common = set(one.shared_parts) & set(other.shared_parts)
    order = ("nvlink-domain", "leaf", "rack")
    return next((part for kind in order for part in sorted(common) if part.kind == kind), None)


def _first(proofs: Iterable[Proof], family: str) -> Proof | None:
    return next((proof for proof in proofs if proof.kind.startswith(family)), None)


def _is_of(proof: Proof, job: JobRef) -> bool:
    entity = proof.entity
    if entity.job is not None:
        return entity.job.key == job.key
    return (
        entity.pod is not None
        and entity.pod.namespace == job.namespace
        and entity.pod.name.startswith(job.name)
    )
