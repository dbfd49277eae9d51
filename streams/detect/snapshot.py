"""The state of one source partition as blocks of bytes: the tables of rules and the windows of deduplication.

A block is one JSON document, compressed by itself and bounded in rows, so that writing or reading one does not hold up the
process for long. Blocks count only when all of them are there: `snapshot_store.py` sees to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import orjson
import zstandard

from streams.detect.deduplication import Key, LastReport, RollUp, Window
from streams.detect.rule_state import RuleState, RuleTable
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.signal import Signal, SignalState

FORMAT = 1
"""To be raised when blocks change their shape; blocks of another format are refused."""

ROWS_PER_BLOCK = 5000
MAX_BLOCK_BYTES = 64 * 1024 * 1024
"""Of one block, unpacked: what the reader accepts."""

_NAME_ROLLUP = "rollup"
_LEVEL = 1


class Snapshot:
    """The state of one partition: `blocks` writes it, `load` reads it back.

    `rows` counts rows written or read, `unwritable` those left out because JSON cannot hold them.
    """

    def __init__(
        self, source: str, rule_state: RuleState | None = None, rollup: RollUp | None = None
    ) -> None:
        self.source = source
        self.rule_state = rule_state or RuleState()
        self.rollup = rollup or RollUp()
        self.rows = 0
        self.unwritable = 0

    def blocks(self) -> Iterator[bytes]:
        """The blocks. Nothing may change between the first and the last: all must be as of one offset."""
        for name, table in self.rule_state.tables():
            yield from self._table(name, table)
        rollup = self.rollup
        head = {"clock_ms": rollup.clock_ms, "changes": rollup.changes}
        conditions = (
            ["condition", key, condition.state.value, condition.change]
            for key, condition in rollup.conditions.items()
        )
        windows = (
            ["window", place, key, *_fields(window), *_pending(window)]
            for place, key, window in rollup.open_windows()
        )
        for kind, rows in ((_NAME_ROLLUP, conditions), (_NAME_ROLLUP, windows)):
            while block := list(islice(rows, ROWS_PER_BLOCK)):
                self.rows += len(block)
                yield self._packed({"kind": kind, **head, "rows": block})

    def load(self, block: bytes) -> None:
        """Add the rows of one block.

        Raises:
            BadInput: when it is damaged, or of another source or format.
        """
        try:
            unpacked = zstandard.ZstdDecompressor().decompress(block, max_output_size=MAX_BLOCK_BYTES)
            document = orjson.loads(unpacked)
            self._check(document)
            rows = document["rows"]
            if document["kind"] == _NAME_ROLLUP:
                self._load_rollup(document, rows)
            else:
                self.rule_state.restore(
                    document["table"],
                    document["version"],
                    ((tuple(key), tuple(row)) for key, row in rows),
                )
            self.rows += len(rows)
        except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"a block of a snapshot of {self.source}: {error!r}") from error

    def _check(self, document: dict[str, Any]) -> None:
        if document["format"] != FORMAT:
            raise BadInput(f"a block of format {document['format']} instead of {FORMAT}")
        if document["source"] != self.source:
            raise BadInput(f"a block of {document['source']} instead of {self.source}")

    def _table(self, name: str, table: RuleTable) -> Iterator[bytes]:
        head = {"kind": "table", "table": name, "version": table.version}
        rows = iter(table.items())
        while block := list(islice(rows, ROWS_PER_BLOCK)):
            self.rows += len(block)
            yield self._packed({**head, "rows": block})

    def _packed(self, document: dict[str, Any]) -> bytes:
        document = {"format": FORMAT, "source": self.source, **document}
        try:
            raw = orjson.dumps(document)
        except TypeError:
            writable = [row for row in document["rows"] if _writable(row)]
            self.unwritable += len(document["rows"]) - len(writable)
            raw = orjson.dumps({**document, "rows": writable})
        return zstandard.ZstdCompressor(level=_LEVEL).compress(raw)

    def _load_rollup(self, document: dict[str, Any], rows: list[Any]) -> None:
        rollup = self.rollup
        rollup.clock_ms, rollup.changes = document["clock_ms"], document["changes"]
        for what, *fields in rows:
            if what == "condition":
                key, state, change = fields
                rollup.conditions[_key(key)] = LastReport(SignalState(state), change)
                continue
            place, key, start_ms, clock_ms, change, seen, sent, first_ms, last = fields
            window = Window(start_ms, clock_ms, change, seen, sent, first_ms)
            window.last = decode(Signal, last) if last is not None else None
            rollup.put(_key(place), _key(key), window)


def _fields(window: Window) -> tuple[int, ...]:
    return window.start_ms, window.clock_ms, window.change, window.seen, window.sent


def _pending(window: Window) -> tuple[int, str | None]:
    """The time of the first pending repeat, and the newest as a document."""
    newest = window.newest()
    return window.first_ms, encode(newest).decode() if newest is not None else None


def _key(parts: list[Any]) -> Key:
    """The key with tuples, which JSON wrote as lists."""
    return tuple([tuple(part) if isinstance(part, list) else part for part in parts])


def _writable(row: Any) -> bool:
    try:
        orjson.dumps(row)
    except TypeError:
        return False
    return True
