"""A finding with place, time and evidence: a signal without its id, which costs more than all the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from streams.detect.finding import Finding
from streams.detect.job_claims import may_report
from streams.detect.notice_times import with_time
from streams.model.clock import not_ahead
from streams.model.entity import SLURM, Entity
from streams.model.record import Alert, KubeEvent, LogLine, Neighbour, Observation, RawRecord, Sample
from streams.model.signal import (
    CONTROLLER,
    MAX_EVIDENCE_TEXT,
    PRINTED_BY,
    RELAYED,
    SPEAKER,
    Attribute,
    Evidence,
    Signal,
    signal,
)


class Report(NamedTuple):
    """A finding in one observation of one record."""

    finding: Finding
    entity: Entity
    observation: Observation
    record: RawRecord

    @staticmethod
    def of(finding: Finding, observation: Observation, cluster: str, record: RawRecord) -> Report:
        """The finding with the entity that it or its observation names."""
        return Report(finding, _entity(finding, observation, cluster), observation, record)

    @property
    def occurred_at(self) -> datetime:
        """When it happened. A time that is ahead of its record by more than clock drift is replaced by the record's."""
        return not_ahead(self.finding.at or self.observation.at, self.record.timestamp)

    def _hearsay(self) -> Mapping[str, Attribute] | None:
        """The attributes of what a job's output says of hardware; None for what its speaker can bear witness to."""
        line = self.observation
        if not isinstance(line, LogLine):
            return None
        printed = not may_report(self.record.topic, self.finding.kind) and not _is_slurms(self.finding)
        if not printed and not (line.relayed and self.finding.node is None):
            return None
        pod = line.pod.key if line.pod is not None else ""
        if not line.relayed and self.entity.node == line.node:
            return {RELAYED: True, PRINTED_BY: pod} if pod else {RELAYED: True}
        return {RELAYED: True, SPEAKER: pod}

    def signal(self) -> Signal:
        """The signal of this report."""
        record = self.record
        text = (self.finding.text or _text_of(self.observation)).strip()[:MAX_EVIDENCE_TEXT]
        attributes = self.finding.attributes
        if (speaker := self._hearsay()) is not None:
            attributes = {**attributes, **speaker}
        named = self.finding.node or _node(self.observation)
        if named is not None and _is_of_controller(self.finding, named):
            attributes = {**attributes, CONTROLLER: named}
        of_event = isinstance(self.observation, (KubeEvent, Alert))
        attributes = with_time(self.finding.kind, attributes, text, self.occurred_at, of_event=of_event)
        return signal(
            self.finding.kind,
            self.entity,
            severity=self.finding.severity,
            occurred_at=self.occurred_at,
            observed_at=record.timestamp,
            state=self.finding.state,
            attributes=attributes,
            evidence=(Evidence(record.topic, record.partition, record.offset, text),),
        )


def _is_slurms(finding: Finding) -> bool:
    """Whether Slurm's controller says it, which names the nodes it speaks of and runs in a pod where Slurm is in Kubernetes."""
    subtype = str(finding.attributes.get("subtype", ""))
    return finding.node is not None and (
        subtype.startswith("slurm_") or finding.attributes.get("source") == SLURM
    )


_CONTROLLER = re.compile(r"(?<=\w)[-.](?:bmc|ipmi|ilo|idrac|drac|xcc|irmc|cimc)\d?(?=\.|$)", re.IGNORECASE)
"""What sites append to a node's name for its management controller."""


def _is_of_controller(finding: Finding, node: str) -> bool:
    of_host = finding.kind.startswith("node.") and not finding.on_switch
    return of_host and _CONTROLLER.search(node) is not None


def _entity(finding: Finding, observation: Observation, cluster: str) -> Entity:
    node = finding.node
    of_another = finding.job is not None or (isinstance(observation, LogLine) and finding.pod is not None)
    if node is None and not of_another and not finding.of_others:
        node = _node(
            observation
        )  # a controller's line about a job or pod is not from the node where that runs
    if finding.on_switch:
        return Entity(cluster, switch=node, port=finding.port)
    if node is not None and _is_of_controller(finding, node):
        node = _CONTROLLER.sub("", node, count=1)
    # A pod that relays the kernel's log or the control plane's Events is not the faulty entity.
    of_node = finding.of_others or finding.kind.startswith(("gpu.", "node."))
    of_pod = isinstance(observation, LogLine) and not of_node
    return Entity(
        cluster,
        node=node,
        gpu=finding.gpu,
        nic=finding.nic,
        pod=finding.pod or (observation.pod if of_pod and isinstance(observation, LogLine) else None),
        rank=finding.rank,
        job=finding.job,
        storage=finding.storage if node is None else None,
    )


def _node(observation: Observation) -> str | None:
    """The node the observation names; for an Event about a pod, the one whose kubelet reports it."""
    match observation:
        case KubeEvent():
            return observation.name if observation.kind == "Node" else observation.host
        case LogLine() | Sample():
            return observation.node
        case _:
            return None


def _text_of(observation: Observation) -> str:
    match observation:
        case LogLine():
            return observation.text
        case Sample():
            return f"{observation.name}{{{_labels(observation.labels)}}} {observation.value:g}"
        case Alert():
            summary = (
                observation.annotations.get("summary") or observation.annotations.get("description") or ""
            )
            return f"{observation.name}{{{_labels(observation.labels)}}} {summary}"
        case KubeEvent():
            return f"{observation.reason}: {observation.message}"
        case Neighbour():
            here, there = (
                (observation.device, observation.port),
                (observation.remote, observation.remote_port),
            )
            return f"{' '.join(here)} hears {' '.join(there)}"


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()) if name != "__name__")
