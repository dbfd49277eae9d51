"""Every kind of job that is known has its rights in the base or in the component that the inventory names, and no more."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from streams.job_kinds.known import KNOWN
from streams.job_kinds.rights import component_of
from tests.deploy.manifests import COMPONENT_DIR, objects

READS = {"list", "watch"}
WRITES = {"get", "patch"}
BESIDES = {"jobs-kueue": {"list"}, "jobs-volcano": {"create"}}
"""What the responder may do besides, where a lever is another object than the job."""
JOB_COMPONENTS = sorted(path.name for path in COMPONENT_DIR.glob("jobs-*"))


def roles_of(component: str) -> dict[str, list[dict[str, Any]]]:
    """The rules by service account, of a component or (empty name) of the base."""
    file = COMPONENT_DIR / component / "rbac.yaml"
    found = list(yaml.safe_load_all(file.read_text()) if component else objects())
    rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "ClusterRole"}
    bound: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        if one["kind"] == "ClusterRoleBinding":
            (subject,) = one["subjects"]
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "faultline")
            bound.setdefault(subject["name"], []).extend(rules[one["roleRef"]["name"]])
    return bound


def verbs(rules: list[dict[str, Any]], group: str, plural: str) -> set[str]:
    return {
        verb
        for rule in rules
        if group in rule["apiGroups"] and plural in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("name", sorted(name for name, kind in KNOWN.items() if kind.api_versions))
def test_a_known_kind_can_be_watched_and_read_with_its_component(name: str) -> None:
    kind = KNOWN[name]
    rules = roles_of(component_of(kind.watched_as[0]))
    assert verbs(rules["inventory"], kind.group, kind.plural) == READS
    wanted = WRITES if not kind.no_means else {"get"}
    assert verbs(rules["responder"], kind.group, kind.plural) == wanted


@pytest.mark.parametrize("component", JOB_COMPONENTS)
def test_a_component_is_one_and_gives_no_more_than_reading_and_patching_jobs(component: str) -> None:
    kustomization = yaml.safe_load((COMPONENT_DIR / component / "kustomization.yaml").read_text())
    assert (kustomization["kind"], kustomization["resources"]) == ("Component", ["rbac.yaml"])
    found = roles_of(component)
    assert found.keys() <= {"inventory", "responder"}
    for rule in found.get("inventory", []):
        assert set(rule["verbs"]) == READS
    for rule in found["responder"]:
        assert set(rule["verbs"]) <= WRITES | BESIDES.get(component, set())
    assert "*" not in str(found)


def test_the_page_for_operators_lists_every_component() -> None:
    page = (COMPONENT_DIR.parents[1] / "docs" / "operations.md").read_text()
    assert [name for name in JOB_COMPONENTS if f"| `{name}` |" not in page] == []
