"""A week on a cluster: three incidents that runs ended, three that people ended, one merged, one open, one from before."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from faultline.cli.incident_documents import ClusterDocuments
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity, Gpu
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import Mode, Run, RunOutcome, RunState, StepState, Target
from tests.faultline.report.scenes import (
    CLUSTER,
    FAULT,
    Scene,
    healed,
    incident,
    line,
    node,
    run,
    slept_on,
    step,
)

SINCE, UNTIL = FAULT - timedelta(days=1), FAULT + timedelta(days=6)


def moved(scene: Scene, by: timedelta, root: Entity, family: str | None = None) -> Scene:
    """The same story some days later on another part."""
    family = family or scene.incident.family
    name = incident_id(CLUSTER, root, family, 1)
    about = replace(
        scene.incident,
        id=name,
        root=root,
        family=family,
        fault_at=scene.incident.fault_at + by,
        opened_at=scene.incident.opened_at + by,
        updated_at=scene.incident.updated_at + by,
        closed_at=scene.incident.closed_at + by if scene.incident.closed_at else None,
        progress=tuple(replace(one, at=one.at + by) for one in scene.incident.progress),
        proofs=tuple(replace(one, occurred_at=one.occurred_at + by) for one in scene.incident.proofs),
        facts={},
    )

    def later(at: datetime | None) -> datetime | None:
        return at + by if at is not None else None

    runs = tuple(
        replace(
            one, id=f"{one.id}-{name[-4:]}", incident=name, created_at=one.created_at + by, finished_at=later(one.finished_at),
            approvals=tuple(replace(a, at=a.at + by) for a in one.approvals),
            steps=tuple(
                replace(
                    record, started_at=later(record.started_at), finished_at=later(record.finished_at),
                    effect=replace(record.effect, confirmed_at=later(record.effect.confirmed_at)) if record.effect else None,
                )
                for record in one.steps
            ),
        )
        for one in scene.runs
    )  # fmt: skip
    ids = {one.id: new.id for one, new in zip(scene.runs, runs, strict=True)}
    lines = tuple(
        replace(
            entry, incident=name, at=entry.at + by,
            attributes={**entry.attributes, **({"run": ids[str(entry.attributes["run"])]} if "run" in entry.attributes else {})},
        )
        for entry in scene.timeline
        if not entry.event.startswith("observed.")
    )  # fmt: skip
    return Scene(about, runs, lines, scene.nodes, scene.now + by)


def by_hand(number: int, hours: float) -> Scene:
    """Shadow mode would have acted; a person ended it after some hours."""
    root = Entity(CLUSTER, node=f"gpu-{30 + number}", gpu=Gpu(index=0, uuid=f"GPU-{number}"))
    name = incident_id(CLUSTER, root, "gpu_off_bus", 1)
    about = incident(
        root, id=name, progress=(), facts={}, nodes=(root.node,),
        closed_at=FAULT + timedelta(hours=hours), updated_at=FAULT + timedelta(hours=hours),
    )  # fmt: skip
    steps = (
        step(
            "cordon",
            "cordon_node",
            Target("Node", str(root.node)),
            None,
            None,
            StepState.WOULD,
            destructive=True,
        ),
    )
    one = run(
        about, steps, mode=Mode.SHADOW, ended=7, state=RunState.SHADOWED, outcome=RunOutcome.SHADOWED
    )  # fmt: skip
    lines = (
        line(about, 7, "step.would", "would cordon node", run=one.id, step="cordon"),
        line(
            about, 1800, "observed.node_cordoned", f"node {root.node} was cordoned",
            act="node_cordoned", kind="Node", name=str(root.node), at="2026-03-03T03:34:12Z",
        ),
        line(about, 1800, "person.resolved", "resolved by ada", "ada"),
    )  # fmt: skip
    return Scene(about, (one,), lines)


def week() -> ClusterDocuments:
    gpu = Entity(CLUSTER, node="gpu-03", gpu=Gpu(pci="0000:9d:00", uuid="GPU-5f3a", index=4))
    swapped = Entity(CLUSTER, node="gpu-11", gpu=Gpu(pci="0000:1b:00", uuid="GPU-5f3a", index=0))
    cable = Entity(CLUSTER, node="gpu-07", nic="mlx5_2", switch="leaf-00", port="Ethernet7")
    stopped = moved(healed(), timedelta(days=3), cable, "nic_link")
    rejected = line(stopped.incident, 0, "person.rejected", "rejected by eve: it is being drained", "eve")
    scenes = [
        moved(healed(), timedelta(), gpu),
        moved(healed(), timedelta(days=2), swapped),
        moved(slept_on(), timedelta(days=1), gpu, "gpu_memory"),
        replace(stopped, timeline=(*stopped.timeline, replace(rejected, at=stopped.incident.opened_at))),
        *(by_hand(number, hours) for number, hours in enumerate((1.0, 2.0, 9.0))),
        Scene(
            changed(incident(Entity(CLUSTER, node="gpu-09"), "node_down"), state=IncidentState.MERGED, merged_into="inc-1")
        ),
        Scene(changed(incident(cable, "nic_link", incarnation=2), state=IncidentState.OPEN, closed_at=None)),
        Scene(
            changed(
                incident(Entity(CLUSTER, node="gpu-12"), "node_down", opened_at=SINCE - timedelta(days=2)),
                state=IncidentState.AWAITING_HUMAN, closed_at=None,
            )
        ),
    ]  # fmt: skip
    incidents = {scene.incident.id: scene.incident for scene in scenes}
    runs: list[Run] = [one for scene in scenes for one in scene.runs]
    timeline: list[TimelineEntry] = [entry for scene in scenes for entry in scene.timeline]
    nodes = {name: node(name) for name in ("gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-07", "gpu-11")}
    return ClusterDocuments(CLUSTER, incidents, runs, timeline, nodes, UNTIL)


def changed(about: Incident, **changes: object) -> Incident:
    """With an id of its own, and without what only the story of one GPU has."""
    name = incident_id(CLUSTER, about.root, about.family, about.incarnation)
    return replace(about, id=name, progress=(), facts={}, **changes)  # type: ignore[arg-type]
