"""Is this message being reported, or merely quoted?

A line in a chat, a stack trace, a question or a test holds the same words as the driver's own line. What precedes the message
tells them apart: loggers write times, hosts, ranks and brackets, people write words and quotes.
"""

from __future__ import annotations

import re

from streams.detect.matching import carriers, prose
from streams.ingest import layers
from streams.ingest.header import KERNEL_TAGS
from streams.model.record import LogLine

_GROUPS = re.compile(
    r"\[[^\]]{0,200}\]|\([^)]{0,200}\)|<(?:std(?:out|err)|\d{1,3}|[a-z]{2,8}\d?\.[a-z]{3,7})>|\{[\w=\",. -]{0,128}\}"
)
_STRUCTURE = re.compile(
    r"\.[ch]pp:\d{1,6}\]|\[rank ?\d{1,7}\]|\[\s{0,8}\d{1,10}\.\d{1,9}\]\s{0,4}$", re.IGNORECASE
)
_FIELD = re.compile(r"[\w.@-]{1,64}=(?:\"?[^\s\"]{0,128}\"?)$")
_MESSAGE_FIELD = re.compile(r"\b(?:msg|message|MESSAGE|log)\s?[=:]\s?\\?[\"']$")
_MESSAGE_OPENS = re.compile(r"\b(?:msg|message|MESSAGE|log)\s?=\s?\\?[\"'](?=.)")
_CLOCKWORK = re.compile(r"[\dTZ:.,+/|;-]{1,40}$")
_LEVEL = re.compile(
    r"(?:emerg|alert|crit(?:ical)?|err(?:or)?|warn(?:ing)?|notice|info?|inf|wrn|dbg|ftl|debug|fatal|minor|major|stdout|stderr)[:|]?$",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[A-Za-z0-9/][\w.#/+:-]{0,127}$")
_REMARK = re.compile(
    r"(?i)(?:\s[:;]-?[()]|\ssee (?:appendix|above|below|also)|"
    r"\slol|\s#\s(?:from|see|in|as)\s[^\n]{0,40}|\((?:resolved|fixed|closed|solved)\)|\s(?:again|anyone|help|thanks))[!.\s]{0,4}$"
)
"""Remarks people add to a line they quote."""
_AFTERTHOUGHT = re.compile(
    r"(?i)\b(?:yesterday|last (?:night|week|month)|what (?:is|does|was|do)|(?:is|was) what|means? that|(?:we|i) "
    r"(?:saw|see|had|have|got|think|hope|guess)|how (?:do|to|can|come)|should (?:we|i)|anyone|who did|in the (?:docs?|runbook|"
    r"wiki|ticket|dashboard))\b"
)
"""Phrases people use about a line they quote."""
_MARKUP = re.compile(r"\s{0,64}(?:[-+*>|;]|//|\d{1,3}[.)] |#(?!033\[)|\.\. |@@|E {3,8})")
"""The beginning of a list item, a diff line, a comment, a table or a quotation; no logger begins so."""
_CLOCK = re.compile(r"\d\d:\d\d:\d\d|\[\s{0,8}\d{1,10}\.\d{1,9}\]")
_PEOPLES_CLOCK = re.compile(r"(?:^|[\s\[(])\d{1,2}:\d\d(?: ?[AaPp]\.?[Mm]\.?)?[\])]?(?:,|:)?(?:\s|$)")
"""Chats show hours and minutes; loggers never leave out the seconds."""
_FULL_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z? [A-Z]{4,8} \[?$")
_EXCEPTION = re.compile(r"(?:Error|Exception|Traceback|Warning)\b|::test_")
_ANNOUNCERS = re.compile(
    r"\[?[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9} {1,8}\d{0,10} ?[\w/.-]{1,128}\.(?:cpp|hpp|cc|h|py|go):\d{1,6}\] ?|"
    # TensorFlow's and XLA's; within brackets it is PyTorch's, and a group as a whole.
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: )?(?<!\[)\b[EWF] [\w./+-]{1,200}\.(?:cc|cpp|h|cu):\d{1,6}\] ?|"
    r"(?:[\w./]{1,64}:\d{1,6} (?:\(\w{1,64}\) )?)?NCCL WARN "
    r"|(?:RuntimeError: )?NCCL communicator was aborted on rank \d{1,7}\.? {0,2}(?:Original reason for failure was: ?)?"
    r"|(?:Process group|NCCL) watchdog thread terminated with exception: ?|\bwhat\(\): {0,4}"
    r"|(?:torch\.distributed\.)?DistBackendError: ?|terminate called after throwing an instance of '[^']{0,80}'"
    r"|^\s{0,4}(?:DEBUG|INFO|WARN|WARNING|ERROR|DPANIC|PANIC|FATAL)\t(?:[\w./-]{1,96}(?::\d{1,6})?\t){0,3}"  # zap's columns
    r"|\b(?:swss|syncd|bgp|lldp|pmon|teamd)\d{0,2}#[a-z]\w{2,24}(?:\[\d{1,10}\])?: {1,3}(?::- {1,3})?(?:\w{1,64}: )?"
)
_GLUED_RANK = re.compile(r"[A-Za-z0-9)]\[(?=rank ?\d{1,7}\]:\s?\[[EWIF])")
"""A line of c10d behind one that another thread had not ended."""
_NAMED_FIRST = re.compile(
    r"\[(?!(?i:emerg|alert|crit|err|error|warn|warning|notice|info|debug)\])([a-z]{3,24})\] "
)
"""Chats are exported with who wrote a message in brackets. The kernel's lines have no such beginning."""
_OF_NCCL = re.compile(r"\s{0,4}(?P<process>[\w.-]{1,253}:\d{1,10}:)\d{1,10} \[\d{1,3}\] NCCL INFO ")
"""A line of NCCL, into which another thread of the process may have written."""
_OF_SLURM = re.compile(
    r"(?:slurm(?:ctld|d|stepd|dbd)(?:-[\w.-]{1,64})?: )?(?:\[[\w.:+-]{1,40}\] ){0,2}"
    r"(?:(?:error|fatal|info|warning|slurm(?:ctld|d|stepd)): )?"
    r"(?:_?[a-z]\w{1,48}(?:/\w{1,32})?: ){0,3}"
)
"""What Slurm's daemons write before a message: the time, also where syslog has written one, the step, the level, plugin and
function (`sched/backfill: _start_job: `)."""
_TICKET = re.compile(layers.TICKET)
_MAX_BEFORE = 1024
_SHEET = prose.sheet()
_PROSE = frozenset(_SHEET.words)
_QUOTES = "\"'`“”‘’«»"
_SPEAKERS = KERNEL_TAGS | frozenset(_SHEET.speakers)
_NVRM = re.compile(r"NVRM\s?:")
_SLURM_DAEMONS = frozenset({"slurmctld", "slurmd", "slurmstepd", "slurmdbd"})


def reported(
    line: LogLine,
    at: int,
    *,
    by_kernel: bool = False,
    listed: bool = False,
    carried: bool = False,
    after: int | None = None,
) -> bool:
    """True when what begins at `at` is the line's own message.

    Args:
        line: The line.
        at: Offset of the message in `line.text`.
        by_kernel: Only the kernel logs it; in another program's line it is a quotation.
        listed: The program itself prints it as a list item.
        carried: Programs pass it on: as the text of an exception, or after what they were doing.
        after: End of an earlier message of this line that was reported: two lines may be glued together.
    """
    if written_by_people(line.source):
        return False
    if not listed and line.source != "kernel" and _of_a_document(line.text[:at]):
        # A launcher's gutter looks like the mark of a list or the bar of a table.
        within = layers.without_marks(line.text[:at])
        if len(within) == at or _of_a_document(within):
            return False
    before = line.text[(line.start if after is None else after) : at]
    before = _MESSAGE_OPENS.sub(" ", before, count=1)
    if not by_kernel and _written_by_slurm(line.source or before) and _OF_SLURM.fullmatch(before):
        return True
    field = False
    if quoted(before):
        field = carriers.in_a_field(line.text[:at])
        if not field:
            return False
    if line.source == "kernel" or "orchagent" in line.source or after is not None:
        return True
    if _asks(line.text) or _TICKET.match(line.text) or _REMARK.search(line.text[-64:]):
        return False
    if by_kernel and _AFTERTHOUGHT.search(line.text[at : at + 512]):
        return False
    if by_kernel:
        before, plain = carriers.without_relay(before), before
        if line.source not in _MAY_RELAY_KERNEL and (
            before == plain or not carriers.is_relay(line.source.lower())
        ):
            return False
        if (named := _NAMED_FIRST.match(line.text)) is not None and named[1] not in _SPEAKERS:
            return False
        if before and (before[-1].isalnum() or before[-1] in ".)\ufffd" or ord(before[-1]) < 9):
            return True  # no blank before it: lines were glued together, which nobody who quotes does
        if (earlier := _NVRM.search(before)) is not None:
            before = before[: earlier.start()]
    # No header is longer, and announcements are searched at every offset.
    if field or len(before) > _MAX_BEFORE:
        return field
    if (glued := _GLUED_RANK.search(before)) is not None:
        before = before[glued.end() - 1 :]
    elif (nccl := _OF_NCCL.match(before)) is not None:
        before = before[max(before.rfind(nccl["process"]), 0) :]
    if _looks_like_a_header(_ANNOUNCERS.sub(" ", before)):
        return True
    if carriers.in_a_field(line.text[:at]):
        return True
    return carried and _passed_on(line.text[: line.start], before)


def _passed_on(header: str, before: str) -> bool:
    """True for an exception of a chain, and for what a program names as the reason at its own error level."""
    unchained = carriers.without_chain(before)
    if unchained != before and _looks_like_a_header(_ANNOUNCERS.sub(" ", unchained)):
        return True
    return carriers.tells_of_an_error(header + before)


def _asks(text: str) -> bool:
    """A person's question. The store of c10d logs one too."""
    text = text.rstrip()
    return text.endswith("?") and not text.endswith("shutdown or crash?")


_MAY_RELAY_KERNEL = KERNEL_TAGS | {
    "",
    "container",
    "journal",
    "journald",
    "syslog",
    "systemd-journald",
    "rsyslogd",
}


def written_by_people(source: str) -> bool:
    """True for a source that relays what people write: a chat, a ticket, a bot."""
    source = source.lower()
    return bool(source) and source != "kernel" and any(word in source for word in _SHEET.sources)


def _written_by_slurm(source: str) -> bool:
    """True for Slurm's daemons, by the program of the header or, on their standard error, the beginning of the message."""
    return source.rpartition("/")[2].partition(".")[0].partition(":")[0].lower() in _SLURM_DAEMONS


def quoted(before: str) -> bool:
    """True after an opening quote without its end, unless that opens the message field of a structured line."""
    tail = before.rstrip()
    if not tail or _MESSAGE_FIELD.search(tail):
        return False
    if tail[-1] in _QUOTES + ">$#/=":
        return not tail.endswith(("<stderr>", "<stdout>"))
    return before.count('"') % 2 == 1 or before.count("`") % 2 == 1


def _of_a_document(before: str) -> bool:
    """True for a list item, a comment, a diff line, a row of a table, a line of a chat."""
    if _MARKUP.match(before):
        return True
    # Cut well beyond the 64 characters that count: a cut at 64 could make a clock without seconds.
    # After a full time it is no clock but two process ids in brackets.
    clock = _PEOPLES_CLOCK.search(before[:96])
    if clock is not None and clock.start() < 64 and not _FULL_TIME.search(before[: clock.start()]):
        return True
    return before.count("|") > 1 and _CLOCK.search(before) is None


def _looks_like_a_header(before: str) -> bool:
    """Times, levels, brackets and a name or two: yes. Sentences: no."""
    if len(before) > 512:
        return False
    # A clock or source position right before the message allows for more names.
    most = 4 if _STRUCTURE.search(before) else 2
    if any(group.strip("[](){}<> ").lower() in _PROSE for group in _GROUPS.findall(before)):
        return False
    names = 0
    for token in _GROUPS.sub(" ", _MESSAGE_FIELD.sub(" ", before)).split():
        token = token.lstrip(":")  # the part before was in brackets: `[default5]:gpu-a07:12:34`
        if not token:
            continue
        if _CLOCKWORK.match(token) or _LEVEL.match(token) or _FIELD.match(token):
            continue
        word = token.rstrip(":,?!|").lower()
        if word in _PROSE or _EXCEPTION.search(token) or not _IDENTIFIER.match(token):
            return False
        # A bare word may begin a sentence; a name with digits or dashes is a host, a pod or a program.
        bare = word.isalpha() and word not in _SPEAKERS
        if bare and names == 0 and _CLOCK.search(before.split(token)[0]) is None:
            return False  # the beginning of a sentence
        names += 3 if bare else 1
    return names <= most
