"""The name that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def guess(word: str, known: Collection[str]) -> str:
    """As `suggestion`; where none is similar, all that are known."""
    return suggestion(word, known) or f"; known are {', '.join(sorted(known)) or 'none'}"


def suggestion(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` for the most similar known name, empty when none is similar."""
    names = list(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:
        folded = {name.casefold(): name for name in names}
        close = [folded[one] for one in get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)]
    return f"; did you mean {close[0]}?" if close else ""
