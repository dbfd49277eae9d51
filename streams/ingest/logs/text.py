"""Plain text records: one line or many, with the headers of their loggers."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from streams.ingest import header, lldp
from streams.ingest.json_documents import CUT
from streams.ingest.logs import quotation
from streams.ingest.records import Header, Opened, Origin, RecordContext, is_own, merged
from streams.model.entity import PodRef
from streams.model.hostnames import folded
from streams.model.record import LogLine

_COLOURS = re.compile(
    r"(?:\x1b|#033|\\x1b|\\033|\\u001b)\[[\d;]{0,16}[mK]|(?<!\w)\[\d{1,2}(?:;\d{1,3}){0,4}m|"
    r"\x1b\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|\x1b\[\??[\d;]{0,16}[A-Za-z]"
)
"""A terminal's colours, also with the escape character rewritten or dropped by relays."""
_COLOURED = re.compile(r"\[[\d;]{0,18}[mK]|\x1b")
"""What all of them contain: searching this first is fifty times faster."""

_BAR = re.compile(
    r"(?:[A-Za-z][\w ()./-]{0,48}: {1,4})?(?<![\d.])(?:\d{1,3}%)?\|[^|\n]{0,120}\| {0,4}[\d.,kMGTP?]{1,16}/[\d.,kMGTP?]{1,16} "
    r"\[[^\]\n]{0,160}\] {0,4}(?=[A-Za-z_][\w.-]{0,64}[\s:(]|[\[(])"
)
"""tqdm's bar, which ends with no line feed, before what another thread or process wrote into the same line."""

_COOKIE = re.compile(r"(?:@cee: ?)?(?=\{\s{0,4}\")")
"""The start of a message that is a JSON object, also with the cookie of Lumberjack and rsyslog."""
_ALIKE = 5
"""Characters in which two times of one day begin alike: `Nov 2`, `2026-`, `[ 812`."""
_MAX_HEADER = 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_GUTTER = re.compile(r"(?P<host>[A-Za-z][\w-]{0,62}\d[\w.-]{0,62}): {1,2}(?=\S)")
"""What a launcher puts before the lines of a host (`pdsh`, `srun bash -c`), where that is named like the one that ships them."""
_NUMBERS = re.compile(r"\d{1,63}")
_DEVICE = re.compile(r" [A-Z_]{2,32}=\S")
"""A continuation line of /dev/kmsg: ` SUBSYSTEM=pci`."""
_ESCAPED = re.compile(r"\\x(?:0[0-9a-f]|1[0-9a-f]|7f|5c)")


def read(
    text: str,
    context: RecordContext,
    into: Opened,
    *,
    at: datetime | None = None,
    node: str | None = None,
    pod: PodRef | None = None,
    container: str | None = None,
    source: str = "",
) -> None:
    """Split `text` into lines and add each to `into`. The keywords, else the wrapper, give the origin of all of them.

    The host in the text wins, because a collector relays the lines of other hosts. In a pod's log it does so only for lines of
    the kernel, as a launcher prints them, and they are marked: pods print what they like, and their records are keyed by pod. A
    name like that of the shipping host before the message is the host that speaks.
    """
    origin = context.origin
    if at or node or pod or container or source:
        origin = merged(Origin(at, node, pod, container, source), origin)
    at, pod, source = origin.at, origin.pod, origin.source
    if ("RemoteDevice" in text or "==>" in text) and lldp.read_text(
        text, origin.node or context.node, at, into
    ):
        return
    quoting = of_kmsg = False
    lines = (text.replace("\x00", "") if "\x00" in text else text).splitlines()
    pending = lines[::-1]
    while pending:
        raw = pending.pop()
        if _COLOURED.search(raw) is not None:
            raw = _COLOURS.sub("", raw)
        if "%|" in raw or "it/s" in raw:
            raw = _BAR.sub("", raw, count=1)
        if not raw.strip() or (of_kmsg and _DEVICE.match(raw)):
            continue
        if into.full():
            return
        if len(raw) > context.max_line:
            into.cut += 1
            raw = raw[: context.max_line] + CUT
        found = header.read(raw, at or context.received_at)
        if (glued := _glued_at(raw, found)) > 0:
            pending.append(raw[glued:])
            raw = raw[:glued]
        of_kmsg = found.kernel and raw[found.start - 1] == ";"
        if of_kmsg and "\\x" in raw:
            raw = _ESCAPED.sub(" ", raw)
        relayed = pod is not None and _is_anothers(found, pod, origin.node)
        host = origin.node if pod and not relayed else found.host or origin.node or context.node
        if (
            pod is not None
            and host
            and (named := _GUTTER.match(raw, found.start))
            and _is_alike(named["host"], host)
        ):
            host, found = named["host"], found._replace(start=named.end())
        when = _when(found, at)
        quoting = quoting or (pod is None and not raw[: found.start].strip() and quotation.begins(raw))
        if (found.start or len(lines) > 1) and (cookie := _COOKIE.match(raw, found.start)) is not None:
            writer = quotation.SOURCE if quoting else source or found.tag
            sure = found.host is not None
            wrapper = Origin(when, host, pod, origin.container, writer, found.certain, sure, origin.level)
            into.nested.append((raw[cookie.end() :], context.within(wrapper)))
            continue
        by_kernel = found.kernel and source != quotation.SOURCE
        writer = "kernel" if by_kernel or source == "kernel" else source or found.tag
        line = LogLine(
            raw,
            at=when,
            node=host,
            pod=pod,
            container=origin.container,
            source=quotation.SOURCE if quoting and source != "kernel" else writer,
            start=found.start,
            relayed=relayed,
            level=origin.level,
        )
        if into.nested:
            into.nested.append((line, context))  # keeps the order: what precedes it is not opened yet
        else:
            into.observations.append(line)


def _is_alike(name: str, host: str) -> bool:
    """Whether two names differ in numbers only."""
    one, other = (_NUMBERS.sub("#", folded(n).partition(".")[0]) for n in (name, host))
    return one == other


def _is_anothers(found: Header, pod: PodRef, node: str | None) -> bool:
    """Whether a pod printed a line of the kernel of another host than its own, which a container calls by the pod's name."""
    if not found.kernel or found.host is None or pod.name.startswith(found.host):
        return False
    return folded(found.host).partition(".")[0] != folded(node or "").partition(".")[0]


def _glued_at(line: str, found: Header) -> int:
    """Where a second line begins whose writer did not wait for the line feed of the first, 0 when none does.

    Lines of one log begin alike, and nobody who quotes one leaves out the blank before it.
    """
    if found.start <= _ALIKE:
        return 0
    at = line.find(line[:_ALIKE], found.start + 1)
    if at < 0 or not (line[at - 1].isalnum() or line[at - 1] in ".)]}!"):
        return 0
    inner = header.read(line[at : at + _MAX_HEADER], found.at or _EPOCH)
    return at if inner.kernel or inner.at is not None else 0


def _when(found: Header, shipped: datetime | None) -> datetime | None:
    if found.at is None or shipped is None or found.certain:
        return found.at or shipped
    return found.at if is_own(found.at, shipped) else shipped
