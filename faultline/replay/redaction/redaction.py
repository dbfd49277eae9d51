"""Redaction of a capture: learn the names of all records, then replace them in each, in keys and headers too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import orjson

from faultline.replay.redaction.name_book import TABLE, NameBook
from faultline.replay.redaction.pseudonyms import KEY_BYTES, Pseudonyms
from faultline.replay.redaction.text import TextRedaction
from faultline.replay.redaction.values import Unreadable, redacted
from streams.kafka.topics import INCIDENTS, RUNS
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.incident import Incident, incident_id
from streams.model.record import RawRecord
from streams.model.run import Run, run_id


class Learning:
    """Reads everything once for the names in it."""

    def __init__(self, cluster: str, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise BadInput(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._pseudonyms = Pseudonyms(key, TABLE.controllers)
        self._book = NameBook(cluster)
        self._learned: Redaction | None = None
        self._incidents: dict[str, bytes] = {}
        self._runs: dict[str, bytes] = {}

    @property
    def id(self) -> str:
        """Names the key."""
        return self._pseudonyms.id

    def learn(self, record: RawRecord) -> None:
        """Learn the names in a record."""
        self._book.learn(record)
        if record.value is not None and record.key is not None:
            held = {INCIDENTS.name: self._incidents, RUNS.name: self._runs}.get(record.topic)
            if held is not None:
                held[record.key.decode(errors="replace")] = record.value

    def learn_document(self, document: Any) -> None:
        """Learn the names in a document by its fields, and by what stands around them in its texts."""
        self._book.learn_document(document)
        self._book.learn_text(orjson.dumps(document).decode())

    def learn_host(self, name: str) -> None:
        """Learn the name of a host or a switch."""
        self._book.add_host(name)

    def learned(self) -> Redaction:
        """The redaction that replaces all that was learned, the same one each time: nothing is learned after the first."""
        if self._learned is None:
            text = TextRedaction(self._pseudonyms, self._book)
            text.replace_ids(self._ids(text))
            self._learned = Redaction(self.id, text)
        return self._learned

    def _ids(self, text: TextRedaction) -> dict[str, str]:
        """Ids of incidents and runs are made from names: a replay with pseudonyms makes others, and these are what is written."""
        ids: dict[str, str] = {}
        for name, value in self._incidents.items():
            try:
                incident = decode(Incident, redacted(value, text))
            except (BadInput, Unreadable):
                continue
            ids[name] = incident_id(incident.cluster, incident.root, incident.family, incident.incarnation)
        for name, value in self._runs.items():
            try:
                run = decode(Run, value)
            except BadInput:
                continue
            if run.incident in ids:
                ids[name] = run_id(ids[run.incident], run.plan.runbook, run.plan.runbook_revision, run.round)
        return ids


class Redaction:
    """Replaces the names that were learned. `left_out` counts, by topic, records in which they could not be."""

    def __init__(self, key_id: str, text: TextRedaction) -> None:
        self.id = key_id
        self.text = text
        self.left_out: Counter[str] = Counter()

    def record(self, record: RawRecord) -> RawRecord | None:
        """The record with pseudonyms; None when nobody can tell where names are in it."""
        try:
            return record._replace(
                key=self._bytes(record.key),
                value=self._bytes(record.value),
                headers=tuple((self.text(name), self._bytes(value) or b"") for name, value in record.headers),
            )
        except Unreadable:
            self.left_out[record.topic] += 1
            return None

    def _bytes(self, value: bytes | None) -> bytes | None:
        return redacted(value, self.text) if value else value


def redaction_of(cluster: str, key: bytes, records: Iterable[RawRecord]) -> Redaction:
    """The redaction that replaces all names in these records."""
    learning = Learning(cluster, key)
    for record in records:
        learning.learn(record)
    return learning.learned()
