"""Documents of the `notices` topic: one per sink and incident, under `SINK/INCIDENT`, with `/N` for the Nth of its kind.

A document that is final is never touched again: what has to be told later gets the next number. A page or mail that tells of
several incidents is named after the first of them, and lists them in `members`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from streams.model.run import EffectState
from streams.model.thread import ROOT, Thread

FINAL = frozenset({"resolved", "lifted"})
"""Marks of what has come to its end."""


@dataclass(frozen=True, slots=True)
class NoticeSubject:
    """What one document is about; fulfils the poster's `Subject`."""

    id: str
    cluster: str
    incarnation: int = 1


def key_of(sink: str, incident: str, *rest: str, number: int = 1) -> str:
    """The key of a document."""
    return "/".join((sink, incident, *rest, *([str(number)] if number > 1 else [])))


def sink_of(key: str) -> str:
    """The sink of a document."""
    return key.partition("/")[0]


def incident_of(key: str) -> str:
    """The incident that a document is named after."""
    return key.split("/")[1]


def is_final(document: Thread) -> bool:
    """Whether it has come to its end, or a person has ended it."""
    post = document.post(ROOT)
    if post is None:
        return False
    return post.gone or (
        post.mark in FINAL and bool(post.shown) and post.create.state is EffectState.CONFIRMED
    )


def is_unconfirmed(document: Thread) -> bool:
    """Whether it is still to be asked if what was sent last came to be."""
    post = document.post(ROOT)
    return post is not None and post.check_at is not None and not post.gone


def was_ended_by_a_person(document: Thread) -> bool:
    """Whether a person resolved, deleted or lifted what it is about."""
    post = document.post(ROOT)
    # What turned out never to have been sent is gone too, but nobody has ended it.
    return post is not None and post.gone and post.create.state is EffectState.CONFIRMED


class DocumentIndex:
    """The documents of one sink by incident. Reads the store's documents; `add` follows what is committed."""

    def __init__(self, sink: str, documents: Mapping[str, Thread]) -> None:
        self.sink = sink
        self._documents = documents
        self._keys: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for key in documents:
            if sink_of(key) == sink:
                self.add(documents[key])

    def add(self, document: Thread) -> None:
        """A document that was committed."""
        for incident in (incident_of(document.incident), *document.members):
            self._keys[incident][document.incident] = None

    def of(self, incident: str) -> list[Thread]:
        """The documents that tell of an incident, oldest first."""
        keys = self._keys.get(incident, {})
        found = (self._documents.get(key) for key in keys)
        return sorted(
            (one for one in found if one is not None), key=lambda one: (one.created_at, one.incident)
        )

    def all(self) -> Iterable[Thread]:
        """Every document of the sink."""
        keys = dict.fromkeys(key for keys in self._keys.values() for key in keys)
        return (one for one in map(self._documents.get, keys) if one is not None)

    def get(self, key: str) -> Thread | None:
        """The document under a key."""
        return self._documents.get(key)

    def next_key(self, incident: str, *rest: str) -> str:
        """The key of the next document of an incident."""
        number = 1
        while self._documents.get(key_of(self.sink, incident, *rest, number=number)) is not None:
            number += 1
        return key_of(self.sink, incident, *rest, number=number)

    def created_since(self, cluster: str, since: datetime) -> list[Thread]:
        """Documents of a cluster that are younger than `since`."""
        return [one for one in self.all() if one.cluster == cluster and one.created_at > since]
