"""What is stored keeps a shape that the release before reads, and what the release before stored is read."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from streams.kafka import topics
from tests.upgrade.shapes import DOCUMENTS, FROZEN, differences, shapes

NO_DOCUMENTS = {topics.TICKS.name, topics.DETECTOR_STATE.name}
"""A time, and blocks of rows: their samples are in `tests/streams/model/stored`."""


def test_each_release_reads_what_the_other_writes() -> None:
    frozen, now = json.loads(FROZEN.read_text()), shapes()
    assert frozen.keys() == now.keys()
    found = [f"{topic}: {text}" for topic in now for text in differences(frozen[topic], now[topic])]
    assert not found, "\n".join([*found, "what to do: docs/upgrade.md, Changing what is stored"])


def test_every_internal_topic_has_a_shape() -> None:
    internal = {topic.name for topic in topics.ALL if topic not in topics.RAW}
    assert internal - NO_DOCUMENTS == set(DOCUMENTS)


def _required(shape: dict[str, Any]) -> None:
    shape["Incident.mood"] = {"type": "string", "required": True}


def _now_required(shape: dict[str, Any]) -> None:
    shape["Incident.closed_at"]["required"] = True


def _gone(shape: dict[str, Any]) -> None:
    del shape["Incident.title"]


def _optional_gone(shape: dict[str, Any]) -> None:
    del shape["Incident.flaps"]


def _other_type(shape: dict[str, Any]) -> None:
    shape["Incident.revision"]["type"] = "string"


def _more_values(shape: dict[str, Any]) -> None:
    shape["IncidentState"]["values"].append("forgotten")


def _fewer_values(shape: dict[str, Any]) -> None:
    shape["IncidentState"]["values"].remove("merged")


def _closed(shape: dict[str, Any]) -> None:
    shape["Incident.*"] = {"closed": True}


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (_required, "Incident.mood is new and must be there"),
        (_now_required, "Incident.closed_at must be there now"),
        (_gone, "Incident.title is gone"),
        (_optional_gone, "Incident.flaps is gone"),
        (_other_type, "Incident.revision was integer and is string"),
        (_more_values, "IncidentState has forgotten besides"),
        (_fewer_values, "IncidentState has lost merged"),
        (_closed, "Incident refuses unknown fields"),
    ],
)
def test_what_one_of_them_could_not_read_is_found(
    change: Callable[[dict[str, Any]], None], because: str
) -> None:
    now = shapes()[topics.INCIDENTS.name]
    other = copy.deepcopy(now)
    change(other)
    assert any(text.startswith(because) for text in differences(now, other))


def test_a_field_that_may_be_missing_can_come_and_an_unknown_one_is_ignored() -> None:
    now = shapes()[topics.INCIDENTS.name]
    other = copy.deepcopy(now) | {"Incident.mood": {"type": "string", "required": False}}
    assert list(differences(now, other)) == []
