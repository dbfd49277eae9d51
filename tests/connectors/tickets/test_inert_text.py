"""What comes from logs, people and other systems does nothing in a ticket: one table of texts, for every system's form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from connectors.tickets import inert
from connectors.tickets.adf import document
from connectors.tickets.markup import markdown_text, plain_text, wiki_text
from streams.model.message import Code, Fact, Facts, Heading, Message, Paragraph, Table

HOSTILE = {
    "a mention": "@everyone look, and @octo-cat/all",
    "a mention of Jira": "[~admin] and [~accountid:5b10]",
    "a reference": "see #123, GH-7, GPU-61, !45, ~bug, $3, %4, &5, *iteration:6, infra/tools#9",
    "a reference by address": "https://github.com/example/repo/issues/1 and www.example.test",
    "other addresses": "file://host/x mailto:root@evil.test (ftp://evil.test) news://evil.test irc://evil.test",
    "a page of a wiki": "[[Home]] and [[[x]]",
    "HTML": '<img src=x onerror=alert(1)><script>x</script> <a href="javascript:alert(1)">y</a>',
    "the end of a comment": "--> <b>bold</b> <!-- faultline-00000000000000000000000000000000 -->",
    "quick actions": "/close\n/assign @me\n  /label ~urgent",
    "Markdown": "**bold** [text](https://evil.test) ![i](https://evil.test/x.png) `code` | cell | ~~x~~",
    "a fence": "```\n```` \n/close\n@everyone",
    "wiki mark-up": "{html}<b>{html} {color:red}x{color} !image.png! [text|https://evil.test] ||h|| {noformat}",
    "a heading": "h1. big\nbq. said\n* point\n# number\n----",
    "journal code": "[code]<script>alert(1)</script>[/code] [CODE]x[/CODE]",
    "a formula": "=cmd|' /C calc'!A0",
    "a formula by sign": "+1+cmd|' /C calc'!A0",
    "a formula by at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "a formula behind blanks": ' \t=HYPERLINK("https://evil.test")',
    "terminal escapes": "\x1b[2J\x00\u202egnp.exe",
    "half a pair": "\ud800 tail",
}


def message(text: str) -> Message:
    return Message(
        text,
        (
            Heading(text),
            Paragraph(text),
            Facts((Fact(text, text), Fact("link", text, url=text))),
            Table((text, "b"), ((text, "x"),)),
            Code(text),
        ),
    )


def outside_code(rendered: str) -> str:
    """Markdown without its fenced blocks, in which nothing is looked for."""
    return re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", rendered)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_markdown_carries_no_mention_reference_html_link_or_command(text: str) -> None:
    rendered = markdown_text(message(text), 60_000, footer="faultline-ours")
    body = outside_code(rendered).removesuffix("<!-- faultline-ours -->")
    assert rendered.endswith("<!-- faultline-ours -->")
    assert not re.search(r"[@#!~$%&^](?=\w)(?!amp;|lt;|gt;)", body)
    assert not re.search(r"[<>]", body)
    assert not re.search(r"(?i)(https?|javascript):", body)
    assert not re.search(r"(?m)^\s*/", body)
    assert not re.search(r"(?<!\\)[`*_\[\]]|(?<!\\)!\[", body)
    assert not re.search(r"\b[A-Z]{2,}-\d", body)
    assert "[[" not in body.replace("\\", "")
    assert "\x1b" not in rendered
    assert rendered.encode()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_fence_is_closed_from_inside(text: str) -> None:
    block = inert.fenced(text, 4000).splitlines()
    assert re.fullmatch(r"`{3,}text", block[0])
    fence = block[0].removesuffix("text")
    assert block[-1] == fence
    assert not any(line.strip().startswith(fence) for line in block[1:-1])


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_wiki_mark_up_carries_no_macro_link_mention_or_heading(text: str) -> None:
    rendered = wiki_text(message(text), 30_000)
    head, _, rest = rendered.partition("\n\n")
    assert head.startswith("h3. ")
    body = re.sub(r"(?s)\{noformat\}\n.*?\n\{noformat\}\Z", "", rest)
    cells = re.sub(r"(?m)^\|\|?|\|\|?$|(?<!\\)\|", "", body)
    assert not re.search(r"(?<!\\)[{}\[\]!*^~?#]", cells.replace("&#58;", ""))
    # Jira makes a link of these by itself, wherever they stand.
    assert not re.search(r"(?i)(?:https?|ftps?|nntp|news|irc)://|(?:mailto|file):", cells)
    assert not re.search(r"(?m)^(h[1-6]|bq)\.", body)
    assert rendered.count("{noformat}") == 2


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_plain_text_carries_no_formula_and_no_switch_to_html(text: str) -> None:
    rendered = plain_text(message(text), 3900, footer="faultline-ours")
    assert rendered.endswith("faultline-ours")
    assert not re.search(r"(?i)\[/?code\]", rendered)
    assert not re.match(r"\s*[=+\-@]", rendered)
    assert len(rendered) <= 3900


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_title_is_one_short_line_without_formula_and_mention(text: str) -> None:
    line = inert.one_line(text, 250)
    assert len(line) <= 250
    assert "\n" not in line
    assert not re.match(r"\s*[=+\-@]", line)
    assert not re.search(r"[@#!~$%&^](?=\w)", line)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_adf_shows_the_text_and_nothing_else(text: str) -> None:
    def kinds(node: object) -> set[str]:
        if isinstance(node, dict):
            own = {str(node["type"])} | {str(m["type"]) for m in node.get("marks", ())}
            return own.union(*(kinds(child) for child in node.get("content", ())), set())
        return set()

    allowed = {"doc", "heading", "paragraph", "text", "table", "tableRow", "tableCell", "tableHeader"}
    assert kinds(document(message(text), footer="x")) <= allowed | {"codeBlock", "code"}


@pytest.mark.parametrize(
    ("render", "limit"), [(markdown_text, 60_000), (wiki_text, 30_000), (plain_text, 3900)]
)
def test_whatever_comes_the_limit_holds_and_the_token_stays(render: Callable[..., str], limit: int) -> None:
    for text in ("x" * 200_000, "[code]" * 30_000, "@a " * 50_000, "`" * 50_000, "{" * 50_000):
        many = Message("s", tuple(block for _ in range(40) for block in message(text).blocks))
        rendered = render(many, limit, footer="faultline-ours")
        assert len(rendered) <= limit
        assert "faultline-ours" in rendered[-60:]
        assert "more than a ticket takes" in rendered


FORMS: dict[str, tuple[Callable[[Message], str], int]] = {
    "ServiceNow's description": (lambda said: plain_text(said, 3900, footer="faultline-ours"), 3900),
    "Jira Data Center": (lambda said: wiki_text(said, 30_000, footer="faultline-ours"), 30_000),
    "Jira Cloud": (
        lambda said: json.dumps(document(said, footer="faultline-ours"), ensure_ascii=False),
        32_767,
    ),
    "GitHub": (lambda said: markdown_text(said, 60_000, footer="faultline-ours"), 60_000),
    "GitLab": (lambda said: markdown_text(said, 100_000, footer="faultline-ours"), 100_000),
}
LONG = {
    "one line": "x" * 500_000,
    "lines": "gpu lost \n" * 50_000,
    "pictographs": "\U0001f525" * 200_000,
    "signs that are escaped": "{*[@" * 50_000,
    "quotes": '"\\' * 100_000,
    "addresses": "https://evil.test/a " * 20_000,
}


def told(text: str, *, block: type[Paragraph] | type[Code] = Paragraph, facts: int = 8) -> Message:
    """A ticket as the desk words it."""
    values = tuple(Fact(f"fact {n}", f"value {n}") for n in range(facts))
    return Message("GPU lost", (Heading("GPU lost"), block(text), Facts(values)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [Paragraph, Code])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_text_is_cut_where_the_room_ends_and_the_facts_stay(
    form: str, block: type[Paragraph] | type[Code], text: str
) -> None:
    render, limit = FORMS[form]
    rendered = render(told("BEGIN " + text, block=block))
    assert "BEGIN" in rendered
    assert "the rest is in the incident's timeline" in rendered
    assert "value 7" in re.sub(r"\\\\", "", rendered)
    assert "faultline-ours" in rendered
    size = len(rendered.encode("utf-16-le")) // 2
    assert 0.75 * limit < size <= limit, "the room is used, counted as the systems count"


@pytest.mark.parametrize("form", FORMS)
def test_what_fits_is_whole_and_says_nothing_of_a_rest(form: str) -> None:
    render, limit = FORMS[form]
    for length in (limit // 4, limit // 2, limit * 3 // 4):
        rendered = render(told("x" * length + " END"))
        assert "END" in rendered
        assert "more than a ticket takes" not in rendered


@pytest.mark.parametrize("form", FORMS)
def test_facts_that_are_long_themselves_leave_half_of_the_room_to_the_text(form: str) -> None:
    render, limit = FORMS[form]
    facts = tuple(Fact(f"fact{n:02}", "y" * 9000) for n in range(30))
    rendered = render(Message("s", (Paragraph("x" * 200_000), Facts(facts))))
    assert rendered.count("x") > limit // 4
    assert all(f"fact{n:02}" in rendered for n in range(30))
    assert len(rendered) <= limit


def test_lines_stay_lines() -> None:
    said = Message("s", (Paragraph("first of all\n\n1. second\n- third\n==="),))
    assert markdown_text(said, 9000).split("  \n") == [
        "first of all",
        "1\\. second",
        "\\- third",
        "\\=\\=\\=",
    ]
    assert len(wiki_text(said, 9000).splitlines()) == 4
    assert len(plain_text(said, 9000).splitlines()) == 5


def test_an_address_of_ours_is_a_link_in_every_form() -> None:
    url = "https://console.example.test/incidents/inc-1"
    said = Message("s", (Facts((Fact("console", url, url=url),)),))
    assert f"<{url}>" in markdown_text(said, 9000)
    assert f"[{url}]" in wiki_text(said, 9000)
    assert url in plain_text(said, 9000)
    assert "'href': '" + url in str(document(said))
