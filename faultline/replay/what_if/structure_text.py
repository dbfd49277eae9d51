"""The answer to a question about spares, checkpoints and drains, in rows and lines, for every way it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from faultline.replay.what_if.structure import Answer, Basis, Estimate
from streams.model.counted import many


def rows(found: Answer) -> Iterator[tuple[str, str, str, str]]:
    """A row for each figure: its name, as it was, as it would be, and between which bounds."""
    for name, one in (
        ("GPU-hours without progress", found.without_progress),
        ("GPU-hours of work repeated", found.repeated),
    ):
        yield name, f"{one.before:,.1f}", f"{one.after:,.1f}", _bounds(one, ",.1f")
    if found.ettr is None:
        yield "ETTR", "not known", "not known", "no training job held a GPU"
    else:
        yield "ETTR", f"{found.ettr.before:.4f}", f"{found.ettr.after:.4f}", _bounds(found.ettr, ".4f")


def lines(found: Answer) -> Iterator[str]:
    """How it was worked out, what is taken for granted, and how much is not known."""
    yield f"{many(found.incidents, 'incident')} stopped jobs; training jobs held {found.held:,.1f} GPU-hours"
    yield "ETTR = 1 - (GPU-hours without progress + repeated) / GPU-hours held"
    for basis in found.bases:
        yield f"{basis.what}: {basis.formula}"
        yield f"  {_known(basis)}"
    if found.unknown_repeated:
        yield (
            f"what {many(found.unknown_repeated, 'incident')} repeated is not known and not counted: ETTR is that much "
            "too high on both sides"
        )
    if found.unknown_gpus:
        yield f"the GPUs of {many(found.unknown_gpus, 'incident')} are not known: they are in no figure"
    ended = ", ".join(f"{name} {number}" for name, number in found.ended_by)
    yield f"time without progress ended with: {ended or 'none'}"


def _known(basis: Basis) -> str:
    share = f", {basis.share:.0%} of the GPU-hours" if basis.share is not None else ""
    missing = f"; {basis.missing}" if basis.missing else ""
    return f"known of {basis.known} of {many(basis.of, 'incident')}{share}{missing}"


def _bounds(one: Estimate, spec: str) -> str:
    if one.least == one.most:
        return ""
    return f"{one.least:{spec}} to {one.most:{spec}}"
