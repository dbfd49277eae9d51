"""The shape of every record that Faultline stores: `python -m tests.upgrade.shapes freeze` writes it down at a release.

A shape is a table of `Document.field` with its type, whether it must be there, and the values it may have. Two releases run
side by side, so each must read what the other writes: `differences` tells where one could not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from streams.kafka import topics
from streams.kafka.installation import Claim
from streams.model.control import Control
from streams.model.conversation import Command, DeadLetter, TimelineEntry
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from streams.model.thread import Thread

FROZEN = Path(__file__).parent / "shapes.json"

DOCUMENTS: Mapping[str, Any] = {
    topics.INVENTORY.name: FactRecord,
    topics.SIGNALS.name: SignalBatch,
    topics.INCIDENTS.name: Incident,
    topics.RUNS.name: Run,
    topics.THREADS.name: Thread,
    topics.NOTICES.name: Thread,
    topics.TIMELINE.name: TimelineEntry,
    topics.COMMANDS.name: Command,
    topics.CONTROLS.name: Control,
    topics.DEAD_LETTERS.name: DeadLetter,
    topics.INSTALLATION.name: Claim,
}
"""What the records of each topic are. Rows of the correlator and of the detector have samples: `tests/streams/model/stored`."""

Shape = Mapping[str, Mapping[str, Any]]


def shapes() -> dict[str, dict[str, dict[str, Any]]]:
    """Each topic's shape in this code."""
    return {topic: shape(kind) for topic, kind in DOCUMENTS.items()}


def shape(kind: Any) -> dict[str, dict[str, Any]]:
    """Every field of a document and of what it is made of."""
    schema = TypeAdapter(kind).json_schema(mode="validation")
    found: dict[str, dict[str, Any]] = {}
    for name, model in {**schema.get("$defs", {}), kind.__name__: schema}.items():
        if "enum" in model:
            found[name] = {"values": sorted(map(str, model["enum"]))}
        if model.get("additionalProperties") is False:
            found[f"{name}.*"] = {"closed": True}
        for field, told in model.get("properties", {}).items():
            found[f"{name}.{field}"] = {
                "type": _type(told),
                "required": field in model.get("required", ()),
                **({"values": sorted(map(str, told["enum"]))} if "enum" in told else {}),
            }
    return dict(sorted(found.items()))


def differences(old: Shape, new: Shape) -> Iterator[str]:
    """Why one of the two releases could not read a record of the other."""
    known = {name.partition(".")[0] for name in old}
    for name, told in new.items():
        was = old.get(name)
        if told.get("closed") and not (was or {}).get("closed"):
            yield f"{name.removesuffix('.*')} refuses unknown fields: a field that comes later breaks this release"
        if was is None:
            # What a new kind of part must have is written with it: whether that part may be missing is told where it is used.
            if told.get("required") and name.partition(".")[0] in known:
                yield f"{name} is new and must be there: records of the previous release lack it"
            continue
        if told.get("type") != was.get("type"):
            yield f"{name} was {was.get('type')} and is {told.get('type')}"
        if told.get("required") and not was.get("required"):
            yield f"{name} must be there now: records of the previous release may lack it"
        gone, more = _values(was) - _values(told), _values(told) - _values(was)
        if gone:
            yield f"{name} has lost {', '.join(sorted(gone))}: records of the previous release may have it"
        if more:
            yield f"{name} has {', '.join(sorted(more))} besides: the previous release refuses it"
    for name, was in old.items():
        if name not in new and was.get("required"):
            yield f"{name} is gone: the previous release cannot do without it"
        elif name not in new and "." in name and not was.get("closed"):
            yield f"{name} is gone: what the previous release wrote there is lost"


def _values(told: Mapping[str, Any]) -> set[str]:
    return set(told.get("values", ()))


def _type(told: Mapping[str, Any]) -> str:
    """A field's type, without texts, defaults and limits."""
    if "$ref" in told:
        return str(told["$ref"].rpartition("/")[2])
    for joined in ("anyOf", "oneOf"):
        if joined in told:
            return " | ".join(sorted(_type(one) for one in told[joined]))
    if told.get("type") == "array":
        parts = told.get("prefixItems") or [told.get("items", {})]
        return f"[{', '.join(_type(one) for one in parts)}]"
    if told.get("type") == "object" and isinstance(told.get("additionalProperties"), dict):
        return f"{{{_type(told['additionalProperties'])}}}"
    return str(told.get("format") or told.get("type") or ("constant" if "const" in told else "anything"))


def main() -> int:
    """The command."""
    if sys.argv[1:] != ["freeze"]:
        print(__doc__, file=sys.stderr)
        return 2
    FROZEN.write_text(json.dumps(shapes(), indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
