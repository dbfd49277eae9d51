"""`python -m sandbox.thread_examples docs/examples/threads`: the threads of the examples, as they are posted now.

Each page names the simulated fault in its own words: the first `faultline simulate …` on it. What is posted for that stands in
the block below `## Posted`, which is written by this module and held to it by a test. The rest of a page is written by hand.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from faultline.cli.thread_text import thread_lines
from faultline.replay.replay import replay_capture
from faultline.replay.threads import RecordedThreads
from runbooks.language.loader import load as load_runbooks
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import Scenario, load
from streams.model.errors import BadInput

_COMMAND = re.compile(r"^faultline simulate (?P<options>.+?) --out ", re.MULTILINE)
_POSTED = re.compile(r"(?<=^## Posted\n\n```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
NOTHING = "(no thread)"


def page_with_threads(page: str) -> str:
    """A page with what is posted now for its fault.

    Raises:
        BadInput: when it names no simulated fault, or has no place for what is posted.
    """
    command = _COMMAND.search(page)
    if command is None or not _POSTED.search(page):
        raise BadInput(
            "an example needs a line `faultline simulate … --out CAPTURE` and a block of text below `## Posted`"
        )
    scenarios, *options = shlex.split(command["options"])
    chosen = dict(zip(options[::2], options[1::2], strict=True))
    scenario = load(Path(scenarios))[chosen["--name"]].model_copy(update={"site": chosen["--site"]})
    posted = "".join(
        f"{line}\n" for line in _threads(scenario.sized(int(chosen["--nodes"])), int(chosen["--seed"]))
    )
    return _POSTED.sub(lambda _: posted or f"{NOTHING}\n", page, count=1)


def _threads(scenario: Scenario, seed: int) -> Iterator[str]:
    recorded = RecordedThreads()
    replay_capture(simulate(scenario, seed).capture, runbooks=load_runbooks(), threads=recorded)
    for number, posted in enumerate(recorded.by_incident().values()):
        if number:
            yield "-" * 40
        yield from thread_lines(posted)


def main(folder: Path) -> None:
    """Write the pages of a folder anew."""
    for path in sorted(folder.glob("*.md")):
        if _COMMAND.search(page := path.read_text(encoding="utf-8")):
            path.write_text(page_with_threads(page), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: python -m sandbox.thread_examples FOLDER")
    main(Path(sys.argv[1]))
