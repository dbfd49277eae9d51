"""The results of a kept capture, beside it in `expected.json`: what was decided, and with which versions.

Whoever changes a rule, a threshold or a runbook sees from the text of `changes` what that does to every kept capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from faultline.replay.decisions import Decision, decisions_of
from faultline.replay.difference import Difference, Pair, differences
from faultline.replay.manifest import Versions
from faultline.replay.replayed import Replayed
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.run import Mode

EXPECTED = "expected.json"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a replay decided: `lines` are those that the hash is over, `decisions` say why, for the text of a difference."""

    decision_hash: str
    lines: tuple[dict[str, Any], ...]
    decisions: tuple[Decision, ...]
    versions: Versions = field(default_factory=Versions)
    schema: int = 1

    @classmethod
    def of(cls, decided: Replayed, modes: Mapping[str, Mode], versions: Versions) -> Expected:
        """Of a replay; `modes` as `decisions.ceilings` has them."""
        lines = tuple(orjson.loads(orjson.dumps(line)) for line in decided.decision_lines())
        return cls(decided.decision_hash, lines, decisions_of(decided, modes), versions)


def kept_captures(path: Path) -> list[tuple[Path, Path]]:
    """The captures under a path, each with its expected results: a capture, its `expected.json`, or a folder of captures.

    Raises:
        BadInput: when there are none.
    """
    if path.is_file():
        return [(path.parent, path)]
    if (path / EXPECTED).exists():
        return [(path, path / EXPECTED)]
    found = [(one.parent, one) for one in sorted(path.glob(f"*/{EXPECTED}"))]
    if not found:
        raise BadInput(
            f"{path}: no {EXPECTED}; `faultline replay CAPTURE --assert-same FILE --record` writes one"
        )
    return found


def read_expected(path: Path) -> Expected:
    """Read it. Raises BadInput that names the file and what is wrong."""
    try:
        return decode(Expected, path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}; --record writes it") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def write_expected(path: Path, expected: Expected) -> None:
    """Write it, the same bytes for the same results."""
    plain = TypeAdapter(Expected).dump_python(
        expected, mode="json"
    )  # with fields that are None, which have no default
    for decision in plain["decisions"]:
        decision["evidence"].sort()
    path.write_bytes(orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def changes(expected: Expected, found: Expected) -> Iterator[str]:
    """What differs, as lines of text; nothing when the results are the same."""
    told: set[str] = set()
    for pair in differences(expected.decisions, found.decisions):
        if pair.differences:
            told.update(one.incident for one in (pair.before, pair.after) if one is not None)
            yield from _pair_lines(pair)
    before, after = _by_key(expected.lines), _by_key(found.lines)
    for key in dict.fromkeys([*before, *after]):
        if key[1] in told:
            continue
        old, new = before.get(key, {}), after.get(key, {})
        fields = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
        if fields:
            yield " ".join(key)
            yield from (f"    {name}: {_shown(old.get(name))} → {_shown(new.get(name))}" for name in fields)


def _pair_lines(pair: Pair) -> Iterator[str]:
    either = pair.either
    yield f"{either.incident} {either.title}"
    for one in pair.differences:
        yield from difference_lines(one, "expected", "now")


def difference_lines(one: Difference, before: str, after: str) -> Iterator[str]:
    """One difference with the reasons of both sides under it; `before` and `after` name the sides."""
    yield f"    {one.what}: {one.before or 'none'} → {one.after or 'none'}"
    reasons = [(before, one.why_before), (after, one.why_after)]
    if one.why_before != one.why_after:
        yield from (f"        {side} because: {why}" for side, why in reasons if why)


def _by_key(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in lines:
        if line["record"] == "incident":
            found["incident", line["id"]] = line
        else:
            target = line["target"]
            found["action", line["incident"], line["step"], f"{target['kind']} {target['name']}"] = line
    return found


def _shown(value: Any) -> str:
    if value is None or value in ("", []):
        return "none"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
