"""Writes docs/pictures/*.svg from a story of the demo: `.venv/bin/python docs/pictures.py`. Nothing in them is made up."""

import asyncio
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from faultline.why.tree import printable
from sandbox.demo import stack, stories
from sandbox.demo.director import LANGUAGE, Director
from sandbox.demo.screens import line_of
from sandbox.demo.spectator import DemoMoment, Spectator
from sandbox.demo.world import World
from sandbox.fake_services.slack import Posting

FOLDER = Path(__file__).parent / "pictures"
WIDTH = 118
SHORT = 45


async def play() -> tuple[list[DemoMoment], list[Posting]]:
    """One GPU falls off the bus: what the demo shows of it, and the messages in its thread."""
    with tempfile.TemporaryDirectory() as folder:
        async with stack.running(Path(folder)) as running, World(running.api, running.kafka) as world:
            moments: list[DemoMoment] = []
            spectator = Spectator(running.kafka, running.slack, moments.append)
            around = [asyncio.create_task(spectator.run()), asyncio.create_task(world.run())]
            await Director(running, world, spectator.seen, moments.append).play(
                [(stories.gpu_off_the_bus, LANGUAGE)]
            )
            await asyncio.sleep(5)  # the chat posts the last steps a little after the run has ended
            for task in around:
                task.cancel()
            await asyncio.gather(*around, return_exceptions=True)
            root = running.slack.roots()[0]
            return moments, [root, *running.slack.thread(root.ts)]


def picture(name: str, title: str, lines: list[Text]) -> None:
    """Lines as a terminal shows them, each cut at the width of the picture."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(line, no_wrap=True, overflow="ellipsis", highlight=False)
        console.save_svg(str(FOLDER / f"{name}.svg"), title=title, unique_id=name)


def thread_lines(postings: list[Posting]) -> list[Text]:
    """A thread as its reader sees it: the first message, then the replies, set in, each with its heading in bold."""
    lines: list[Text] = []
    for number, posting in enumerate(postings):
        heading, *rest = posting.lines
        indent = "    " if number else ""
        lines.append(Text(indent + heading, style="bold"))
        lines += [Text(f"{indent}{printable(line, WIDTH * 2)}") for line in side_by_side(rest)]
        lines.append(Text())
    return lines[:-1]


def side_by_side(lines: list[str]) -> list[str]:
    """Short facts share a line, as Slack sets them in columns."""
    shown: list[str] = []
    for line in lines:
        if shown and len(line) < SHORT and len(shown[-1]) + len(line) < 90 and not shown[-1].endswith(":"):
            shown[-1] += f"  ·  {line}"
        else:
            shown.append(line)
    return shown


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    moments, postings = asyncio.run(play())
    began = moments[0].at
    shown = [line_of(moment, began) for moment in moments]
    picture("demo", "faultline demo", shown)
    picture("thread", "Slack: one thread per incident", thread_lines(postings))
