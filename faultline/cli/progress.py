"""How far a command is, on stderr: a bar on a terminal, elsewhere a line every five seconds. What is quick shows nothing."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click

SHOWN_AFTER_S = 1.0
DRAWN_EVERY_S = 0.1
LINE_EVERY_S = 5.0
BAR = 20
"""Characters of a whole bar."""


class Progress:
    """Counts what is done. Call `advance` as often as wished: it looks at the clock, and seldom prints."""

    def __init__(self, what: str, total: int | None, unit: str, stream: IO[str]) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self.users = 0
        self._stream = stream
        self._began = time.monotonic()
        self._next = self._began + (SHOWN_AFTER_S if stream.isatty() else LINE_EVERY_S)
        self._is_drawn = False

    def advance(self, by: int = 1) -> None:
        """So many more are done."""
        self.done += by
        self.look()

    def reach(self, done: int) -> None:
        """So many are done in all."""
        self.done = done
        self.look()

    def look(self) -> None:
        """Print when it is time to."""
        if (now := time.monotonic()) < self._next:
            return
        line = self.line(now - self._began)
        if self._stream.isatty():
            self._next = now + DRAWN_EVERY_S
            self._draw(line)
        else:
            self._next = now + LINE_EVERY_S
            click.echo(line, file=self._stream)

    def line(self, took_s: float) -> str:
        """`reading: 31,000 of 64,000 records (48 %), 12 s, about 13 s left`."""
        if not self.total:
            return f"{self.what}: {self.done:,} {self.unit}, {took_s:.0f} s"
        left = f", about {took_s * (1 - self._share) / self._share:.0f} s left" if self._share else ""
        return (
            f"{self.what}: {self.done:,} of {self.total:,} {self.unit} ({self._share * 100:.0f} %), "
            f"{took_s:.0f} s{left}"
        )

    def close(self) -> None:
        """Take the bar away, so that what is printed next stands alone."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    @property
    def _share(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0

    def _draw(self, line: str) -> None:
        bar = f"[{'#' * int(BAR * self._share):{BAR}}] " if self.total else ""
        columns = shutil.get_terminal_size().columns
        self._stream.write(f"\r{(bar + line)[: columns - 1]}\x1b[K")
        self._stream.flush()
        self._is_drawn = True


_active: Progress | None = None


@contextmanager
def progress(
    what: str, total: int | None = None, unit: str = "records", stream: IO[str] | None = None
) -> Iterator[Progress]:
    """Show how far the body is. Within another one it counts into that: a terminal has room for one bar.

    `total` may be set or raised while it runs; None when nobody knows how many there are.
    """
    global _active
    if _active is not None:
        _active.total = None if _active.total is None or total is None else _active.total + total
    else:
        _active = Progress(what, total, unit, stream or sys.stderr)
    shown = _active
    shown.users += 1
    try:
        yield shown
    finally:
        # Topics are read side by side: the first may end before the others.
        shown.users -= 1
        if not shown.users:
            shown.close()
            _active = None
