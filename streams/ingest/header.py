"""The header before a message: priority, time, host and program, in every order that loggers use.

One reader for syslog (RFC 3164 and 5424), SONiC's variant with a severity word, /dev/kmsg, dmesg with and without `-T`,
Talos and the container runtime's prefix, because shippers mix and nest them (`Nov 21 … host kernel: [ 12.3] [ T7] …`).
Every pattern is anchored and bounded, so reading is linear in the header's length.
"""

from __future__ import annotations

import re
from datetime import datetime

from streams.ingest import layers, stamps, switch_header, timestamps
from streams.ingest.records import Header

_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_LEVEL = "EMERG|ALERT|CRIT|CRITICAL|ERR|ERROR|WARN|WARNING|NOTICE|INFO|DEBUG|FATAL|TRACE"

_PRIORITY = re.compile(r"(?:\d{1,6} (?=<\d{1,3}>1 ))?<\d{1,3}>(?=(?P<v>1 )?)")
_ELEMENT = r"\[[^\s\]=\"]{1,64}(?: {1,2}[^\s\]=\"]{1,64}=\"(?:[^\"\\]|\\.){0,1024}\"){0,32} ?\]"
"""Structured data; a value may hold brackets, and escaped quotes."""

_RFC5424 = re.compile(
    r"1 (?P<ts>\S{1,48}) (?P<host>\S{1,255}) (?P<tag>\S{1,48}) (?P<pid>\S{1,128}) \S{1,32} "
    rf"(?:-|(?:{_ELEMENT}|\[[^\]]{{0,1024}}\]){{1,16}})(?: |$)\ufeff?"
)
_KMSG = re.compile(
    r"(?:(?P<host>(?=[\w.-]{0,255}[A-Za-z])[\w.-]{1,255}):? )?\d{1,5},\d{1,20},\d{1,20},[^;\n]{0,128};"
)
_TALOS = re.compile(
    r"(?:(?P<host>[\w.-]{1,255}): )?(?P<facility>kern|user|daemon): {1,8}\w{3,9}: \[(?P<ts>[0-9T:.Z+-]{10,40})\]: ?"
)
_DECODED = re.compile(r"(?P<facility>kern|user|daemon|syslog) {0,8}: ?(?P<level>[a-z]{3,7}) {0,4}: ")
_EPOCH = re.compile(r"(?P<ts>1\d{9}\.\d{3,9}) ")
_FILE = re.compile(
    r"(?:/[\w./-]{1,200}|[\w-]{1,64}\.log[\w.-]{0,32}|(?:messages|syslog|dmesg)[\d.-]{0,16}):(?:\d{1,9}:)?"
    rf"(?=(?:{_MONTH}) {{1,2}}\d|\d{{4}}-\d\d-|<\d|\[ {{0,8}}\d)"
)
"""The name of the file, printed when several are read at once."""
_ISO = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?[\[(]?"
    r"(?P<ts>\d{4}[-/]\d\d[-/]\d\d(?:[T ]|(?P<own>_))\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?)"
    rf"(?: (?:{stamps.ZONES})(?=[\])\s]))?[\])]?(?(own):?)[ \t]{{1,4}}"
)
_BSD = re.compile(
    rf"\[?(?:(?P<y1>\d{{4}}) )?(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? {{1,2}})?(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) "
    r"(?:(?P<y2>\d{4}) )?(?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?: (?:UTC|GMT))?(?: (?P<y3>20\d\d)(?=[\] :]))?\]?[: ]{1,4}"
)
_CRI = re.compile(r"(?:stdout|stderr) [FP] ")
_MONOTONIC = re.compile(
    r"\[\s{0,8}(?:\d{1,10}\.\d{1,9}(?: {1,4}<\s{0,8}\d{1,10}\.\d{1,9}>)?|\+\d{1,10}\.\d{1,9})\]\s{0,4}"
)
"""The kernel's clock, with the time since the line before (`dmesg -d`), or that alone (`dmesg -e`)."""
_CUT_CLOCK = re.compile(r"(?:\d{0,9}\.)?\d{4,6}\] {1,4}(?=[A-Za-z])")
"""The kernel's clock of a line that lost its beginning."""
_MINUTE = re.compile(
    rf"\[(?:{_MONTH})\d\d \d\d:\d\d\] {{1,4}}"
    r"(?=NVRM: |[\w-]{2,24} [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d: )"
)
"""`dmesg -e` prints this when a new minute begins. Chats do too, so a device or driver must follow."""
_CALLER = re.compile(r"\[\s{0,8}[TC]\d{1,8}\]\s{0,4}")
_IPV6 = r"(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}"
_HOST_AND_TAG = re.compile(
    rf"(?:(?:{_LEVEL}) )?(?:(?!(?:{_LEVEL}|NVRM)\b)(?P<host>[\w.-]{{1,255}}|{_IPV6}) )?"
    rf"(?:(?:{_LEVEL}|<?(?:kern|user|daemon|auth|syslog|local\d)\.[a-z]{{3,8}}>?) )?"
    r"(?P<tag>[\w./#@+-]{1,64})(?:\((?:[^)\n]{0,64})\))?(?:\[(?P<pid>[\w.-]{1,16})\])?:(?:\s|$|(?=\[)|(?<= kernel:))"
)
"""A relay without a blank between tag and message in its template writes `kernel:NVRM: …`."""
_HOST_THEN_MESSAGE = re.compile(
    rf"(?!{layers.TICKET})"
    r"(?P<host>(?!(?:kernel|kern|kmsg|dmesg)\b)[\w.-]{1,255}):? (?=\[\s{0,8}\d{1,10}\.\d{1,9}\]|NVRM: )"
)
_HOST_AND_LEVEL = re.compile(
    rf"(?P<host>(?=[\w.-]{{0,255}}[\d-])[\w.-]{{1,255}}) (?:{_LEVEL}) (?P<tag>[\w./#@+-]{{1,64}})(?:\[\d{{1,10}}\])?: ?"
)
_HOST_ALONE = re.compile(r"(?P<host>(?=[\w.-]{0,255}[\d-])[A-Za-z][\w.-]{0,254}) (?=\S)")
_BRACKETED_HOST = re.compile(
    rf"(?!{layers.TICKET})\[(?P<host>[A-Za-z][\w.-]{{1,254}})\] (?=\[\s{{0,8}}\d{{1,10}}\.\d{{1,9}}\]|NVRM: )"
)
_DASHED_HOST = re.compile(
    r"- (?P<host>(?=[\w.-]{0,255}[\d-])[A-Za-z][\w.-]{0,254}) - (?=[A-Za-z_][\w./-]{0,63}(?:\[\d{1,10}\])?: )"
)
"""`%(asctime)s - HOST - PROGRAM: `, a relay's template."""
_KERNEL_ONLY = re.compile(
    r"(?:(?P<host>(?!(?:kern|user|daemon|local\d|syslog)\.)[A-Za-z0-9][\w.-]{0,254}) )?"
    r"(?P<tag>kernel)(?:\[\d{1,10}\])?: ?"
)

_HOST_AND_PROCESS = re.compile(
    r"(?P<host>(?=[\w.-]{0,255}\d)[A-Za-z][\w.-]{0,254}) (?P<tag>[A-Za-z][\w./#@+-]{1,63})\[(?P<pid>\d{1,10})\]: "
)
"""Syslog whose time a viewer left out: the number of a process after a program's name is in no sentence."""

_STEP_DAEMON = re.compile(
    r"(?:\d{1,7}: {1,4})?slurmstepd-(?P<host>[A-Za-z][\w.-]{0,252}): (?=error: |fatal: )"
)
"""How Slurm's step daemon begins a message of its host on a job's terminal. Rows begin with it: it is no part of the header."""

_LOGGER = re.compile(r"- (?P<tag>[A-Za-z_][\w.:-]{0,127}) - (?:ERROR|CRITICAL|FATAL|WARN|WARNING) - (?=\S)")
"""`%(asctime)s - %(name)s - %(levelname)s - %(message)s`, the log format of most Python programs. At lower levels they may log
anything they read, so only warnings and errors count."""

_SONIC = re.compile(rf"(?:(?:{_LEVEL}) )?(?P<tag>\w{{1,32}}#\w{{1,32}})(?:\[\d{{1,10}}\])?: ?")
"""Only SONiC writes `container#program`."""

_PLAIN = re.compile(
    rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) (?P<clock>\d\d:\d\d:\d\d) (?P<host>[a-z][\w.-]{{0,254}}) "
    r"(?P<tag>[a-z][\w./#@+-]{0,63})(?:\[\d{1,10}\])?: "
)
"""Nearly all syslog lines. Other forms are ambiguous, so the order in `_read_any` decides."""

_MAX_HEADER = 512
"""Characters searched for a header within a header."""

_SUBSYSTEM = re.compile(
    r"(?i:mce|rcu|nfs[d4]?|watchdog|info|bug|warning|lustre(?:error)?|lnet(?:error)?|blk_update_request|print_req_error|"
    r"end_request|oom-kill|edac|jbd2|btrfs|libceph|ceph|cifs|beegfs|wekafs(?:io)?|clocksource|pcieport|pciehp|thermal|oops|"
    r"wekafsio|internal|cpu\d{1,5}|mc\d{1,3}|nvme\d{1,4}(?:n\d{1,4})?|md/raid\d{0,2}|thermal_zone\d{1,3})"
)
"""Prefixes of kernel messages, before a colon, where a relay dropped the tag `kernel`."""
_SUBSYSTEM_FIRST = re.compile(
    r"(?:nvme nvme\d|EDAC (?:\w{1,16} )?MC\d|NMI watchdog:|thermal thermal_zone\d|Internal error: |"
    r"Memory failure: |(?:divide error|invalid opcode|double fault|stack segment): \d{4} |[\w/.:-]{1,32}: page alloc)"
)

KERNEL_TAGS = frozenset({"kernel", "kern", "kmsg", "dmesg", "klogd", "vmunix"})


_OWN_CLOCK = re.compile(
    rf"(?:{_MONTH}) [ \d]\d \d\d:\d\d:\d\d \d{{6}} (?=\[[0-9A-F]{{4,16}}\] 0x[0-9A-Fa-f]{{1,2}} -> )"
)
"""A daemon's own time behind its tag, as opensm writes it to syslog as well."""


def read(text: str, reference: datetime) -> Header:
    """The header of one line. `reference` is when it was received; it completes times without a year."""
    if (match := _PLAIN.match(text)) is not None:
        at = timestamps.yearless(match["month"], match["day"], match["clock"], reference)
        tag = match["tag"]
        return _after_clock(text, Header(match.end(), at, match["host"], tag, tag in KERNEL_TAGS))
    return _read_any(text, reference)


def _read_any(text: str, reference: datetime) -> Header:
    position = len(text) - len(text.lstrip(" \t"))
    if (match := _FILE.match(text, position)) is not None:
        position = match.end()
    elif (match := _CUT_CLOCK.match(text, position)) is not None:
        return _after_clock(text, Header(match.end(), kernel=True))
    if (match := _PRIORITY.match(text, position)) is not None:
        position = match.end()
        if (full := _RFC5424.match(text, position)) is not None:
            return _of_rfc5424(text, full, reference)
    elif text.startswith("1 2", position) and (full := _RFC5424.match(text, position)) is not None:
        return _of_rfc5424(text, full, reference)
    elif (outer := layers.read(text, position)) is not None:
        return _within(text, outer, reference)
    if text.find("%", position, position + switch_header.REACH) >= 0:
        of_switch = switch_header.read(text, position, reference)
        if of_switch is not None:
            return of_switch
    if (match := _DECODED.match(text, position)) is not None:
        rest = read(text[match.end() : match.end() + _MAX_HEADER], reference)
        kernel = rest.kernel or match["facility"] == "kern"
        return rest._replace(start=match.end() + rest.start, kernel=kernel)
    if (match := _KMSG.match(text, position)) is not None:
        return _after_clock(text, Header(match.end(), host=match["host"], kernel=True))
    if (match := _TALOS.match(text, position)) is not None:
        at, facility = timestamps.iso(match["ts"], reference=reference), match["facility"]
        return Header(match.end(), at, match["host"], facility, facility == "kern", certain=True)
    if (match := _EPOCH.match(text, position)) is not None:
        at = timestamps.epoch(match["ts"])
        return _origin(text, Header(match.end(), at, certain=at is not None), timed=True)
    if (match := _ISO.match(text, position)) is not None:
        stamp = match["ts"]
        certain = stamp.endswith("Z") or "+" in stamp[19:] or "-" in stamp[19:]
        at = timestamps.iso(
            stamp.replace(" +", "+").replace(" -", "-").replace("/", "-").replace("_", "T"),
            reference=reference,
        )
        return _origin(text, Header(match.end(), at, certain=certain), timed=True)
    if (match := _BSD.match(text, position)) is not None:
        year = match["y1"] or match["y2"] or match["y3"]
        at = timestamps.yearless(match["month"], match["day"], match["clock"], reference, year=year)
        syslog = not match[0].startswith("[")
        # dmesg -T writes the year after the clock, other programs with a time in brackets before it.
        kernel = not syslog and match["y2"] is None
        # A daemon that ends its time with a year and a colon writes a file of its own, and no host.
        own = match["y3"] is not None and text[match.end("y3")] == ":"
        return _origin(text, Header(match.end(), at, kernel=kernel), timed=True, syslog=syslog and not own)
    if (stamp := stamps.read(text, position, reference)) is not None:
        found = Header(stamp.end, stamp.at, kernel=stamp.kernel, certain=stamp.certain)
        return _origin(text, found, timed=True, syslog=text[position] not in "[(<")
    return _origin(text, Header(position), timed=False)


def _within(text: str, outer: layers.Layers, reference: datetime) -> Header:
    """The header behind the layers of launchers and viewers. Its own host comes before theirs."""
    inner = read(text[outer.end : outer.end + _MAX_HEADER], reference)
    host, kernel = inner.host or outer.host, inner.kernel or outer.kernel
    return inner._replace(start=outer.end + inner.start, host=host, kernel=kernel)


def _of_rfc5424(text: str, match: re.Match[str], reference: datetime) -> Header:
    host = None if match["host"] == "-" else match["host"]
    tag = "" if match["tag"] == "-" else match["tag"]
    at = timestamps.iso(match["ts"], reference=reference)
    return _after_clock(text, Header(match.end(), at, host, tag, tag in KERNEL_TAGS, certain=at is not None))


def _origin(text: str, header: Header, *, timed: bool, syslog: bool = False) -> Header:
    """Host and program after the time. Without a time only what cannot be prose counts."""
    position = header.start
    if timed and (runtime := _CRI.match(text, position)) is not None:
        inner = read(text[runtime.end() : runtime.end() + _MAX_HEADER], header.at) if header.at else Header()
        return inner._replace(start=runtime.end() + inner.start, at=header.at, certain=header.certain)
    if timed and (dashed := _DASHED_HOST.match(text, position)) is not None:
        rest = _origin(text, header._replace(start=dashed.end()), timed=True)
        return rest._replace(host=rest.host or dashed["host"])
    if (fields := layers.read_fields(text, position)) is not None:
        at = timestamps.any_form(fields.time) if fields.time else None
        certain = at is not None and timestamps.has_zone(fields.time or "")
        tag = "kernel" if fields.kernel else header.tag
        own = header._replace(at=at, certain=certain) if at is not None else header
        return own._replace(
            start=fields.end, host=fields.host, tag=tag, kernel=fields.kernel or header.kernel
        )
    if timed and text[position : position + 1] == "{" and (outer := layers.read(text, position)) is not None:
        inner = _within(text, outer, header.at) if header.at else Header(outer.end, host=outer.host)
        return inner._replace(at=inner.at or header.at, certain=header.certain)
    if timed and (logger := _LOGGER.match(text, position)) is not None:
        return Header(logger.end(), header.at, None, logger["tag"], certain=header.certain)
    if _SUBSYSTEM_FIRST.match(text, position) is not None:
        return _after_clock(text, header)
    if not timed and (step := _STEP_DAEMON.match(text, position)) is not None:
        return header._replace(host=step["host"])
    match = _BRACKETED_HOST.match(text, position) or _HOST_THEN_MESSAGE.match(text, position)
    if match is not None and not timed and not any(c.isdigit() for c in match["host"]):
        match = None  # without a time or a digit it may be a word of a sentence
    if match is not None and text[match.end("host")] == ":" and match["host"].isalpha():
        match = None  # a person or a program, never a host alone
    match = (
        match
        or _HOST_AND_LEVEL.match(text, position)
        or (_HOST_AND_TAG if timed and not header.kernel else _KERNEL_ONLY).match(text, position)
        or _SONIC.match(text, position)
        or (_HOST_AND_PROCESS.match(text, position) if not timed else None)
        or (_HOST_ALONE.match(text, position) if syslog else None)
    )
    if match is None or (found := match.groupdict()).get("tag") == "NVRM":
        return _after_clock(text, header)
    tag = found.get("tag") or ""
    begins = match.start("tag") if tag else -1
    if tag and (_SUBSYSTEM.fullmatch(tag) or _SUBSYSTEM_FIRST.match(text, begins)):
        return _after_clock(text, header._replace(start=begins, host=found.get("host")))
    kernel = header.kernel or tag in KERNEL_TAGS
    return _after_clock(text, Header(match.end(), header.at, found.get("host"), tag, kernel, header.certain))


def _after_clock(text: str, header: Header) -> Header:
    """Skip the kernel's own clock and caller, which prove that the kernel wrote the line."""
    position, kernel = header.start, header.kernel
    if header.tag and (match := _OWN_CLOCK.match(text, position)) is not None:
        return header._replace(start=match.end())
    if kernel and (match := _PRIORITY.match(text, position)) is not None:
        position = match.end()
    for pattern in (_MINUTE, _MONOTONIC, _CALLER):
        if (match := pattern.match(text, position)) is not None:
            position, kernel = match.end(), True
    host, tag = header.host, header.tag
    if host is None and not tag and kernel and (match := _KERNEL_ONLY.match(text, position)) is not None:
        position, host, tag = match.end(), match["host"], match["tag"]
    return Header(position, header.at, host, tag, kernel, header.certain)
