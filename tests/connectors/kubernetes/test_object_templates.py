"""Templates of objects: what is refused at the start, what becomes of placeholders, and how results are read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.kubernetes.client import Object
from connectors.kubernetes.work_object_results import holds, verdict
from connectors.kubernetes.work_object_templates import (
    ObjectTemplate,
    Rule,
    filled,
    object_name,
    objects_of,
    read_object_templates,
)
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import parse_rfc3339
from streams.model.errors import ConfigError
from streams.model.run import Target
from tests.connectors.objects import effect as effect_on

SHIPPED = Path(__file__).parents[3] / "k8s" / "components" / "templates"
NOW = parse_rfc3339("2026-03-01T12:00:00Z")
EFFECT = effect_on("apply_template", Target("Node", "gpu-07", uid="uid-gpu-07"))


def a_template(**changes: Any) -> ObjectTemplate:
    content = {
        "template": "one",
        "class": "reboot",
        "object": {
            "apiVersion": "example.com/v1",
            "kind": "Reboot",
            "spec": {"node": "${node}", "why": "${incident}"},
        },
        "done": [{"condition": "Done"}],
        "failed": [{"condition": "Done", "status": "False", "reason": "Failed.*"}],
        "rights": [{"apiGroups": ["example.com"], "resources": ["reboots"], "verbs": ["get", "create"]}],
    }
    return ObjectTemplate.model_validate(content | changes)


def a_node(boot: str = "boot-1", *, ready: bool = True, uid: str = "uid-gpu-07", **meta: Any) -> Object:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"nodeInfo": {"bootID": boot}, "conditions": conditions}
    return {"metadata": {"name": "gpu-07", "uid": uid, **meta}, "status": status}


def told(kind: str, status: str = "True", reason: str = "", **meta: Any) -> Object:
    return {
        "metadata": {"generation": 2, **meta},
        "status": {"conditions": [{"type": kind, "status": status, "reason": reason}]},
    }


def test_placeholders_become_text_and_never_structure() -> None:
    hostile = replace(EFFECT, incident='inc-1", "force": true, x: "{{a}}\n${node}')
    made = filled(a_template(), hostile, a_node(), "work")
    assert made["spec"] == {"node": "gpu-07", "why": 'inc-1", "force": true, x: "{{a}} ${node}'}


def test_what_the_node_carries_can_be_named_and_what_it_lacks_is_refused() -> None:
    about: Object = {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine"}
    about["metadata"] = {"name": "${annotation.cluster.x-k8s.io/machine}", "namespace": "${owner.NodeClaim}"}
    template = a_template(object=about, does="delete", done=[{"gone": True}])
    owners = [{"kind": "NodeClaim", "name": "claim-1"}]
    node = a_node(annotations={"cluster.x-k8s.io/machine": "m-1"}, ownerReferences=owners)
    assert filled(template, EFFECT, node, "work")["metadata"] == {"name": "m-1", "namespace": "claim-1"}
    with pytest.raises(ValueError, match=r"no annotation.cluster.x-k8s.io/machine for Node"):
        filled(template, EFFECT, a_node(ownerReferences=owners), "work")


def test_the_name_is_that_of_the_effect() -> None:
    assert object_name(a_template(), EFFECT) == object_name(a_template(), EFFECT)
    assert object_name(a_template(), EFFECT) != object_name(a_template(), replace(EFFECT, key="key-2"))
    assert len(object_name(a_template(template="x" * 50), EFFECT)) <= 90


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"object": {"apiVersion": "v1", "kind": "${node}"}}, "object.kind"),
        (
            {"object": {"apiVersion": "v1", "kind": "X", "spec": {"${node}": 1}}},
            "a placeholder stands in a key",
        ),
        (
            {"object": {"apiVersion": "v1", "kind": "X", "spec": ["${reason}"]}},
            r"no placeholder \$\{reason\}",
        ),
        ({"object": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "mine"}}}, "Faultline's to set"),
        ({"does": "patch"}, "must name the object"),
        ({"done": [{"condition": "A", "path": "status.phase"}]}, "a rule is one of"),
        ({"done": [{"path": "status.phase"}]}, "needs values"),
        ({"done": [{"path": "status.phase", "values": "("}]}, "is no pattern"),
        ({"class": "reformat"}, "class"),
        ({"rights": []}, "rights"),
        ({"command": ["rm"]}, "command"),
    ],
)
def test_a_template_that_cannot_work_is_refused(changes: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        a_template(**changes)


def test_a_reboot_is_done_only_with_another_boot() -> None:
    template = a_template(proof="new_boot")
    done = told("Done")
    at = (EFFECT, "boot-1", NOW, NOW)
    assert verdict(template, done, a_node("boot-1"), *at)[0] == "running"
    assert verdict(template, done, a_node("boot-2", ready=False), *at)[0] == "running"
    assert verdict(template, done, a_node("boot-2"), *at)[0] == "done"
    assert verdict(template, done, a_node("boot-2", uid="another"), *at)[0] == "running"


def test_a_replacement_is_done_when_the_old_node_is_gone() -> None:
    template = a_template(proof="node_gone")
    at = (EFFECT, "", NOW, NOW)
    assert verdict(template, told("Done"), a_node(), *at)[0] == "running"
    assert verdict(template, told("Done"), None, *at)[0] == "done"
    assert verdict(template, told("Done"), a_node(uid="another"), *at)[0] == "done"


def test_what_its_controller_says_and_the_time_end_it() -> None:
    late = NOW + timedelta(seconds=1800)
    failed = verdict(a_template(), told("Done", "False", "FailedToBoot"), a_node(), EFFECT, "", NOW, NOW)
    assert failed == ("failed", "Done is False (FailedToBoot)")
    assert verdict(a_template(), told("Other"), a_node(), EFFECT, "", NOW, NOW) == ("running", "Other=True")
    assert verdict(a_template(), told("Other"), a_node(), EFFECT, "", NOW, late)[0] == "failed"


def test_a_condition_about_an_earlier_spec_does_not_count() -> None:
    thing = told("Done")
    thing["status"]["conditions"][0]["observedGeneration"] = 1
    assert holds(Rule(condition="Done"), thing) == ""
    thing["status"]["conditions"][0]["observedGeneration"] = 2
    assert holds(Rule(condition="Done"), thing) == "Done is True"


def test_only_a_template_of_that_class_replaces_a_node() -> None:
    folder = SHIPPED / "objects"
    good = NodeWorkSettings(object_templates=folder, replace_node="karpenter-nodeclaim-delete")
    assert "karpenter-nodeclaim-delete" in objects_of(good)
    with pytest.raises(ConfigError, match="nvsentinel-reboot is no template of class replace"):
        objects_of(NodeWorkSettings(object_templates=folder, replace_node="nvsentinel-reboot"))


def test_the_shipped_rights_are_those_that_the_shipped_templates_say() -> None:
    role, _ = yaml.safe_load_all((SHIPPED / "rbac.yaml").read_text())
    given = {(r["apiGroups"][0], r["resources"][0]): set(r["verbs"]) for r in role["rules"]}
    needed: dict[tuple[str, str], set[str]] = {}
    for template in read_object_templates(SHIPPED / "objects").values():
        for right in template.rights:
            needed.setdefault((right.apiGroups[0], right.resources[0]), set()).update(right.verbs)
    assert given == needed
    generated = yaml.safe_load((SHIPPED / "kustomization.yaml").read_text())["configMapGenerator"][0]["files"]
    assert sorted(SHIPPED / name for name in generated) == sorted((SHIPPED / "objects").glob("*.yaml"))
