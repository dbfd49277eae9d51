"""Text from outside, made harmless for a place where some program reads it: each function says for which one.

A zero-width space is put where a character must stay readable but must not begin anything: no renderer takes it for part of
a mention, a reference, a command or an address.
"""

from __future__ import annotations

import re

from streams.model.message import plain

GAP = "\u200b"

_FORMULA = re.compile(r"^[\s\u200b]*[=+\-@\t\r]")
_REFERENCE = re.compile(r"([@#!~$%&^*])(?=[\w\"(\[{<])")
_SCHEME = re.compile(r"(?i)\b(https?|ftps?|mailto|xmpp|data|javascript|vbscript)(:)")
_WWW = re.compile(r"(?i)\bwww\.")
_TICKET_NUMBER = re.compile(r"\b([A-Z]{2,10})-(?=\d)")
_WIKI_PAGE = re.compile(r"\[(?=\[)")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|~:/@$%^\"'=])")
_WIKI = re.compile(r"([\\{}\[\]|*^~?!#@])")
_WIKI_LOOSE = re.compile(r"(?<!\w)([-_+])|([-_+])(?!\w)")
_WIKI_OPENS = re.compile(r"(?m)^(\s*)(h[1-6]\.|bq\.)")
_WIKI_ADDRESS = re.compile(r"(?i)\b(mailto|file|callto|skype|data|javascript|vbscript):|(?<=\w):(?=/|\\\\)")


def one_line(text: str, limit: int) -> str:
    """A plain-text field of one line, a title or a column of an export: it is no formula, refers to nothing and calls nobody.

    GitLab resolves mentions and references in titles, and every system exports its columns to spreadsheets.
    """
    line = " ".join(plain(text, limit * 2).split())
    return plain(no_formula(_REFERENCE.sub(rf"\1{GAP}", line)), limit)


def value(text: str, limit: int) -> str:
    """A value for a field: one line and no formula. Nothing is put into it, because it may have to match a name exactly."""
    return plain(no_formula(" ".join(plain(text, limit * 2).split())), limit)


def no_formula(text: str) -> str:
    """A field of several lines that is exported to spreadsheets: its first character decides."""
    return "'" + text if _FORMULA.match(text) else text


def journal(text: str) -> str:
    """Plain text for ServiceNow's description and notes, where `[code]` would switch to HTML."""
    return re.sub(r"(?i)\[(/?)code\]", rf"[{GAP}\1code]", text)


def markdown(text: str, limit: int) -> str:
    """Running text in GitHub's and GitLab's Markdown: no mark-up, HTML, mention, reference, link or quick action.

    Both resolve mentions, references and bare addresses once the Markdown is rendered and backslashes are gone: hence the gaps.
    """
    line = " ".join(plain(text, limit).split())
    line = _REFERENCE.sub(rf"\1{GAP}", line)
    line = _WIKI_PAGE.sub(f"[{GAP}", line)
    line = _SCHEME.sub(rf"\1{GAP}\2{GAP}", line)
    line = _WWW.sub(f"www{GAP}.", line)
    line = _TICKET_NUMBER.sub(rf"\1-{GAP}", line)
    line = _MARKDOWN.sub(r"\\\1", line)
    line = re.sub(r"&", "&amp;", line)
    return line.replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str, limit: int) -> str:
    """Raw lines as a code block of Markdown, with a fence that nothing inside can close."""
    lines = plain(text, limit)
    longest = max((len(run) for run in re.findall(r"`+", lines)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{lines}\n{fence}"


def wiki(text: str, limit: int) -> str:
    """Running text in Jira's wiki mark-up: no macro, link, address, mention, table, emphasis, heading or quotation."""
    line = " ".join(plain(text, limit).split())
    line = _WIKI.sub(r"\\\1", line)
    line = _WIKI_LOOSE.sub(lambda found: "\\" + (found[1] or found[2]), line)
    # A bare address becomes a link by itself, and its colon takes no backslash. As an entity it looks the same and opens nothing.
    line = _WIKI_ADDRESS.sub(lambda found: (found[1] or "") + "&#58;", line)
    return _WIKI_OPENS.sub(rf"\1{GAP}\2", line)


def no_format(text: str, limit: int) -> str:
    """Raw lines as a block of Jira's wiki mark-up that nothing inside can close."""
    lines = re.sub(r"(?i)\{(noformat|code)", rf"{{{GAP}\1", plain(text, limit))
    return f"{{noformat}}\n{lines}\n{{noformat}}"
