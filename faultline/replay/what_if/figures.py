"""The summary in words and rows, for every way it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from faultline.replay.what_if.result import WhatIf
from faultline.replay.what_if.summary import Hours, Moved, Summary


def headline(found: WhatIf) -> str:
    """How many incidents there are, and how many differ."""
    figures = found.summary
    total = figures.incidents.before + figures.incidents.added
    if not figures.differs:
        return f"{found.source}: {_many(total, 'incident')}, all the same"
    differ = "1 differs" if figures.differing == 1 else f"{figures.differing} differ"
    return f"{found.source}: {_many(total, 'incident')}, {figures.same} the same, {differ}"


def counted(figures: Summary) -> Iterator[tuple[str, str, str, str]]:
    """A row for each figure: its name, both sides, and what changed."""
    yield _moved("incidents", figures.incidents)
    for name, number in (
        ("culprit changed", figures.culprits),
        ("certainty or severity changed", figures.certainties),
        ("other jobs or nodes hit", figures.impacts),
        ("runbook changed", figures.runbooks),
        ("mode of the runbook changed", figures.modes),
        ("step done otherwise", figures.steps),
        ("verdict changed", figures.verdicts),
    ):
        if number:
            yield name, "", "", _many(number, "incident")
    yield _moved("actions without asking", figures.actions)
    yield _moved("  of them nodes closed", figures.cordons)
    yield _moved("actions that ask", figures.approvals)
    yield _moved("tickets", figures.tickets)
    yield _moved("pages", figures.pages)
    yield _hours("GPU-hours lost", figures.gpu_hours)


def _moved(name: str, found: Moved) -> tuple[str, str, str, str]:
    parts = [f"+{found.added}"] if found.added else []
    parts += [f"-{found.removed}"] if found.removed else []
    return name, str(found.before), str(found.after), " ".join(parts) or "="


def _hours(name: str, found: Hours) -> tuple[str, str, str, str]:
    change = found.after - found.before
    text = f"{change:+,.1f}" if abs(change) >= 0.05 else "="
    unknown = f", not known of {_many(found.unknown, 'incident')}" if found.unknown else ""
    return name, f"{found.before:,.1f}", f"{found.after:,.1f}", text + unknown


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
