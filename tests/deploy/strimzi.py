"""KafkaTopics and KafkaUsers for Strimzi, from the tables that the processes themselves go by: topics, and rights by process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from faultline.checks.kafka_rights import (
    RIGHTS,
    Operation,
    group_of,
    operations_on,
    transactional_ids,
)
from streams.config.settings import KafkaSettings
from streams.kafka.provisioning import wanted_topics
from streams.kafka.topics import ALL, CHANGELOG, INSTALLATION

NAMESPACE = "kafka"
"""Where Strimzi's operators look: the namespace of the Kafka itself."""
CLUSTER = "kafka"
LABELS = {
    "app.kubernetes.io/name": "faultline",
    "app.kubernetes.io/instance": "faultline",
    "app.kubernetes.io/component": "kafka",
    "app.kubernetes.io/part-of": "faultline",
    "app.kubernetes.io/version": "0.1.0",
    "app.kubernetes.io/managed-by": "kustomize",
    "strimzi.io/cluster": CLUSTER,
}
KEPT = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
"""Deleting a KafkaTopic deletes the topic with all it holds; these keep Argo CD and Flux from doing so by the way."""
SECRETS = {
    "reflector.v1.k8s.emberstack.com/reflection-allowed": "true",
    "reflector.v1.k8s.emberstack.com/reflection-auto-enabled": "true",
    "reflector.v1.k8s.emberstack.com/reflection-auto-namespaces": "faultline",
}
"""Strimzi writes a user's password beside the Kafka. Where a reflector runs, it carries it to Faultline's namespace."""
SETTINGS = KafkaSettings()

_TOPICS_OPERATIONS = ("Create", "Alter", "AlterConfigs", "Describe", "DescribeConfigs")
_NAMES = {
    Operation.READ: "Read",
    Operation.WRITE: "Write",
    Operation.DESCRIBE: "Describe",
    Operation.DESCRIBE_CONFIGS: "DescribeConfigs",
}


def topics() -> str:
    """A KafkaTopic for each row of the table of topics."""
    head = (
        "# Rendered from streams/kafka/topics.py: `make manifests`. DELETING ONE DELETES THE TOPIC with all it holds, and\n"
        "# `kubectl delete -k` deletes all of them.\n"
    )
    return head + _documents(
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaTopic",
            "metadata": _metadata(topic.name, KEPT),
            "spec": {
                "partitions": topic.partitions,
                "replicas": topic.replication,
                "config": dict(topic.config),
            },
        }
        for topic in wanted_topics(SETTINGS)
    )


def users() -> str:
    """A KafkaUser for each process and for the Job that makes the topics, with what each does and nothing else."""
    head = "# Rendered from faultline/checks/kafka_rights.py: `make manifests`.\n"
    everyone = {name: list(_rules_of(name)) for name in RIGHTS} | {"topics": list(_rules_of_topics())}
    return head + _documents(
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaUser",
            "metadata": _metadata(f"faultline-{name}"),
            "spec": {
                "authentication": {"type": "scram-sha-512"},
                "authorization": {"type": "simple", "acls": rules},
                "template": {"secret": {"metadata": {"annotations": SECRETS}}},
            },
        }
        for name, rules in everyone.items()
    )


def _rules_of(process: str) -> Iterator[Mapping[str, Any]]:
    for topic, wanted in zip((*ALL, CHANGELOG), wanted_topics(SETTINGS), strict=True):
        yield _rule("topic", wanted.name, *(_NAMES[one] for one in operations_on(topic, (process,))))
    if group := group_of(process, SETTINGS):
        yield _rule("group", group, "Read", "Describe")
    if transactional_ids(process, SETTINGS):
        name = f"{SETTINGS.topic_prefix}faultline-{process}-"
        yield _rule("transactionalId", name, "Write", "Describe", pattern="prefix")


def _rules_of_topics() -> Iterator[Mapping[str, Any]]:
    for topic, wanted in zip((*ALL, CHANGELOG), wanted_topics(SETTINGS), strict=True):
        more = ("Read", "Write") if topic is INSTALLATION else ()
        yield _rule("topic", wanted.name, *_TOPICS_OPERATIONS, *more)


def _rule(kind: str, name: str, *operations: str, pattern: str = "literal") -> Mapping[str, Any]:
    resource = {"type": kind, "name": name, "patternType": pattern}
    return {"resource": resource, "operations": sorted(operations)}


def _metadata(name: str, annotations: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    more = {"annotations": dict(annotations)} if annotations else {}
    return {"name": name, "namespace": NAMESPACE, "labels": LABELS, **more}


def _documents(objects: Iterator[Mapping[str, Any]]) -> str:
    """Short lists and mappings on one line, as one writes them by hand."""
    return "---\n".join(
        yaml.dump(one, Dumper=_Plain, sort_keys=False, width=120, default_flow_style=None) for one in objects
    )


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
