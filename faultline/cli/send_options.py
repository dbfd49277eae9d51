"""The options of every command that is sent to the responder; apart from the sending, so that `--help` needs no Kafka client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from faultline.cli.arguments import Finite
from faultline.cli.output import output_option

WAIT_S = 15.0
"""Longer than an iteration of the responder, and about as long as a rebalance takes."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """The options of every command that is sent. `actor` is None for the user name."""

    reason: str
    actor: str | None
    wait_s: float
    output: str


def send_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds `--reason`, `--as`, `--wait` and `--output`; the function gets them as one parameter, `options`."""

    @wraps(function)
    def with_options(
        *args: Any, reason: str, actor: str | None, wait_s: float, output: str, **more: Any
    ) -> None:
        function(*args, options=SendOptions(reason, actor, wait_s, output), **more)

    decorated: Callable[..., None] = with_options
    for option in (
        click.option("--reason", default="", help="Reason, shown on the timeline."),
        click.option("--as", "actor", default=None, help="Who sends the command (default: the user name)."),
        click.option(
            "--wait", "wait_s", type=Finite(min=0, max=3600), default=WAIT_S, show_default=True,
            help="Seconds to wait for the responder's answer; 0 only sends.",
        ),
        output_option,
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated
