"""Names and descriptions of Faultline's processes, used by the command line, the manifests and their tests."""

from __future__ import annotations

PROCESSES = {
    "detector": "reads raw records and publishes the signals in them",
    "inventory": "watches Kubernetes and publishes nodes, pods, jobs and links",
    "correlator": "correlates signals and inventory into incidents",
    "responder": "executes runbooks, each effect exactly once",
    "chat": "keeps one chat thread per incident up to date",
    "notifier": "pages people, silences alarms of closed nodes, annotates graphs and sends mail",
    "gateway": "takes alerts and people's decisions from other systems over HTTP",
    "archive": "writes signals, facts, incidents and runs to Parquet, for questions about months",
}

OPTIONAL = frozenset({"archive"})
"""Processes that the base manifests leave out: a component adds each (`k8s/components`)."""
