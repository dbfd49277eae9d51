"""What the page of the runbooks shows: those that are loaded, and how their runs went as far as the view reaches back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from runbooks.language.schema import Runbook
from streams.model.message import plain
from streams.model.run import Mode, Run


@dataclass(frozen=True, slots=True)
class ShownRunbook:
    """A runbook, or one that is not loaded any more but has run. `outcomes` are the ends of its runs, the most frequent first."""

    id: str
    revision: int | None
    mode: str
    description: str
    owner: str
    steps: int
    runs: int
    running: int
    shadowed: int
    outcomes: tuple[tuple[str, int], ...]
    last_at: datetime | None


def runbook_page(books: Iterable[Runbook], runs: Sequence[Run]) -> tuple[ShownRunbook, ...]:
    """All loaded runbooks, those first that have run, and after them what has run and is not loaded any more."""
    by_book: dict[str, list[Run]] = {}
    for run in runs:
        by_book.setdefault(run.plan.runbook, []).append(run)
    shown = [
        _shown(
            book.id,
            book.revision,
            book.mode.value,
            book.description,
            book.owner,
            len(book.steps),
            by_book.pop(book.id, []),
        )
        for book in books
    ]
    shown.sort(key=lambda book: (not book.runs + book.shadowed, book.id))
    shown += [
        _shown(name, None, "", "not loaded any more", "", 0, left) for name, left in sorted(by_book.items())
    ]
    return tuple(shown)


def _shown(
    name: str, revision: int | None, mode: str, description: str, owner: str, steps: int, runs: Sequence[Run]
) -> ShownRunbook:
    acting = [run for run in runs if run.plan.mode is not Mode.SHADOW]
    ends = Counter((run.outcome or run.state).value for run in acting if run.state.is_over)
    return ShownRunbook(
        id=plain(name, 200),
        revision=revision,
        mode=mode,
        description=plain(description, 600),
        owner=plain(owner, 200),
        steps=steps,
        runs=len(acting),
        running=sum(not run.state.is_over for run in acting),
        shadowed=len(runs) - len(acting),
        outcomes=tuple(ends.most_common()),
        last_at=max((run.created_at for run in runs), default=None),
    )
