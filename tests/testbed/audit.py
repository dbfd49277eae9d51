"""What the API server was really asked to change, by whom: for tests that count outward calls.

The policy records every write of every user but the control plane's own programs, with the body that was
sent. The server writes a record before it ends the call, so a caller that has its answer finds the record;
after a call that was cut short, wait for the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


def policy(ignored_users: Iterable[str]) -> dict[str, Any]:
    """Return the audit policy; the order of the rules decides, the first match counts."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": sorted({"system:apiserver", *ignored_users})},
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "Request"},
        ],
    }


@dataclass(frozen=True)
class Write:
    """One request that was to change something; ``code`` is the HTTP status it got, 403 for a denied one.

    ``at`` is when the server received it, before it had done anything.

    An eviction is ``create`` on ``pods`` with the subresource ``eviction``.
    """

    user: str
    agent: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    body: dict[str, Any] | None
    at: datetime


class AuditLog:
    """The writes since the control plane started, oldest first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Return a place in the log, for ``writes(since=…)``."""
        return self.path.stat().st_size if self.path.exists() else 0

    def writes(self, *, since: int = 0, **wanted: str | int) -> list[Write]:
        """Return the writes after ``since`` whose fields equal ``wanted``, e.g. ``resource="nodes"``."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(since)
            complete = log.read().rpartition(b"\n")[0]
        found = [_write(json.loads(line)) for line in complete.splitlines()]
        return [w for w in found if all(getattr(w, field) == value for field, value in wanted.items())]


def _write(record: dict[str, Any]) -> Write:
    target = record.get("objectRef", {})
    return Write(
        user=record["user"].get("username", ""),
        agent=record.get("userAgent", ""),
        verb=record["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=record.get("responseStatus", {}).get("code", 0),
        body=record.get("requestObject"),
        at=datetime.fromisoformat(record["requestReceivedTimestamp"]),
    )
