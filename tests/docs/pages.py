"""The fenced blocks of README, CONTRIBUTING and docs, the examples of every command's help, and what each needs to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

from tests.faultline.cli.every_command import every_command, examples_of

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#\s.*$")
_ASSIGNMENT = re.compile(r"\w+=.*")
_END = re.compile(r"[|<>();&\n]+")

KAFKA = {
    "capacity", "dead-letters", "digest", "doctor", "drill", "explain", "guard", "incidents", "jobs", "maintenance", "nodes",
    "report", "rollout", "runs", "shadow", "why-not", "archive", "capture",
}  # fmt: skip
"""Commands that read or write Kafka, unless they are given a capture."""

OF_BROKER = {("topics", "apply"), ("topics", "diff")}
"""Commands about the topics themselves: the embedded broker has no settings of topics."""

HELD_BACK = {
    "docker compose --profile monitoring up": "its images are not made here: tests/deploy/test_compose.py reads its files",
    "helm ": "tests/deploy/test_installations.py installs, upgrades, rolls back and uninstalls the chart",
    "docker compose up": "tests/containers/test_compose_runs.py starts what it starts",
    ".venv/bin/python docs/pictures.py": "needs a browser, and changes pictures",
    "docker buildx build --push ": "pushes to a registry",
    "cosign ": "signs with the identity of a workflow, and verifies that: there is none here",
    "SOURCE_DATE_EPOCH=": "tests/supply_chain/test_wheel.py builds the wheel, twice",
    "faultline demo": "tests/sandbox/demo plays it, and takes a minute",
    "faultline preflight ": "needs containers that test GPUs: tests/faultline/cli/test_preflight.py",
    "faultline --config faultline.yaml run ": "runs until it is stopped; installations are started with it",
    "FAULTLINE_HTTP_PORT=8080 faultline run ": "the same",
    "faultline mcp ": "speaks a protocol: tests/faultline/mcp starts it",
    "source <(faultline completion zsh)": "for zsh: tests/faultline/cli/test_completion.py completes in bash",
    "faultline completion fish": "for fish: the same",
    "faultline doctor": "asks an API server for rights, which the emulated one does not know",
    "faultline runbook run ": "needs nodes that can be reset: tests/faultline/cli/test_by_hand_embedded.py",
    "faultline runbook continue ": "needs a run that has failed: the same",
    "faultline runbook redo ": "the same",
    "kubectl -n faultline-shippers create secret ": "needs the certificate of a broker: tests/deploy/test_shippers_apply.py",
    "faultline dead-letters ": "the emulated broker finds no records by time and deletes none: on a real one in "
    "tests/faultline/dead_letters",
    "faultline topics apply --adopt-kafka": "the emulated broker tells no settings of topics: on two real ones in "
    "tests/runbooks/engine/test_disasters.py",
    "kafka-console-producer.sh ": "Kafka's own tool, and a record that nobody wants",
}
"""How commands begin that pages and helps show and that no test of this folder executes, and why."""


class Needs(StrEnum):
    """What a block needs to run."""

    NOTHING = "nothing"
    MAKE = "make"
    INSTALLATION = "installation"
    BROKER = "broker"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Block:
    """Commands as somebody pastes them. `place` is the page with the line, or the command whose help shows them."""

    place: str
    language: str
    text: str

    @property
    def needs(self) -> Needs:
        """What it needs to run: as much as the neediest of its commands."""
        calls = list(calls_of(self.text))
        if any(needs_broker(words) for words in calls):
            return Needs.BROKER
        if any(needs_kafka(words) for words in calls):
            return Needs.INSTALLATION
        programs = {words[0] for words in calls}
        if "kubectl" in programs:
            return Needs.CLUSTER
        return Needs.MAKE if "make" in programs else Needs.NOTHING


def calls_of(text: str) -> Iterator[list[str]]:
    """The words of every call of a program, in a shell's syntax; assignments before it are left out."""
    lexer = shlex.shlex(
        _COMMENT.sub("", text.replace("\\\n", " ")), posix=True, punctuation_chars="|<>();&\n"
    )
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escapedquotes = '"'
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if not _END.fullmatch(word):
            if words or not _ASSIGNMENT.fullmatch(word):
                words.append(word)
        elif words:
            yield words
            words = []


def needs_broker(words: list[str]) -> bool:
    """Whether a call needs a real broker, and no process of Faultline."""
    return words[0] == "faultline" and tuple(words[1:3]) in OF_BROKER


def needs_kafka(words: list[str]) -> bool:
    """Whether a call of `faultline` needs an installation."""
    if words[0] != "faultline":
        return False
    after = [word for word in words[1:] if not word.startswith("-")]
    if "--capture" in words:
        return False
    by_hand = after[:1] == ["runbook"] and after[1:2] in (["run"], ["continue"], ["redo"], ["replay"])
    return bool(after) and (after[0] in KAFKA or by_hand or "kafka" in after)


@cache
def fences() -> tuple[Block, ...]:
    """Every fenced block of every page that is written by hand."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(
        Block(f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}", found[2], found[3])
        for page in pages
        if not page.is_relative_to(ROOT / "docs/reference")
        for text in [page.read_text(encoding="utf-8")]
        for found in _FENCE.finditer(text)
    )


@cache
def command_blocks() -> tuple[Block, ...]:
    """All that people paste into a shell, without what is held back: blocks of `sh`, and the examples of every command."""
    helps = (
        Block(f"{name} --help", "sh", "\n".join(examples_of(command)) + "\n")
        for name, command in every_command()
    )
    shown = (*(block for block in fences() if block.language == "sh"), *helps)
    left = (replace(block, text="".join(f"{line}\n" for line in executed(block.text))) for block in shown)
    return tuple(block for block in left if block.text.strip())


def executed(text: str) -> Iterator[str]:
    """The lines of a block, but for the commands that are held back; a command that goes on on the next line is one."""
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        if not line.strip().startswith(tuple(HELD_BACK)):
            yield line
