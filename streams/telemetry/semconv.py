"""Every name that spans and their resource carry, in one place.

The names without `faultline.` are those of OpenTelemetry's semantic conventions 1.44 (messaging, HTTP client spans, resource);
they are experimental there, so a new version of them changes this file and nothing else.
"""

from __future__ import annotations

from typing import Final

SERVICE_NAME: Final = "service.name"
SERVICE_NAMESPACE: Final = "service.namespace"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"

SYSTEM: Final = "messaging.system"
KAFKA: Final = "kafka"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
SEND: Final = "send"
PROCESS: Final = "process"
DESTINATION: Final = "messaging.destination.name"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"

ERROR_TYPE: Final = "error.type"

CLUSTER: Final = "faultline.cluster"
COMPONENT: Final = "faultline.component"
INCIDENT: Final = "faultline.incident.id"
INCIDENT_FAMILY: Final = "faultline.incident.family"
INCIDENT_REVISION: Final = "faultline.incident.revision"
INCIDENT_STATE: Final = "faultline.incident.state"
INCIDENT_ROOT: Final = "faultline.incident.root"
EVIDENCE: Final = "faultline.evidence"
"""Where the raw records lie that an incident rests on, as `topic:partition:offset`: found without any trace, too."""
RUN: Final = "faultline.run.id"
RUNBOOK: Final = "faultline.runbook"
MODE: Final = "faultline.mode"
RUN_OUTCOME: Final = "faultline.run.outcome"
STEP: Final = "faultline.step"
ACTION: Final = "faultline.action"
CALL: Final = "faultline.call"
"""Why a connector was called: `apply`, `lookup`, `undo` …"""
TARGET: Final = "faultline.target"
EFFECT_KEY: Final = "faultline.effect.key"
OUTCOME: Final = "faultline.outcome"
RECORDS: Final = "faultline.records"
"""Raw records that were read for a batch, those included that nothing was found in."""
SIGNALS: Final = "faultline.signals"
DEAD_LETTERS: Final = "faultline.dead_letters"
SINK: Final = "faultline.sink"
SLOT: Final = "faultline.message"
"""Which message of a thread or notice: `root`, `run` …"""
