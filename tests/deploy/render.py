"""Write what `k8s/chart` and the kustomizations have in common: ``python -m tests.deploy.render``.

The chart's templates are the source of whole objects: the base is what it renders with its own values, and a component's objects
are what a switch adds. Files without any value in them (roles of a switch, templates of Jobs, rules, dashboards) belong to
their component and are copied into the chart, for a chart cannot read outside of its folder. What the value `settings` takes
follows from the settings. A test holds all of it against this
module.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.deploy import strimzi
from tests.deploy.manifests import BASE, COMPONENT_DIR
from tests.deploy.settings_schema import settings_schema, variable_schema
from tests.testbed import parts

K8S = BASE.parent
CHART = K8S / "chart"
RELEASE = "faultline"
"""Release and namespace of the renderings: with another name cluster-wide objects are called otherwise."""

SEPARATE = {"namespace.yaml", "kustomization.yaml"}
"""Files of the base that the chart does not have: whoever installs a chart makes its namespace."""

SWITCHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "archive/archive.yaml": ("archive.yaml", {"archive": {"enabled": True}}),
    "keda/scaled-object.yaml": ("keda.yaml", {"keda": {"enabled": True}}),
    "pod-monitor/pod-monitor.yaml": ("pod-monitor.yaml", {"podMonitor": {"enabled": True}}),
    "priority-class/quota.yaml": ("priority-quota.yaml", {"priorityClassName": "system-cluster-critical"}),
    "service-monitor/service-monitor.yaml": ("service-monitor.yaml", {"serviceMonitor": {"enabled": True}}),
}
"""Files of components, each with the template that renders it and the values that switch it on."""

COPIED = {
    "objects": COMPONENT_DIR / "templates" / "objects",
    "node-work": COMPONENT_DIR / "node-work" / "templates",
    "diagnostics": COMPONENT_DIR / "diagnostics" / "session",
    "prometheus-rules": K8S / "monitoring" / "prometheus-rules",
    "dashboards": K8S / "monitoring" / "dashboards",
}
"""Folders of the chart's `files`, each with the folder whose files it holds."""

_SOURCE = re.compile(rf"^---\n# Source: {RELEASE}/templates/(\S+)\n", re.MULTILINE)


def helm(*arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
    """Run `helm` and return what it printed.

    Raises:
        RuntimeError: with what it said, when it fails.
    """
    cluster = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    command = [str(parts.program("helm")), *arguments, *cluster]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"helm {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def template(values: Mapping[str, Any] | None = None, *files: Path) -> str:
    """What the chart renders with these values over those of the files, over its own."""
    given = [argument for file in files for argument in ("--values", str(file))]
    return helm(
        "template",
        RELEASE,
        str(CHART),
        f"--namespace={RELEASE}",
        *given,
        "--values=-",
        stdin=json.dumps(values or {}),
    )


def by_template(rendered: str) -> dict[str, str]:
    """The documents of a rendering by the template they come from, as they are written for kustomize."""
    _, *pieces = _SOURCE.split(rendered)
    found: dict[str, list[str]] = {}
    for name, text in zip(pieces[::2], pieces[1::2], strict=True):
        found.setdefault(name, []).append(text.strip() + "\n")
    return {name: for_kustomize("---\n".join(texts)) for name, texts in found.items()}


def for_kustomize(text: str) -> str:
    """A rendering with the label of who manages it changed."""
    return text.replace("managed-by: Helm", "managed-by: kustomize")


def files() -> Iterator[tuple[Path, str]]:
    """Every file that is written, with its content."""
    base = by_template(template())
    for name, text in base.items():
        if not name.startswith("tests/"):
            yield (
                BASE / name,
                f"# Rendered from ../chart/templates/{name}: change that, and run `make manifests`.\n{text}",
            )
    for target, (name, values) in SWITCHED.items():
        text = by_template(template(values))[name]
        yield (
            COMPONENT_DIR / target,
            f"# Rendered from ../../chart/templates/{name}: change that, and run `make manifests`.\n{text}",
        )
    for rights in sorted(COMPONENT_DIR.glob("*/rbac.yaml")):
        if rights.parent.name != "node-work":
            yield CHART / "files" / "rights" / f"{rights.parent.name}.yaml", rights.read_text()
    for folder, source in COPIED.items():
        for file in sorted(source.glob("*")):
            yield CHART / "files" / folder / file.name, file.read_text()
    yield COMPONENT_DIR / "strimzi-users" / "users.yaml", strimzi.users()
    yield COMPONENT_DIR / "strimzi-topics" / "topics.yaml", strimzi.topics()
    yield CHART / "values.schema.json", schema()
    yield CHART / "README.md", readme()


def schema() -> str:
    """The schema of the values: as it is written by hand, but for what follows from the settings themselves, and for what is
    required: everything that has a default, because Helm takes out what is set to null, and templates count on it.
    """
    found = json.loads((CHART / "values.schema.json").read_text())
    about = found["properties"]["settings"]
    found["properties"]["settings"] = {
        "description": about["description"],
        **settings_schema(),
    }
    found["$defs"]["variable"] = variable_schema()
    for section in (found, found["$defs"]["process"], *_sections(found)):
        section["required"] = sorted(section["properties"])
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _sections(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sections of the values, but for `settings`, where nothing has to be."""
    for name, about in schema["properties"].items():
        if "properties" in about and name != "settings":
            yield about
            yield from _sections(about)


def readme() -> str:
    """The page of the chart: what it says by hand, and a row for each value from the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = [
        f"| `{key}` | {kind} | {default} | {meaning} |"
        for key, kind, default, meaning in _rows(schema, defaults, schema)
    ]
    return _README + "\n".join(["| value | takes | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _rows(
    about: Mapping[str, Any], default: Any, root: Mapping[str, Any], path: Sequence[str] = ()
) -> Iterator[tuple[str, str, str, str]]:
    if "$ref" in about:
        about = {**root["$defs"][about["$ref"].rpartition("/")[2]], **about}
    if "properties" in about and default:
        for key, below in about["properties"].items():
            yield from _rows(below, default[key], root, (*path, key))
        return
    kind = " or ".join(f"`{one}`" for one in about["enum"]) if "enum" in about else about["type"]
    shown = json.dumps(default) if len(json.dumps(default)) < 60 else "see values.yaml"
    yield ".".join(path), kind, f"`{shown}`" if shown != "see values.yaml" else shown, about["description"]


_README = """<!-- Written by `make manifests` from values.schema.json. -->

# Chart of Faultline

```text
helm install faultline k8s/chart --namespace faultline --create-namespace --set cluster=NAME --set kafka.bootstrap=HOST:PORT
helm test faultline --namespace faultline
```

It installs in mode `shadow`: everything is decided and recorded, and nothing is touched. With the values of an overlay
(`-f k8s/overlays/shadow/values.yaml`) it renders the same objects as `kubectl kustomize` of that overlay. It has no custom
resources of its own; those of others (KEDA, the Prometheus operator) are behind switches. Uninstalling leaves the topics, with
all that they hold, and the namespace. [Installation](../../docs/install.md) has every way with its requirements.

Secrets are never values: each `existingSecret` names one that you, External Secrets or Sealed Secrets make.

"""


def stale() -> list[Path]:
    """The files that are not what this module would write, and those that nothing writes any more."""
    wanted = dict(files())
    there = {*BASE.glob("*.yaml"), *(file for file in (CHART / "files").rglob("*") if file.is_file())}
    forgotten = [file for file in there - wanted.keys() if file.name not in SEPARATE]
    return sorted(forgotten + [f for f, text in wanted.items() if not f.is_file() or f.read_text() != text])


def main() -> int:
    """Write every file; say which have changed."""
    changed = stale()
    wanted = dict(files())
    for file in changed:
        if file in wanted:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(wanted[file])
        else:
            file.unlink()
        print(file.relative_to(K8S))
    return 0


if __name__ == "__main__":
    sys.exit(main())
