"""Documents on their way into or out of Elasticsearch and OpenSearch.

A hit wraps a shipper's record in `_source` (`{"_index", "_id", "_source": {…}}`), a search answers with many in `hits.hits`, a
bulk request has a line with an action (`{"index": {"_index": …}}`) before each record, the record of an update is in `doc`.
"""

from __future__ import annotations

from streams.ingest.records import JsonObject, Opened, RecordContext

_ACTIONS = frozenset({"index", "create", "update", "delete"})
_OF_AN_ACTION = frozenset(
    {"_index", "_id", "_type", "routing", "pipeline", "require_alias", "retry_on_conflict", "version"}
)


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the documents to `into.nested`; False for any other format. Actions are skipped."""
    source = record.get("_source")
    if isinstance(source, dict):
        into.nested.append((source, context.within(context.origin)))
        return True
    if isinstance(hits := record.get("hits"), dict) and isinstance(found := hits.get("hits"), list):
        into.nested.append((found, context.within(context.origin)))
        return True
    if len(record) == 1:
        (name,) = record
        inner = record[name]
        if name in _ACTIONS and isinstance(inner, dict) and inner.keys() <= _OF_AN_ACTION:
            return True
        if name == "doc" and isinstance(inner, dict):
            into.nested.append((inner, context.within(context.origin)))
            return True
    return False
