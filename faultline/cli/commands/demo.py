"""`faultline demo`: five incidents from log line to resumed job, on a machine with nothing but Python."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option


@click.command(
    "demo",
    epilog=examples(
        "faultline demo",
        ("faultline demo --stay", "then look around in the console"),
    ),
)
@output_option
@click.option(
    "--capture",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-capture"),
    show_default=True,
    help="Directory for a capture of all pipeline input.",
)
@click.option(
    "--stay",
    is_flag=True,
    help="Keep everything running after the last fault, until Ctrl-C, to look around in the console.",
)
def command(output: str, capture: Path, stay: bool) -> int:
    """Inject five faults into a cluster of 16 nodes x 8 GPUs with three training jobs, and check how each is handled.

    The last one waits until a person has approved it in the Slack thread. The console is at the address that is printed.
    Everything runs on this machine's loopback and is removed at the end, except for the capture. Exit code 1 when a check
    fails.
    """
    from sandbox.demo.performance import Interrupted, perform
    from sandbox.demo.recording import SETTINGS
    from sandbox.demo.screens import screen_for

    # The processes have logs of their own, and the spectator would log the broker's shutdown as errors.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    screen = screen_for(output)
    try:
        found = asyncio.run(perform(screen, capture, stay_for=_as_called() if stay else ""))
    except Interrupted as end:
        screen.close()
        screen.note(str(end))
        return 130
    except BaseException:
        screen.close()
        raise
    screen.close()
    screen.conclude(found)
    first = next((r.incident.id for r in found.results if r.incident), None)
    again = f"{_as_called()} --config {capture / SETTINGS}"
    if not stay:
        screen.note(f"look around in the console while all of it runs:  {_as_called()} demo --stay")
    screen.note(f"replay it:   {again} replay {capture}")
    screen.note(f"explain it:  {again} explain {first} --capture {capture}")
    return 0 if found.good else 1


def _as_called() -> str:
    """The command to paste again: `make demo` puts no `faultline` on the PATH."""
    called = Path(sys.argv[0])
    return sys.argv[0] if called.name == "faultline" else f"{sys.executable} -m faultline"
