"""The chart renders what kustomize builds: the base, each overlay, and each component with its switch."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import render
from tests.deploy.manifests import BASE, COMPONENT_DIR, overlay
from tests.testbed import parts
from tests.tiers import sample

pytestmark = [pytest.mark.helm, pytest.mark.cluster]

OVERLAYS = sorted(path.parent.name for path in (BASE.parent / "overlays").glob("*/values.yaml"))
ON = {"enabled": True}
KINDS = sorted(path.parent.name.removeprefix("jobs-") for path in COMPONENT_DIR.glob("jobs-*/rbac.yaml"))
SWITCHES: dict[tuple[str, ...], dict[str, Any]] = {
    **{(f"jobs-{kind}",): {"jobs": {kind: True}} for kind in KINDS},
    ("archive",): {"archive": ON},
    ("catalog",): {"catalog": {"existingConfigMap": "faultline-catalog"}},
    ("runbooks",): {"runbooks": {"existingConfigMap": "faultline-runbooks"}},
    ("gpu-drain",): {"gpuDrain": ON},
    ("keda",): {"keda": ON},
    ("monitoring",): {"prometheusRules": ON, "dashboards": ON},
    ("node-work",): {"nodeWork": ON},
    ("node-work", "diagnostics"): {"nodeWork": ON, "diagnostics": ON},
    ("pod-exec",): {"podExec": ON},
    ("pod-monitor",): {"podMonitor": ON},
    ("priority-class",): {"priorityClassName": "system-cluster-critical"},
    ("redfish",): {"redfish": ON},
    ("service-monitor",): {"serviceMonitor": ON},
    ("slurm",): {"slurm": ON},
    ("templates",): {"templates": ON},
}
"""Components, with the values that do the same."""
SINGLE = [names for names in SWITCHES if len(names) == 1]
TOGETHER = tuple(name for (name,) in SINGLE)
"""All at once, as every commit is tried; one by one at night."""
KUSTOMIZE_ONLY: Mapping[str, str] = {
    "git-sync": "a sidecar with a repository and a key of the site's own",
    "strimzi-users": "they live beside the Kafka, not in the release's namespace",
    "strimzi-topics": "a chart that owned topics would delete them when it is uninstalled",
}
"""Components that the chart has no switch for, and why."""

_BY_NAME = {"env", "volumes", "volumeMounts", "ports"}
"""Lists in which the order means nothing."""
_HASH = re.compile(r"(faultline-(?:node-work|diagnostics|object-templates))-[0-9a-z]{10}$")
"""The suffix by which kustomize makes a new pod of a changed file; a chart has a checksum among the annotations for it."""


@cache
def kustomized(folder: Path) -> str:
    command = [str(parts.program("kubectl")), "kustomize", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def objects_of(text: str) -> dict[tuple[str, str, str], Any]:
    """The objects by kind, namespace and name, without what differs by who made them."""
    found = [plain(one) for one in yaml.safe_load_all(text) if one]
    kept = [one for one in found if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in kept
        # Whoever installs a chart makes its namespace; `helm install --create-namespace` does.
        if (one["kind"], one["metadata"]["name"]) != ("Namespace", "faultline")
    }


def plain(value: Any, key: str = "") -> Any:
    match value:
        case dict():
            left = {
                name: plain(below, name)
                for name, below in value.items()
                if name not in ("app.kubernetes.io/managed-by", "checksum/templates")
            }
            # What nothing is left of was not there.
            return {name: below for name, below in left.items() if (name, below) != ("annotations", {})}
        case list():
            rows = [plain(one) for one in value]
            return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) if key in _BY_NAME else rows
        case str() if key == "faultline.yaml":
            return yaml.safe_load(value)
        case str():
            return _HASH.sub(r"\1", value)
    return value


def test_what_the_chart_and_the_kustomizations_share_is_rendered_from_one_source() -> None:
    assert render.stale() == [], "run `make manifests`"


@pytest.mark.parametrize("name", sample(OVERLAYS, "shadow", "production"))
def test_with_the_values_of_an_overlay_the_chart_renders_the_overlay(name: str) -> None:
    folder = BASE.parent / "overlays" / name
    assert objects_of(render.template({}, folder / "values.yaml")) == objects_of(kustomized(folder))


def test_with_its_own_values_the_chart_renders_the_base() -> None:
    assert objects_of(render.template()) == objects_of(kustomized(BASE))


@pytest.mark.parametrize(
    "components",
    [TOGETHER, *(pytest.param(one, marks=pytest.mark.nightly) for one in SWITCHES)],
    ids=lambda names: "+".join(names) if len(names) < 3 else "everything",
)
def test_a_switch_of_the_chart_is_a_component(components: tuple[str, ...], tmp_path: Path) -> None:
    values = SWITCHES.get(components) or {
        key: value for names in SINGLE for key, value in SWITCHES[names].items() if key != "jobs"
    } | {"jobs": dict.fromkeys(KINDS, True)}
    built = objects_of(kustomized(overlay(tmp_path, *components)))
    assert objects_of(render.template(values)) == built
    assert built != objects_of(kustomized(BASE)), "the component adds something"


def test_every_component_has_a_switch_or_a_reason() -> None:
    switched = {name for components in SWITCHES for name in components}
    there = {path.parent.name for path in COMPONENT_DIR.glob("*/kustomization.yaml")}
    assert there == switched | KUSTOMIZE_ONLY.keys()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"mode": "yolo"}, "mode"),
        ({"processes": {"detektor": {}}}, "detektor"),
        ({"existingSecret": ""}, "existingSecret"),
        ({"jobs": {"lws": "yes"}}, "lws"),
        ({"settings": {"responder": {"mode": "auto"}}}, "set the value mode"),
        ({"settings": {"cluster": "east-1"}}, "set the value cluster"),
        ({"settings": {"kafka": {"bootstrap": "kafka:9092"}}}, r"set the value kafka\.bootstrap"),
        ({"settings": {"http_port": 9999}}, "probes and ports"),
        ({"settings": {"http_port": 0}}, "probes and ports"),
        ({"settings": {"respnder": {"lease_s": 9}}}, "respnder"),
        ({"settings": {"responder": {"blast_radius": {"max_node": 9}}}}, "max_node"),
        ({"settings": {"slack": {"token": "xoxb-1"}}}, "existingSecret as FAULTLINE_SLACK__TOKEN"),
        ({"settings": {"kafka": {"sasl_password": "x"}}}, "existingSecret as FAULTLINE_KAFKA__SASL_PASSWORD"),
        ({"settings": {"responder": {"tenants": [{"nmae": "a"}]}}}, "nmae"),
        ({"settings": {"notifier": {"sinks": {"oncall": {"knd": "pagerduty"}}}}}, "knd"),
        (
            {"settings": {"notifier": {"sinks": {"oncall": {"kind": "pagerduty", "key": "s3cr3t"}}}}},
            "existingSecret as FAULTLINE_NOTIFIER__SINKS__<NAME>__KEY",
        ),
        (
            {"settings": {"posts": {"apprise": {"urls": ["json://user:pw@host"]}}}},
            "existingSecret as FAULTLINE_POSTS__APPRISE__URLS",
        ),
        ({"settings": {"tracing": {"headers": {"Authorization": "Bearer x"}}}}, "FAULTLINE_TRACING__HEADERS"),
        ({"settings": {"kafka": None}}, "kafka"),
        ({"settings": {"slack": None}}, "slack"),
        ({"mode": None}, "mode"),
        ({"kafka": None}, "kafka"),
        ({"kafka": {"bootstrap": None}}, "bootstrap"),
        ({"image": {"repository": None}}, "repository"),
        ({"processes": {"detector": None}}, "detector"),
        ({"processes": {"detector": {"replicas": None}}}, "replicas"),
        ({"keda": {"enabled": True, "lagThreshold": None}}, "lagThreshold"),
        (
            {"extraEnv": [{"name": "FAULTLINE_SLACK__TOKEN", "value": "xoxb-1"}]},
            "existingSecret, or use valueFrom",
        ),
        (
            {"extraEnv": [{"name": "faultline_slack__token", "value": "xoxb-1"}]},
            "existingSecret, or use valueFrom",
        ),
        ({"extraEnv": [{"name": "FAULTLINE_SLACK", "value": "{}"}]}, "existingSecret, or use valueFrom"),
        (
            {
                "processes": {
                    "notifier": {"extraEnv": [{"name": "FAULTLINE_NOTIFIER__SINKS__A__KEY", "value": "x"}]}
                }
            },
            "existingSecret, or use valueFrom",
        ),
        ({"extraEnv": [{"value": "x"}]}, "name"),
        ({"kafka": {"bootstrap": "kafka:0"}}, "bootstrap"),
        ({"kafka": {"bootstrap": "a:9092,kafka:99999"}}, "bootstrap"),
        ({"kafka": {"bootstrap": "kafka"}}, "bootstrap"),
        ({"kafka": {"bootstrap": "kafka:9092,"}}, "bootstrap"),
        ({"extraEnv": [{"name": "FAULTLINE_RESPONDER__MODE", "value": "auto"}]}, "set the value mode"),
        ({"extraEnv": [{"name": "faultline_responder__mode", "value": "auto"}]}, "set the value mode"),
        (
            {"extraEnv": [{"name": "FAULTLINE_RESPONDER", "value": '{"mode": "auto"}'}]},
            "FAULTLINE_RESPONDER cannot be set",
        ),
        (
            {"extraEnv": [{"name": "FAULTLINE_CONFIG", "value": "/tmp/own.yaml"}]},
            "FAULTLINE_CONFIG cannot be set",
        ),
        (
            {"processes": {"responder": {"extraEnv": [{"name": "FAULTLINE_CLUSTER", "value": "b"}]}}},
            "set the value cluster",
        ),
        ({"keda": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}}, "maxReplicas 4 is below"),
    ],
)
def test_values_that_mean_nothing_are_refused(values: Mapping[str, Any], told: str) -> None:
    with pytest.raises(RuntimeError, match=told):
        render.template(values)


def test_brokers_by_name_address_and_several_at_once_are_values() -> None:
    for bootstrap in (
        "kafka:9092",
        "[fd00::1]:9093",
        "10.0.0.1:9092,[fd00::1]:9093",
        "a.b.svc.cluster.local:9092,b:1",
    ):
        values = {
            "kafka": {"bootstrap": bootstrap},
            "keda": ON,
            "settings": {"kafka": {"topic_prefix": "1."}},
        }
        objects = objects_of(render.template(values))
        (scaled,) = (one for (kind, _, _), one in objects.items() if kind == "ScaledObject")
        about = scaled["spec"]["triggers"][0]["metadata"]
        assert (about["bootstrapServers"], about["consumerGroup"]) == (bootstrap, "1.faultline-detector")


def test_variables_and_rows_that_hold_no_secret_are_values() -> None:
    render.template(
        {
            "extraEnv": [
                {"name": "FAULTLINE_SLACK__CHANNEL", "value": "C1"},
                {
                    "name": "FAULTLINE_SLACK__TOKEN",
                    "valueFrom": {"secretKeyRef": {"name": "slack", "key": "token"}},
                },
                {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
            ],
            "settings": {
                "notifier": {"sinks": {"oncall": {"kind": "pagerduty"}}},
                "responder": {
                    "approval_groups": {"leads": ["ada"]},
                    "approval_classes": {"reboot": {"group": "leads"}},
                },
            },
        }
    )


def test_every_value_is_in_the_schema_and_the_file_can_be_read_in_one_sitting() -> None:
    file = render.CHART / "values.yaml"
    assert len(file.read_text().splitlines()) <= 200
    schema = json.loads((render.CHART / "values.schema.json").read_text())

    def compare(values: Mapping[str, Any], about: Mapping[str, Any], path: str) -> None:
        if "$ref" in about:
            about = schema["$defs"][about["$ref"].rpartition("/")[2]]
        if "properties" not in about or path == "values.settings":  # its keys are those of the settings
            return
        assert about["additionalProperties"] is False, path
        assert values.keys() == about["properties"].keys(), path
        for key, below in about["properties"].items():
            if isinstance(values[key], dict):
                compare(values[key], below, f"{path}.{key}")

    compare(yaml.safe_load(file.read_text()), schema, "values")
