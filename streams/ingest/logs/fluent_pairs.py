"""Pairs of a time and a record, as Fluentd and Fluent Bit print and forward events.

`[1748779200.1, {"log": …}]`, since Fluent Bit 2.1 `[[1748779200.1, {metadata}], {"log": …}]`; forwarded in batches as
`["tag", [[time, record], …]]`. Shape: fluentd forward protocol; fluent-bit, log event format.
"""

from __future__ import annotations

from typing import Any

_MAX_TAG = 256


def records(document: list[Any]) -> list[Any]:
    """The records in the array, each with its time; any other array comes back as it is."""
    if len(document) >= 2 and _is_tag(document[0]) and isinstance(batch := document[1], list):
        paired = [_record(one) if isinstance(one, list) else None for one in batch]
        return batch if not paired or None in paired else paired
    single = _record(document)
    if single is not None:
        return [single]
    return [(_record(one) or one) if isinstance(one, list) else one for one in document]


def _record(pair: list[Any]) -> dict[str, Any] | None:
    if len(pair) != 2 or not isinstance(record := pair[1], dict):
        return None
    at = pair[0]
    if isinstance(at, list):
        if len(at) != 2 or not isinstance(at[1], dict):
            return None
        at = at[0]
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        return None
    return {"date": at, **record}


def _is_tag(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TAG
