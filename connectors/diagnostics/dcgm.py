"""`dcgmi diag --run LEVEL --json`: pass, fail, warn or skip per test and GPU.

Two shapes exist. DCGM 4 writes `DCGM Diagnostic`, with one result per entity (`entity_group`, `entity_id`) and a
`test_summary`; DCGM 2 and 3 write `DCGM GPU Diagnostic`, with results by `gpu_id` or, for all at once, `gpu_ids`. A run that
could not be made has a `runtime_error` instead. Source: DCGM user guide, "DCGM Diagnostics".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from connectors.diagnostics.reading import Limits, Reading, unreadable
from streams.model.message import plain

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic", "DCGM GPU Diagnostics")
_MAX_WORDS = 160
_PASSED, _SKIPPED, _WARNED = ("pass", "passed"), ("skip", "skipped", "not run", "notrun"), ("warn", "warning")


def read_dcgm(text: str, limits: Limits) -> Reading:
    """The verdict of a diagnostic run. Lines before the JSON, as of a starting host engine, are left out."""
    start = text.find("{")
    try:
        document = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
    except (ValueError, RecursionError) as error:
        return unreadable(f"dcgmi's JSON is damaged or cut off ({error})")
    if not isinstance(document, dict):
        return unreadable("there is no JSON of dcgmi in it")
    root = next((document[name] for name in _ROOTS if isinstance(document.get(name), dict)), None)
    if root is None:
        return unreadable("it is no result of dcgmi diag")
    if broken := root.get("runtime_error") or document.get("runtime_error"):
        return Reading(faults=(f"dcgmi could not run: {plain(str(broken), _MAX_WORDS)}",))
    results = list(_results(root))
    if not results:
        return unreadable("dcgmi names no test")
    counts = Counter(_kind(status) for _, _, status, _ in results)
    faults = tuple(
        f"{test} on {where}: {status}" + (f" ({why})" if why else "")
        for test, where, status, why in results
        if _fails(_kind(status), limits)
    )
    gpus = {where for _, where, _, _ in results if where.startswith("GPU ")}
    figures = {f"tests_{kind}": float(counts.get(kind, 0)) for kind in ("pass", "fail", "warn", "skip")}
    if not counts.get("pass") and not faults:
        faults = ("no test was passed: all were skipped",)
    return Reading(figures, faults, len(gpus), f"{len(results)} results of {len(gpus)} GPUs")


def _results(root: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Test, where, status and why."""
    for category in _dicts(root.get("test_categories")):
        for test in _dicts(category.get("tests")):
            name = plain(str(test.get("name") or "a test"), 60)
            found = False
            for result in _dicts(test.get("results")):
                found = True
                why = _why(result)
                for where in _wheres(result):
                    yield name, where, str(result.get("status") or "no status"), why
            summary = test.get("test_summary")
            if isinstance(summary, dict) and (not found or _kind(str(summary.get("status"))) == "fail"):
                yield name, "the node", str(summary.get("status") or "no status"), _why(summary)


def _wheres(result: Mapping[str, Any]) -> Iterator[str]:
    if "entity_id" in result:
        yield f"{result.get('entity_group') or 'entity'} {result['entity_id']}"
        return
    ids = str(result.get("gpu_ids") or result.get("gpu_id") or result.get("gpu") or "").strip()
    if not ids and result.get("gpu_id") != 0:
        yield "the node"
        return
    for one in (ids or "0").split(","):
        yield f"GPU {one.strip()}"


def _why(result: Mapping[str, Any]) -> str:
    """The first warning or error of a result; DCGM 3 writes a text, DCGM 4 a list of objects."""
    for key in ("warnings", "errors", "warning", "error"):
        told = result.get(key)
        for one in told if isinstance(told, list) else [told]:
            words = (
                (one.get("warning") or one.get("error") or one.get("message"))
                if isinstance(one, dict)
                else one
            )
            if words:
                return " ".join(plain(str(words), _MAX_WORDS).split())
    return ""


def _kind(status: str) -> str:
    low = status.strip().lower()
    if low in _PASSED:
        return "pass"
    if low in _SKIPPED:
        return "skip"
    return "warn" if low in _WARNED else "fail"


def _fails(kind: str, limits: Limits) -> bool:
    return (
        kind == "fail" or (kind == "warn" and limits.warnings_fail) or (kind == "skip" and limits.skips_fail)
    )


def _dicts(thing: Any) -> Iterator[Mapping[str, Any]]:
    yield from (one for one in (thing if isinstance(thing, list) else ()) if isinstance(one, dict))
