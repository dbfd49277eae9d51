"""Whatever a log line or a person wrote, no renderer makes more of it than text. One table of texts for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from connectors.rendering.adaptive_card import adaptive_card
from connectors.rendering.html import html
from connectors.rendering.markdown import markdown
from connectors.rendering.neutral import neutral
from connectors.rendering.text import CUT, JOINER, text, without_mentions
from streams.model.message import Block, Code, Fact, Facts, Heading, Message, Paragraph, Table

ESC, RLO, LS = "\x1b", "\u202e", "\u2028"

HOSTILE = {
    "slack mention": "<!channel> <@U0123ABC> <!subteam^S0123ABC>",
    "slack link": "<https://evil.example.test|your console>",
    "slack emphasis": "*bold* _italic_ ~gone~ `code` ```fence```",
    "html": '<script>alert(1)</script><img src=x onerror=alert(1)><a href="https://evil.example.test">x</a>',
    "html attribute": '" onmouseover="alert(1)" x=\'',
    "html entity": "&lt;script&gt; &#60;b&#62; &amp;",
    "html comment": "<!-- --> <![CDATA[ ]]> <?php ?>",
    "style end": "</style></pre></td></table></body></html><script>x</script>",
    "markdown link": "[your console](https://evil.example.test) [a]: https://evil.example.test",
    "markdown picture": "![pixel](https://evil.example.test/p.png)",
    "markdown reference": "[x][1]\n\n[1]: https://evil.example.test 'x'",
    "markdown autolink": "<https://evil.example.test>",
    "markdown heading": "# heading\n## heading\nheading\n=====\nheading\n-----",
    "markdown list": "- a\n+ b\n1. c\n1) d\n> quote",
    "markdown rule": "---\n***\n___",
    "markdown fence": "```\nout of it\n~~~~\n````\nand back",
    "markdown table": "| a | b |\n|---|---|\n| c | d |",
    "markdown table without bars": "heading\n:-",
    "markdown code": "    indented\n\tindented",
    "markdown html": "<details open><summary>x</summary></details>",
    "backslashes": "\\[x\\](y) \\\\<b> \\",
    "mention": "@everyone @here @channel @all @ann <at>Ann</at>",
    "card function": "{{DATE(2030-05-04T03:02:01Z, SHORT)}} ${$root.secret} @{triggerBody()}",
    "formula": '=HYPERLINK("https://evil.example.test","x")',
    "formula plus": "+cmd|' /C calc'!A0",
    "formula minus": "-2+3+cmd|' /C calc'!A0",
    "formula at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "formula tab": "\t=1+1",
    "terminal": f"{ESC}[31mred{ESC}[0m {ESC}]0;title\x07 {ESC}]8;;https://evil.example.test{ESC}\\x{ESC}]8;;{ESC}\\ \x9b31m",
    "bidi": f"{RLO}txt.exe \u2066hidden\u2069 \u200e\u200f",
    "line ends": f"one\r\nBcc: eve@example.test{LS}two\x85three\x0bfour\x00five",
    "surrogate": "half \ud83d a pair",
    "template": "{{ config }} {% include '/etc/passwd' %} {# x #} %s {0} $x$",
    "long": "x" * 5_000_000,
    "long line of marks": "`*[<&|" * 500_000,
    "many lines": "=1+1\n" * 500_000,
    "empty": "",
    "blanks": " \t\n \n",
}

LINK = "https://console.example.test/i/1"
LIMIT = 24_000

BAD_SIGNS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA_CELL = re.compile(r"\A[=+@]|\A-(?![\d.,]+%?\Z)")


def everywhere(hostile: str) -> Message:
    """A message with this text in every place that takes one."""
    return Message(
        hostile,
        (
            Heading(hostile),
            Facts((Fact(hostile, hostile, url=LINK), Fact("label", hostile, url=hostile))),
            Table((hostile[:200], "b"), ((hostile[:1000], "seen"),)),
            Paragraph(hostile),
            Paragraph(hostile, quiet=True),
            Code(hostile),
        ),
    )


def by_block(hostile: str) -> list[Message]:
    """Each block alone, so that none is left out for another's length."""
    blocks: tuple[Block, ...] = everywhere(hostile).blocks
    return [everywhere(hostile), *(Message("s", (block,)) for block in blocks)]


every_text = pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())


@every_text
def test_in_plain_text_it_controls_nothing_and_begins_no_cell(hostile: str) -> None:
    for message in by_block(hostile):
        shown = text(message, LIMIT)
        assert len(shown) <= LIMIT
        assert not BAD_SIGNS.search(shown)
    facts, table = text(by_block(hostile)[2], LIMIT), text(by_block(hostile)[3], LIMIT)
    for line in table.splitlines():
        assert not FORMULA_CELL.match(line)
    assert all(not FORMULA_CELL.match(line.partition(": ")[2]) for line in facts.splitlines())
    code = [line for line in text(by_block(hostile)[6], LIMIT).splitlines() if line not in ("", CUT)]
    assert all(line.startswith("  | ") for line in code)


@every_text
def test_without_mentions_nobody_is_called(hostile: str) -> None:
    assert not re.search(r"@(everyone|here|channel|all|ann)\b", without_mentions(hostile[:10_000]))


@every_text
def test_in_markdown_it_is_no_markup(hostile: str) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    for message in by_block(hostile):
        shown = markdown(message, LIMIT)
        assert len(shown) <= LIMIT
        assert not BAD_SIGNS.search(shown)
        kinds = list(_tokens(reader.parse(shown)))
        assert not {kind for kind, _ in kinds} & {
            "image", "html_inline", "html_block", "blockquote_open", "ordered_list_open",
            "hr", "code_block", "em_open", "s_open", "code_inline", "lheading_open",
        }  # fmt: skip
        assert {href for kind, href in kinds if kind == "link_open"} <= {LINK}
        assert sum(kind == "heading_open" for kind, _ in kinds) == sum(
            isinstance(block, Heading) for block in message.blocks
        )
        assert sum(kind == "table_open" for kind, _ in kinds) == sum(
            isinstance(block, Table) for block in message.blocks
        )
        outside = "".join(content for kind, content in kinds if kind == "text")
        assert not re.search(r"@(everyone|here|channel|all|ann)\b", outside)
        if isinstance(message.blocks[-1], Code) and len(message.blocks) == 1:
            assert [kind for kind, _ in kinds if kind != "text"] == ["fence"]


SIGNS = st.sampled_from(
    [
        *"`*_{}[]()<>#+-.!|~&$=\\:;/\"'@ \t\n1aé",
        LS,
        "```",
        "~~~",
        "    ",
        "http://x",
        "<b>",
        "&lt;",
        "![",
        "](",
        "\n\n",
        ":-",
        "---",
    ]
)


@given(st.lists(SIGNS, max_size=40).map("".join))
def test_of_any_signs_a_reader_of_markdown_sees_those_signs(written: str) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    kinds = list(_tokens(reader.parse(markdown(Message("s", (Paragraph(written),)), LIMIT))))
    assert {kind for kind, _ in kinds} <= {
        "paragraph_open", "paragraph_close", "inline", "text", "text_special", "softbreak", "hardbreak",
    }  # fmt: skip
    shown = "".join(content for kind, content in kinds if kind == "text")
    assert "".join(shown.replace(JOINER, "").split()) == "".join(written.split())


def _tokens(tokens: list[Any]) -> Iterator[tuple[str, str]]:
    for token in tokens:
        yield token.type, token.content if token.type == "text" else str(token.attrGet("href") or "")
        yield from _tokens(token.children or [])


class Elements(HTMLParser):
    """What a browser would make of a document."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", {}))

    def handle_pi(self, data: str) -> None:
        self.found.append(("pi", {}))


OURS = {
    "html", "head", "meta", "title", "style", "body", "div", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "a", "pre",
}  # fmt: skip


@every_text
def test_in_html_it_is_no_element_and_no_attribute(hostile: str) -> None:
    for message in by_block(hostile):
        document = html(message, LIMIT, footer=hostile[:1000])
        assert len(document) <= LIMIT
        assert not BAD_SIGNS.search(document)
        page = Elements()
        page.feed(document)
        page.close()
        assert {tag for tag, _ in page.found} <= OURS
        for tag, attributes in page.found:
            assert not any(name.startswith("on") or name in ("src", "background") for name in attributes)
            if tag == "a":
                assert attributes["href"] == LINK
        assert "url(" not in document
        assert "@import" not in document


@every_text
def test_in_a_card_it_is_nothing_but_runs_of_text(hostile: str) -> None:
    for message in by_block(hostile):
        card = adaptive_card(message, LIMIT, subject=hostile[:1000])
        assert len(orjson.dumps(card)) <= LIMIT
        for element in _elements(card):
            assert element["type"] != "TextBlock"
            if element["type"] == "Action.OpenUrl":
                assert element["url"] == LINK
            if element["type"] == "TextRun":
                assert not BAD_SIGNS.search(element["text"])
                assert "{{" not in element["text"]
                assert "${" not in element["text"]


def _elements(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        if "type" in part:
            yield part
        for value in part.values():
            yield from _elements(value)
    elif isinstance(part, list):
        for one in part:
            yield from _elements(one)


@every_text
def test_for_programs_it_is_clean_and_bounded(hostile: str) -> None:
    for message in by_block(hostile):
        shown = orjson.dumps(neutral(message, LIMIT)).decode()
        assert len(shown.encode()) <= LIMIT + 1_000
        for value in _strings(orjson.loads(shown)):
            assert not BAD_SIGNS.search(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


@pytest.mark.parametrize(
    "shown",
    [
        lambda message: text(message, LIMIT),
        lambda message: markdown(message, LIMIT),
        lambda message: html(message, LIMIT),
        lambda message: orjson.dumps(adaptive_card(message, LIMIT)).decode(),
        lambda message: orjson.dumps(neutral(message, LIMIT)).decode(),
    ],
    ids=["text", "markdown", "html", "card", "neutral"],
)
def test_what_is_harmless_reads_as_it_was_written(shown: Callable[[Message], str]) -> None:
    message = Message(
        "s",
        (
            Heading("GPU 3 of gpu-17 is gone"),
            Paragraph("Temperature 91 at 03:02, since 2 minutes"),
            Table(("Job", "Change"), (("train-a", "-5"), ("train-b", "12"))),
            Code("NVRM: Xid 79, GPU has fallen off the bus"),
        ),
    )
    found = re.sub(r"\\(?=\W)", "", shown(message))
    for wanted in ("GPU 3 of gpu-17 is gone", "91 at 03:02, since 2 minutes", "train-a", "-5", "Xid 79, GPU"):
        assert wanted in found
