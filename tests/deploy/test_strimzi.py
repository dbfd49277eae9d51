"""What Strimzi is asked for, held against the tables that the processes go by. That it is rendered from them: test_chart."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from faultline.checks.kafka_rights import RIGHTS
from streams.kafka.topics import ALL, CHANGELOG, DAY_MS, RAW
from tests.deploy import strimzi
from tests.deploy.manifests import COMPONENT_DIR

USERS = {
    one["metadata"]["name"].removeprefix("faultline-"): one
    for one in yaml.safe_load_all((COMPONENT_DIR / "strimzi-users" / "users.yaml").read_text())
}
TOPICS = {
    one["metadata"]["name"]: one
    for one in yaml.safe_load_all((COMPONENT_DIR / "strimzi-topics" / "topics.yaml").read_text())
}


def test_the_files_are_what_the_tables_say() -> None:
    assert (COMPONENT_DIR / "strimzi-users" / "users.yaml").read_text() == strimzi.users()
    assert (COMPONENT_DIR / "strimzi-topics" / "topics.yaml").read_text() == strimzi.topics()


def may(user: str, operation: str, kind: str = "topic") -> set[str]:
    acls: list[dict[str, Any]] = USERS[user]["spec"]["authorization"]["acls"]
    return {
        rule["resource"]["name"]
        for rule in acls
        if rule["resource"]["type"] == kind and operation in rule["operations"]
    }


def test_every_process_has_a_user_and_the_job_that_makes_the_topics() -> None:
    assert USERS.keys() == RIGHTS.keys() | {"topics"}


@pytest.mark.parametrize("process", RIGHTS)
def test_a_process_reads_and_writes_its_topics_and_changes_none(process: str) -> None:
    rights = RIGHTS[process]
    assert may(process, "Read") == {topic.name for topic in rights.reads} | {"installation"}
    # Which cluster the topics belong to is for `topics apply` alone to say.
    assert may(process, "Write") == {topic.name for topic in rights.writes}
    for operation in ("Create", "Alter", "AlterConfigs", "Delete", "All"):
        assert may(process, operation) == set()
    assert len(may(process, "Read", "group")) == rights.has_group
    assert may(process, "Write", "transactionalId") == (
        {f"faultline-{process}-"} if rights.transactions else set()
    )


def test_nobody_may_delete_a_topic_and_only_the_job_may_make_one() -> None:
    every = {topic.name for topic in (*ALL, CHANGELOG)}
    assert may("topics", "Create") == may("topics", "Alter") == every
    assert {user for user in USERS if may(user, "Delete") or may(user, "All")} == set()


def test_a_shipper_that_takes_a_detectors_login_cannot_make_an_incident() -> None:
    assert not may("detector", "Write") & {"incidents", "runs", "commands", "controls"}


def test_topics_are_as_the_table_has_them_and_are_not_pruned_with_the_rest() -> None:
    assert TOPICS.keys() == {topic.name for topic in (*ALL, CHANGELOG)}
    for topic in RAW:
        spec = TOPICS[topic.name]["spec"]
        assert (spec["partitions"], spec["replicas"]) == (12, 3)
        assert spec["config"]["retention.ms"] == str(7 * DAY_MS)
    for one in TOPICS.values():
        assert one["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
        assert "Delete=false" in one["metadata"]["annotations"]["argocd.argoproj.io/sync-options"]
