"""What was kept under another name than the node's own, or under one that nobody knows: found again when names change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from streams.correlate.sightings import Sighting
from streams.correlate.state.host_names import Found, Hosts
from streams.model.hostnames import MAX_LABELS, folded, is_address, is_within

Place = tuple[str, str]
"""The kind of a row (`node`, `pod`) and its name."""


class Callings:
    """By what lines call a node: where their sightings are kept, and by which keys of `Hosts` they are found."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._places: defaultdict[str, set[Place]] = defaultdict(set)
        self._by_key: defaultdict[str, set[str]] = defaultdict(set)

    def find(self, said: str, at: datetime) -> Found:
        """Which node a name meant. Two hosts of one short name and of different domains are two: neither is the node."""
        found = self._hosts.find(said, at)
        if found.by_domain and found.node is not None and self._is_doubtful(folded(said)):
            return Found(None, (found.node,))
        return found

    def meant(self, said: str, at: datetime) -> str:
        """The node that a name meant at a time; the name itself when the inventory knows none, or several."""
        return self.find(said, at).node or said

    def candidates(self, said: str, at: datetime) -> tuple[str, ...]:
        """Nodes that a name may mean which is none of theirs alone."""
        return self.find(said, at).candidates

    def named(self, seen: Sighting) -> Sighting:
        """The sighting with its node by the name that the inventory has for it; the same one when it has that already."""
        said = seen.said or seen.entity.node
        if said is None or (seen.said is None and said in self._hosts):
            return seen
        node = self.meant(said, seen.at)
        if node == seen.entity.node:
            return seen
        return replace(seen, entity=replace(seen.entity, node=node), said=said if node != said else None)

    def note(self, seen: Sighting, place: Place) -> set[str]:
        """A sighting is kept at a place. Returns the keys that mean something else for its name being said."""
        said = seen.said or seen.entity.node
        if said is None or (seen.said is None and said in self._hosts):
            return set()
        new = said not in self._places
        self._places[said].add(place)
        if not new:
            return set()
        key = folded(said)
        for one in self._hosts.keys(said):
            self._by_key[one].add(said)
        first = key.partition(".")[0]
        # Longer forms of one name are fewer than it has labels: of more, two contradict each other already.
        told = "." in key and not is_address(key) and len(self._by_key[first]) <= 2 * MAX_LABELS
        return {first} if told else set()

    def affected(self, keys: Iterable[str]) -> dict[str, set[Place]]:
        """What may mean another node now, and where it is kept."""
        names = {said for key in keys for said in self._by_key.get(key, ())}
        return {said: set(self._places[said]) for said in sorted(names)}

    def forget(self, said: str, place: Place) -> set[str]:
        """Nothing that was called so is kept there any more. Returns the keys that mean something else for it."""
        places = self._places.get(said)
        if places is None:
            return set()
        places.discard(place)
        if places:
            return set()
        del self._places[said]
        for key in self._hosts.keys(said):
            self._by_key[key].discard(said)
            if not self._by_key[key]:
                del self._by_key[key]
        return {folded(said).partition(".")[0]}

    def everywhere(self) -> list[tuple[str, Place]]:
        """All names and where what was called so is kept."""
        return [(said, place) for said, places in sorted(self._places.items()) for place in sorted(places)]

    def _is_doubtful(self, key: str) -> bool:
        others = map(folded, self._by_key.get(key.partition(".")[0], ()))
        return any("." in other and not is_within(key, other) for other in others)
