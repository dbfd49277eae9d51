"""`python -m k8s.monitoring.render [--docs URL]`: writes the rules and dashboards that Prometheus, kubectl and Grafana take.

The tables are what people edit; `rules/` (for `rule_files`), `prometheus-rules/` (for the Prometheus operator) and
`dashboards/` are written from them, and a test holds that they are up to date.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from k8s.monitoring import panels, slo
from k8s.monitoring.rows import PACK, Row, read

HERE = Path(__file__).parent
DOCS = "https://faultline.example.test/docs/monitoring.md"
"""Where `docs/monitoring.md` is served; a site puts its own address here with `--docs`."""

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_LABELS = {
    "app.kubernetes.io/name": "faultline",
    "app.kubernetes.io/component": "monitoring",
    "app.kubernetes.io/part-of": "faultline",
}


def groups(name: str, docs: str = DOCS) -> list[dict[str, Any]]:
    """The rule groups of a table."""
    if name == "slo":
        return slo.groups(docs)
    table = read(name)
    return [{"name": table.group, "rules": [_rule(row, docs) for row in table.rows]}]


def _rule(row: Row, docs: str) -> dict[str, Any]:
    lasts = {"for": row.for_} if row.for_ != "0m" else {}
    return {
        "alert": row.alert,
        "expr": row.expression,
        **lasts,
        "labels": row.rule_labels,
        "annotations": row.annotations(docs),
    }


def prometheus_rule(name: str, docs: str = DOCS) -> dict[str, Any]:
    """The same groups as an object of the Prometheus operator."""
    metadata = {"name": f"faultline-{name}", "labels": _LABELS}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": metadata,
        "spec": {"groups": groups(name, docs)},
    }


def files(docs: str = DOCS) -> Iterator[tuple[Path, str]]:
    """Every file that is written, and its text."""
    for name in ("slo", "own", *PACK):
        note = f"# Written by `python -m k8s.monitoring.render` from tables/{name}.yaml: change that.\n"
        yield HERE / "rules" / f"{name}.yaml", note + _yaml({"groups": groups(name, docs)})
        yield HERE / "prometheus-rules" / f"{name}.yaml", note + _yaml(prometheus_rule(name, docs))
    for name in panels.NAMES:
        text = json.dumps(panels.dashboard(name), indent=1, ensure_ascii=False)
        yield HERE / "dashboards" / f"faultline-{name}.json", text + "\n"


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=1000)


def main() -> None:
    """Write all of them."""
    arguments = argparse.ArgumentParser(
        prog="python -m k8s.monitoring.render", description="Write rules and dashboards."
    )
    arguments.add_argument("--docs", default=DOCS, help="where your copy of docs/monitoring.md is served")
    for path, text in files(arguments.parse_args().docs):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
