"""Says on stderr which records of a capture were left out, and where the first of them are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from faultline.replay.capture import Capture


def tell_left_out(capture: Capture) -> None:
    """To be called once the capture has been read."""
    for line in capture.unread.lines():
        click.echo(f"faultline: {line}", err=True)
