"""Deliveries as each system sends them, of our own making, after the shapes in its public documentation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from streams.model.clock import rfc3339, to_millis
from tests.faultline.gateway.serving import INCIDENT, NOW

DEDUP_KEY = f"faultline/{INCIDENT.id}"
LABEL = f"faultline-{INCIDENT.id}"


def alert_group(count: int = 1, **changes: Any) -> dict[str, Any]:
    """A webhook of Alertmanager, version 4."""
    return {
        "version": "4",
        "groupKey": '{}:{alertname="GpuXid"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "faultline",
        "groupLabels": {"alertname": "GpuXid"},
        "commonLabels": {"alertname": "GpuXid", "severity": "critical"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example.test:9093",
        "alerts": [
            {
                "status": "firing",
                "labels": {
                    "alertname": "GpuXid",
                    "severity": "critical",
                    "node": f"gpu-{number}",
                    "xid": "79",
                },
                "annotations": {"summary": f"GPU has fallen off the bus on gpu-{number}"},
                "startsAt": "2026-03-01T11:58:00.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "http://prometheus.example.test:9090/graph",
                "fingerprint": f"{number:016x}",
            }
            for number in range(count)
        ],
        **changes,
    }


def cloudevent(**changes: Any) -> dict[str, Any]:
    """A CloudEvent in structured mode."""
    return {
        "specversion": "1.0",
        "id": "e-1",
        "type": "com.example.gpu.fault",
        "source": "/racks/7",
        "subject": "gpu-17",
        "time": rfc3339(NOW),
        "datacontenttype": "application/json",
        "data": {"message": "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", "host": "gpu-17"},
        **changes,
    }


USER = {"type": "user_reference", "id": "PANN", "summary": "Ann Smith", "html_url": None}


def pagerduty(
    kind: str = "incident.acknowledged", *, at: datetime = NOW, name: str = "01EVENT", **changes: Any
) -> dict[str, Any]:
    """A version 3 webhook about a PagerDuty incident."""
    data = {
        "id": "QINCIDENT1",
        "type": "incident",
        "number": 42,
        "status": "acknowledged",
        "incident_key": DEDUP_KEY,
        "title": "gpu-17: GPU fell off the bus",
        "service": {"id": "PSERV", "type": "service_reference", "summary": "GPU cluster"},
        "resolve_reason": None,
    }
    event = {
        "id": name,
        "event_type": kind,
        "resource_type": "incident",
        "occurred_at": rfc3339(at),
        "agent": USER,
        "client": None,
        "data": data,
    }
    return {"event": event | changes}


def pagerduty_note(content: str = "swapping the riser", **changes: Any) -> dict[str, Any]:
    """The event of a note: it refers to its incident by PagerDuty's id only."""
    note = {
        "id": "PNOTE1",
        "type": "incident_note",
        "content": content,
        "trimmed": False,
        "incident": {"id": "QINCIDENT1", "type": "incident_reference", "summary": "gpu-17"},
    }
    return pagerduty("incident.annotated", name="01NOTE", **({"data": note} | changes))


ANN = {"accountId": "5b10a-ann", "accountType": "atlassian", "displayName": "Ann Smith", "active": True}
FAULTLINE = {"accountId": "account-of-faultline", "accountType": "atlassian", "displayName": "Faultline"}


def jira_closed(*, user: Any = None, at: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """Jira Cloud: an issue went to a status of the category done."""
    return {
        "timestamp": to_millis(at),
        "webhookEvent": "jira:issue_updated",
        "issue_event_type_name": "issue_generic",
        "user": ANN if user is None else user,
        "issue": jira_issue(),
        "changelog": {
            "id": "10124",
            "items": [
                {"field": "resolution", "fieldtype": "jira", "from": None, "to": "10000", "toString": "Done"},
                {"field": "status", "fieldtype": "jira", "from": "3", "to": "10001", "toString": "Done"},
            ],
        },
        **changes,
    }


def jira_issue(category: str = "done", labels: Any = None) -> dict[str, Any]:
    return {
        "id": "10002",
        "key": "GPU-7",
        "fields": {
            "summary": "gpu-17: GPU fell off the bus",
            "labels": ["faultline", "faultline-0123456789abcdef", LABEL] if labels is None else labels,
            "status": {"name": "Done", "statusCategory": {"key": category}},
        },
    }


def jira_comment(body: Any = "swapping the riser", *, author: Any = None, **changes: Any) -> dict[str, Any]:
    """Jira Cloud: a comment was made. The issue comes without its labels."""
    issue = jira_issue("indeterminate")
    del issue["fields"]["labels"]
    return {
        "timestamp": to_millis(NOW),
        "webhookEvent": "comment_created",
        "comment": {"id": "10100", "author": ANN if author is None else author, "body": body},
        "issue": issue,
        **changes,
    }


def servicenow(event: str = "closed", **changes: Any) -> dict[str, Any]:
    """What the business rule of our documentation posts."""
    return {
        "event": event,
        "number": "INC0010023",
        "sys_id": "9d385017c611228701d22104cc95c371",
        "correlation_id": LABEL,
        "user_name": "ann.smith",
        "user": "Ann Smith",
        "text": "riser swapped",
        "id": "7",
        "at": "2026-03-01 12:00:00",
        **changes,
    }
