"""Names and ids that people type: an id may be cut to a unique prefix, and a typo is answered with the name it may mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from faultline.why.tree import printable
from streams.model.errors import BadInput
from streams.model.similar import suggestion

T = TypeVar("T")
_MOST_NAMED = 20
_LONGEST_NAME = 120


def picked(known: Mapping[str, T], given: str, *, what: str, prefix: str = "", see: str = "") -> T:
    """The one whose id is `given`, or begins with it; `prefix` (`inc-`) may be left out. `see` says where the ids are listed.

    Raises:
        BadInput: when there is none, or more than one: with the matches.
    """
    if not given:
        raise BadInput(f"the id of the {what} is empty")
    wanted = given if given.startswith(prefix) else f"{prefix}{given}"
    if wanted in known:
        return known[wanted]
    found = sorted(name for name in known if name.startswith(wanted))
    if len(found) == 1:
        return known[found[0]]
    if found:
        raise BadInput(f"{_said(given)} matches {len(found)} {what}s: {listed(found)}")
    # Without the prefix, or every id would be similar to every other.
    meant = suggestion(wanted.removeprefix(prefix), {name.removeprefix(prefix) for name in known})
    raise BadInput(f"no {what} {_said(given)}{f' ({see})' if see else ''}{meant}")


def unknown_name(what: str, given: str, known: Collection[str], *, place: str = "") -> BadInput:
    """The error for a name that is not known: with those that are, and the one it may mean."""
    others = f"; known: {listed(known)}" if known else "; there is none"
    return BadInput(
        f"no {what} {_said(given)}{f' {place}' if place else ''}{others}{suggestion(given, known)}"
    )


def _said(given: str) -> str:
    """What was typed, for a message: whoever pastes a page sees the beginning of it."""
    return printable(given, _LONGEST_NAME)


def require_known(what: str, given: str, known: Collection[str]) -> None:
    """Check a word to narrow a list by: with a misspelt one it would be empty, and that reads as if all were well.

    Raises:
        BadInput: with those that are known, and the one it may mean.
    """
    if given and given not in known:
        raise unknown_name(what, given, known)


def listed(names: Collection[str]) -> str:
    """Names in order, the first twenty of them."""
    return ", ".join(sorted(names)[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
