"""The tables of rights are those of the manifests and of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from faultline.archive.rows import TOPICS as ARCHIVED
from faultline.checks.cluster_rights import every_right
from faultline.checks.kafka_rights import RIGHTS
from faultline.runtime.processes import OPTIONAL, PROCESSES
from streams.kafka.topics import ALL, CHANGELOG, RAW

ROOT = Path(__file__).parents[3]


def given() -> set[tuple[Any, ...]]:
    """What the manifests give: component, process, group, resource, verbs, namespace, names."""
    found = set()
    for file in sorted((ROOT / "k8s").rglob("rbac.yaml")):
        if "chart" in file.parts:
            continue  # templates, which a test of their own holds against these
        documents = [one for one in yaml.safe_load_all(file.read_text()) if one]
        users = {
            (one["roleRef"]["name"], one["metadata"].get("namespace")): subject["name"]
            for one in documents
            if one["kind"].endswith("Binding")
            for subject in one["subjects"]
        }
        for role in documents:
            if role["kind"] not in ("Role", "ClusterRole"):
                continue
            place = role["metadata"].get("namespace")
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        who = users[role["metadata"]["name"], place]
                        names = tuple(rule.get("resourceNames", ()))
                        found.add(
                            (file.parent.name, who, group, resource, tuple(rule["verbs"]), place, names)
                        )
    return found


def test_the_rights_that_are_asked_for_are_those_of_the_manifests() -> None:
    asked = {
        (one.component, one.process, one.group, one.resource, one.verbs, one.namespace, one.names)
        for one in every_right()
    }
    assert asked == given()


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """By process: the topics that it reads and writes, as the table of docs/architecture.md says."""
    found: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in PROCESSES}
    for line in (ROOT / "docs/architecture.md").read_text().splitlines():
        row = re.fullmatch(r"\| `([a-z.*-]+)`.* \|[^|]*\|([^|]*)\|([^|]*)\|", line)
        if row is None or row[1] == "installation":
            continue
        topics = {topic.name for topic in RAW} if row[1] == "raw.*" else {row[1]}
        for column, cell in enumerate((row[3], row[2])):
            for name in PROCESSES:
                if re.search(rf"\b{name}\b", cell):
                    found[name][column].update(topics)
    return found


def test_the_topics_of_each_process_are_those_of_the_architecture() -> None:
    own = {CHANGELOG.name, *(topic.name for topic in ALL)}
    for process, (reads, writes) in documented().items():
        if process in OPTIONAL:
            continue
        rights = RIGHTS[process]
        assert {topic.name for topic in (*rights.reads, *rights.writes)} <= own
        # What a process keeps for itself is in the table once, as written by it and read by it.
        assert reads == {topic.name for topic in rights.reads} - {CHANGELOG.name} - _kept(process) | (
            reads & _kept(process)
        ), process
        told = {topic.name for topic in rights.writes} - {CHANGELOG.name}
        assert told == writes if process != "gateway" else told <= writes, process


def test_the_archive_reads_what_it_keeps() -> None:
    assert RIGHTS["archive"].reads == ARCHIVED


def _kept(process: str) -> set[str]:
    return {topic.name for topic in RIGHTS[process].reads} & {topic.name for topic in RIGHTS[process].writes}
