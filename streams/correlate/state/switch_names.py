"""What a switch is called: lines and collectors name it with its domain or without, the site's cabling in one way.

Cabling that was made from a listing of a subnet has node descriptions.

Only what is configured (cabling, labels of leafs) says which switches there are. What devices hear of each other may come under
both names, and then the first to come would decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from streams.model.hostnames import folded, is_address, is_within
from streams.model.switch_descriptions import read_description


class SwitchNames:
    """The configured names of switches, and the names under which signals were kept before those were known."""

    def __init__(self) -> None:
        self._known: Counter[str] = Counter()
        self._by_short: defaultdict[str, set[str]] = defaultdict(set)
        self._reported: defaultdict[str, set[str]] = defaultdict(set)
        """Names that signals used, by their short form."""

    def enter(self, name: str | None, by: int = 1) -> None:
        """Count a place where the configuration names a switch; `by` -1 when it does so no more."""
        if not name:
            return
        self._known[name] += by
        if self._known[name] > 0:
            self._by_short[_short(name)].add(name)
        else:
            del self._known[name]
            self._by_short[_short(name)].discard(name)

    def meant(self, name: str) -> str:
        """The configured name of a switch; the name itself where none is meant, or more than one."""
        if name in self._known or is_address(folded(name)):
            return name
        found = [known for known in self._by_short.get(_short(name), ()) if _is_same(known, name)]
        return found[0] if len(found) == 1 else name

    def report(self, name: str) -> None:
        """Remember a name under which signals are kept."""
        self._reported[_short(name)].add(name)

    def misnamed(self, names: set[str]) -> dict[str, str]:
        """Names under which signals are kept, with what they mean by now, of switches that were just configured (`names`)."""
        reported = {one for name in names for one in self._reported.get(_short(name), ())}
        return {one: meant for one in sorted(reported) if (meant := self.meant(one)) != one}


def _short(name: str) -> str:
    key = _plain(name)
    return key if is_address(key) else key.partition(".")[0]


def _plain(name: str) -> str:
    """The folded name, of a node description the one in it."""
    return folded(read_description(name).name)


def _is_same(one: str, other: str) -> bool:
    one, other = _plain(one), _plain(other)
    return one == other or is_within(one, other) or is_within(other, one)
