"""Sightings whose node is reported by another name than its own: where they are kept, to move them when names change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from streams.correlate.sightings import Sighting
from streams.correlate.state.host_names import Found, HostNames
from streams.model.hostnames import (
    MAX_LABELS,
    folded,
    host_of_controller,
    is_address,
    is_controller,
    is_within,
    short,
)

RowName = tuple[str, str]
"""The kind of a row (`node`, `pod`, or `job` for one of Slurm that was placed by that name) and its name."""


class ReportedNames:
    """The names by which lines call nodes: where their sightings are kept, and by which keys of `HostNames` they are found."""

    def __init__(self, hosts: HostNames, is_node: Callable[[str], bool]) -> None:
        self._hosts = hosts
        self._is_node = is_node
        """Whether a host of this name, which no inventory knows, is a node of the cluster all the same."""
        self._places: defaultdict[str, set[RowName]] = defaultdict(set)
        self._by_key: defaultdict[str, set[str]] = defaultdict(set)
        self._short: dict[str, set[str]] = {}
        """Reported names without a domain, in all their spellings, by the folded name."""

    def find(self, reported: str, at: datetime) -> Found:
        """Which node a name meant. One short name reported with two domains is two hosts: neither is taken for the node."""
        found = self._hosts.find(reported, at)
        if found.by_domain and found.node is not None and self._is_doubtful(folded(reported)):
            return Found(None, (found.node,))
        if found.node is not None or found.candidates:
            return found
        return self._of_controller(reported) or Found(self._spelled_short(reported))

    def _spelled_short(self, reported: str) -> str | None:
        """The one spelling of an unknown host's short name, where lines call it by that, too, and by one domain at most.

        Where no inventory knows the hosts, as with Slurm alone, one pipeline may write a domain and another none.
        """
        key = folded(reported)
        spellings = self._short.get(key.partition(".")[0]) if key and not is_address(key) else None
        if not spellings or self._is_doubtful(key):
            return None
        return min(spellings, key=lambda name: (name != folded(name), name))

    def _of_controller(self, reported: str) -> Found | None:
        """Whose management controller is called so, where that is a node without an object; None when it is nobody's.

        A node whose own name is of that form is no controller. What is kept at a host for its controller stays there, also when
        nothing else is reported of the host any more.
        """
        key = folded(reported)
        host = host_of_controller(key)
        if host is None or not is_controller(key) or self._is_node(short(key)):
            return None
        forms = self._forms(host)
        if not any(map(self._is_node, forms)) and not self._holds_for_controller(host, forms):
            return None
        if spelled := self._spelled_short(host):
            return Found(spelled)
        longer = sorted(form for form in forms if form != host)
        contradict = any(not is_within(folded(one), folded(longer[0])) for one in longer)
        return Found(None, tuple(longer)) if contradict else Found(min(longer, key=len, default=host))

    def _forms(self, host: str) -> set[str]:
        """What lines and schedulers call a host, in all spellings, besides its short name itself."""
        named = (name for name in self._by_key.get(host, ()) if short(name) == host)
        return {host, *named}

    def _holds_for_controller(self, host: str, forms: set[str]) -> bool:
        """Whether what a controller said is kept at its host."""
        places = {("node", form) for form in forms}
        return any(
            not places.isdisjoint(self._places[name])
            for name in self._by_key.get(host, ())
            if is_controller(name) and host_of_controller(folded(name)) == host
        )

    def meant(self, reported: str, at: datetime) -> str:
        """The node that a name meant at a time; the name itself when the inventory knows none, or several."""
        return self.find(reported, at).node or reported

    def node_of(self, called: str, at: datetime) -> str:
        """The node on which a scheduler's host of this name stood at a time; the name itself when the inventory knows none."""
        found = self._hosts.find(called, at)
        if found.node is None or (found.by_domain and self._is_doubtful(folded(called))):
            return called
        return found.node

    def candidates(self, reported: str, at: datetime) -> tuple[str, ...]:
        """Nodes that an ambiguous name may mean; empty where it means one of them, or none."""
        return self.find(reported, at).candidates

    def named(self, seen: Sighting) -> Sighting:
        """The sighting with its node by the inventory's name; the same object when it has that already."""
        reported = seen.said or seen.entity.node
        if reported is None or (seen.said is None and reported in self._hosts):
            return seen
        node = self.meant(reported, seen.at)
        if node == seen.entity.node:
            return seen
        return replace(
            seen, entity=replace(seen.entity, node=node), said=reported if node != reported else None
        )

    def record(self, seen: Sighting, place: RowName) -> set[str]:
        """Record that a sighting is kept at a place. Returns the keys of `HostNames` whose meaning its name changes."""
        node = seen.entity.node
        if node is None or (seen.said is None and node in self._hosts):
            return set()
        keys = self._record(seen.said or node, place)
        if seen.said is not None and node not in self._hosts and not is_controller(seen.said):
            # An unknown host is kept under its short name for as long as anything is: also when what called it so is gone.
            keys |= self._record(node, place)
        return keys

    def placed(self, node: str, job: str) -> set[str]:
        """Record that a scheduler calls a host of a job so, as with `record`: lines may only know its long name."""
        if node in self._hosts:
            return set()
        return self._record(node, ("job", job)) | self.became_node(node)

    def became_node(self, host: str) -> set[str]:
        """The keys whose meaning changes as a host without an object turns out to be a node: its controller speaks of it.

        It is no controller itself then, either, however it is called.
        """
        own = short(host)
        return {own} if any(map(is_controller, self._by_key.get(own, ()))) else set()

    def _record(self, reported: str, place: RowName) -> set[str]:
        new = reported not in self._places
        self._places[reported].add(place)
        if not new:
            return set()
        key = folded(reported)
        for one in self._hosts.keys(reported):
            self._by_key[one].add(reported)
        first = key.partition(".")[0]
        if is_address(key):
            return set()
        if "." not in key:
            self._short.setdefault(key, set()).add(reported)
        # Longer forms of one name are fewer than it has labels: of more, two contradict each other already.
        forms = len(self._by_key[first])
        return {first} if forms <= 2 * MAX_LABELS and (forms > 1 or "." in key) else set()

    def affected(self, keys: Iterable[str]) -> dict[str, set[RowName]]:
        """Names that may mean another node now that these keys do, and the places where their sightings are kept."""
        names = {reported for key in keys for reported in self._by_key.get(key, ())}
        return {reported: set(self._places[reported]) for reported in sorted(names)}

    def forget(self, reported: str, place: RowName) -> set[str]:
        """Forget that a place keeps sightings of that name. Returns the keys whose meaning that changes."""
        places = self._places.get(reported)
        if places is None:
            return set()
        places.discard(place)
        if places:
            return set()
        del self._places[reported]
        key = folded(reported)
        # What the longer forms meant goes with it: the keys that are returned name them.
        if (spellings := self._short.get(key)) is not None:
            spellings.discard(reported)
            if not spellings:
                del self._short[key]
        for key in self._hosts.keys(reported):
            self._by_key[key].discard(reported)
            if not self._by_key[key]:
                del self._by_key[key]
        return {folded(reported).partition(".")[0]}

    def kept(self) -> list[tuple[str, RowName]]:
        """All reported names, each with every place that keeps sightings of it; sorted."""
        return [
            (reported, place) for reported, places in sorted(self._places.items()) for place in sorted(places)
        ]

    def _is_doubtful(self, key: str) -> bool:
        first = key.partition(".")[0]
        others = (folded(name) for name in self._by_key.get(first, ()) if short(name) == first)
        return any("." in other and not is_within(key, other) for other in others)
