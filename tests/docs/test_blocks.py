"""Every block of commands that README, docs and helps show is executed here, or by the tests beside this one, or is held
back with a reason (`pages.HELD_BACK`).

Blocks that need an installation run in `test_installation_embedded`, those about topics in `test_broker`, those of `kubectl` in
`test_kubectl`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from faultline.runtime.settings import Settings
from tests.docs.checkout import checkout, run
from tests.docs.pages import HELD_BACK, ROOT, Block, Needs, calls_of, command_blocks, fences
from tests.faultline.cli.every_command import every_command, examples_of

LANGUAGES = {"sh", "text", "yaml", "json", "ini", "js", "python", "mermaid", "sql"}

OFFLINE = [b for b in command_blocks() if b.needs is Needs.NOTHING]
SLOW = re.compile(
    r"docs/examples/threads/(?!gpu-off-bus)|docs/simulation|faultline (simulate|whatif|replay) --help|docs/replay"
)
"""Simulations and many replays; the pages of threads are compared with what is posted in `tests/sandbox` as well."""


def repeating(blocks: Sequence[Block]) -> frozenset[str]:
    """The places of blocks that only call what others call too, word for word: they run at night."""
    called = {block.place: {tuple(words) for words in calls_of(block.text)} for block in blocks}
    seen: set[tuple[str, ...]] = set()
    repeats = set()
    for place in sorted(called, key=lambda name: len(called[name]), reverse=True):
        if called[place] <= seen:
            repeats.add(place)
        seen |= called[place]
    return frozenset(repeats)


NIGHTLY = {block.place for block in OFFLINE if SLOW.match(block.place)}
NIGHTLY |= repeating([block for block in OFFLINE if block.place not in NIGHTLY])


def test_every_fenced_block_says_what_it_is() -> None:
    nameless = [f"{b.place}: `{b.language}`" for b in fences() if b.language not in LANGUAGES]
    assert nameless == [], "sh: commands that a test runs; text: what is printed; else the language"


def test_no_block_of_commands_hides_as_text() -> None:
    hidden = [
        b.place for b in fences() if b.language == "text" and re.match(r"(faultline|kubectl|make) ", b.text)
    ]
    assert hidden == []


def test_what_is_held_back_is_shown_somewhere() -> None:
    shown = [line for block in fences() for line in block.text.splitlines()]
    shown += [line for _, command in every_command() for line in examples_of(command)]
    assert [begin for begin in HELD_BACK if not any(line.startswith(begin) for line in shown)] == []


@pytest.mark.parametrize(
    "block",
    [pytest.param(b, id=b.place, marks=[pytest.mark.nightly] if b.place in NIGHTLY else []) for b in OFFLINE],
)
def test_a_block_without_a_broker_runs_in_a_checkout(block: Block, tmp_path: Path) -> None:
    run(block, checkout(tmp_path))


def test_every_command_that_is_not_slow_runs_with_every_commit() -> None:
    called = {tuple(words) for b in OFFLINE if not SLOW.match(b.place) for words in calls_of(b.text)}
    assert called == {tuple(words) for b in OFFLINE if b.place not in NIGHTLY for words in calls_of(b.text)}
    assert called


@pytest.mark.parametrize(
    "block", [pytest.param(b, id=b.place) for b in command_blocks() if b.needs is Needs.MAKE]
)
def test_a_target_of_make_exists(block: Block) -> None:
    """That it does what it says is what continuous integration is for."""
    for words in calls_of(block.text):
        if words[0] != "make":
            continue
        said = subprocess.run(
            ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in fences() if b.language == "ini"])
def test_a_variable_that_a_page_sets_is_a_setting(block: Block) -> None:
    for name in re.findall(r"^(\w+)=", block.text, re.MULTILINE):
        prefix, *keys = name.lower().removeprefix("faultline_").split("__")
        assert name.startswith("FAULTLINE_")
        assert prefix in Settings.model_fields, name
        section = Settings.model_fields[prefix].annotation
        if prefix != "notifier":  # its sinks have names of the reader's own
            assert set(keys) <= set(getattr(section, "model_fields", ())), name


def test_programs_that_blocks_call_are_here() -> None:
    assert all(shutil.which(name) for name in ("bash", "make"))
