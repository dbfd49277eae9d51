"""The table of families against the detector's catalog: nothing that can be said is without a place in it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import yaml

from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.signal import Severity
from tests.streams.correlate.world import CLUSTER, at

CATALOG = files("streams.detect.catalog")
Said = tuple[str, str, str]
"""Kind, subtype, severity."""


def _rows(sheet: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a sheet that names a kind of signal, however deep."""
    if isinstance(sheet, dict):
        if isinstance(sheet.get("kind"), str) and "." in sheet["kind"]:
            yield sheet
        for value in sheet.values():
            yield from _rows(value)
    elif isinstance(sheet, list):
        for value in sheet:
            yield from _rows(value)


def _said() -> Iterator[Said]:
    sheets = [*CATALOG.iterdir(), *(CATALOG / "lines").iterdir()]
    for path in sorted(sheets, key=str):
        if not path.name.endswith(".yaml"):
            continue
        for row in _rows(yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))):
            sets = row.get("sets") or row.get("attributes") or {}
            subtypes = {sets.get("subtype") or row.get("subtype") or "", *(row.get("subtypes") or {})}
            for subtype in subtypes:
                yield row["kind"], str(subtype), str(row.get("severity", "error"))


TOLD = sorted(
    {said for said in _said() if said[0].startswith(("gpu.", "node.")) and said[0] != "node.not_ready"}
)


def sighting(kind: str, subtype: str, severity: str, **more: str) -> Sighting:
    attributes = {**({"subtype": subtype} if subtype else {}), **more}
    place = Entity(CLUSTER, node="n1")
    return Sighting("s", kind, place, at(0), at(0), at(0), Severity(severity), True, attributes)


def test_the_catalog_was_read() -> None:
    assert len(TOLD) > 80
    assert {"gpu.ecc", "gpu.driver", "node.kernel", "node.storage"} <= {kind for kind, _, _ in TOLD}


@pytest.mark.parametrize("said", TOLD, ids="-".join)
def test_everything_that_the_detector_says_of_a_node_has_a_place(said: Said) -> None:
    table, seen = families(), sighting(*said)
    if said[0] == "gpu.xid":
        return
    rule = table.rule(seen)
    assert rule is not None, "no row of families.yaml speaks of it"
    assert table.says(seen)
    assert table.certainty(seen) is not Certainty.DECISIVE or said[0] == "gpu.off_bus"


@pytest.mark.parametrize("said", [s for s in TOLD if s[2] == "info"], ids="-".join)
def test_what_is_only_for_information_is_no_cause(said: Said) -> None:
    assert families().role(sighting(*said)) != "cause"
