"""What launchers, terminals and log viewers put before a line that somebody else wrote, one layer after another.

mpirun's `[1,3]<stderr>:`, Ray's `(RayTrainWorker pid=…, ip=…)`, `docker compose`'s `name-1  | `, `kubectl logs --prefix`,
stern's columns, srun's `3: `, a shell's `gpu-a07: `, logcli's labels. Some of them no person writes; the others are names and
numbers that may mean anything, so they count only where a whole header with a time follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_LEVEL = "EMERG|ALERT|CRIT|CRITICAL|ERR|ERROR|WARN|WARNING|NOTICE|INFO|DEBUG|FATAL|TRACE"

TICKET = (
    r"\[?(?!(?:GPU|NODE|HOST|DGX|HGX|SRV|SERVER|WORKER|COMPUTE|LEAF|SPINE|LEAKAGE|PSU|FAN|PDU|CDU|TRAY)-?\d)"
    r"(?:[A-Z][A-Z0-9]{1,9}-\d{1,7}|[A-Z]{2,8}\d{5,10})\]?:?(?:\s|$)"
)
"""`OPS-812`, `INC0012345`: the number of a ticket, which people put before what they quote."""

_STAMP = (
    rf"(?:<\d{{1,3}}>)?\[?(?:(?:{_DAYS}),? )?(?:\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:|(?:\d{{4}} )?(?:{_MONTHS}) {{1,2}}\d{{1,2}} "
    r"(?:\d{4} )?\d\d:\d\d:\d\d)|(?:<\d{1,3}>)?\[ {0,8}\d{1,10}\.\d{1,9}\]|<\d{1,3}>1 \d{4}-"
)
"""The beginning of a header with a time."""

_MARKED = re.compile(
    # mpirun --tag-output, also of Open MPI 5, which names the job's launcher
    r"\[(?:[\w.@-]{1,128}[@,])?\d{1,7},\d{1,7}\](?:\[(?P<tagged>[\w.-]{1,253}):\d{1,10}\])?<std(?:out|err|diag)>: {0,2}|"
    r"\((?:[\w.:<>-]{1,64}(?:\([^()\n]{0,64}\))? )?pid=\d{1,10}(?:, ip=(?P<ip>[\da-fA-F.:]{3,45}))?\) {1,2}"
    r"(?:\[repeated \d{1,9}x across cluster\] )?|"
    rf"(?P<gutter>(?!{TICKET})[\w./-]{{1,64}} {{0,8}}\| )|"
    r"\[pod/[\w.-]{1,253}/[\w.-]{1,63}\] |"
    r"(?:[+-] )?[a-z0-9][\w.-]{1,252} › [\w.-]{1,63} |"
    # pdsh and ansible, before a host's output
    r"(?P<host>[A-Za-z0-9][\w.-]{1,252}) \| (?:CHANGED|SUCCESS|FAILED) \| rc=\d{1,3} >> |"
    rf"\| (?=\[rank ?\d{{1,7}}\]|\[\d{{1,7}},\d{{1,7}}\]<std)|"
    r"(?P<labels>\{[A-Za-z_]\w{0,63}=\"[^\"\n]{0,128}\"(?:, ?[A-Za-z_]\w{0,63}=\"[^\"\n]{0,128}\"){0,31}\}) {1,4}|"
    # klog's own header, where what follows is the kernel's
    r"[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,8}\d{1,10} [\w/.-]{1,128}:\d{1,6}\] "
    r"(?=kernel: |\[ {0,8}\d{1,10}\.\d{1,9}\])"
)
"""Layers that nobody but a program writes."""

_NAMES = re.compile(
    rf"(?!{TICKET})(?:(?:\[[\w./:@-]{{1,128}}\]:?|(?=[\w./-]{{0,127}}[\d-])[A-Za-z0-9][\w./-]{{0,127}}(?:\[[\w.-]{{1,63}}\])?:?"
    rf"(?: {{0,8}}\|)?|\d{{1,7}}:|(?:{_LEVEL}):?)[ \t]{{1,4}}){{1,4}}(?={_STAMP})|"
    rf"\d{{1,9}}:(?=(?:{_MONTHS}) {{1,2}}\d|\d{{4}}-\d\d-\d\dT)"
)
"""Names and numbers before a header that has a time: a pod and its container, a host, a rank, a line number of `grep -n`."""

_LABEL = re.compile(r"(?:^\{|, ?)(?P<name>[A-Za-z_]\w{0,63})=\"(?P<value>[^\"\n]{0,128})\"")
_HOST_LABELS = ("node_name", "nodename", "node", "hostname", "host", "instance")
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252})(?::\d{1,5})?")
_WRITERS = ("unit", "job", "transport", "facility", "program", "ident", "app", "appname", "source")
_KERNELS = frozenset({"kernel", "kmsg", "dmesg", "kern"})

_BEGINS = re.compile(r"[A-Za-z0-9\[({<|+-]")
_MAX_LAYERS = 8
_NO_LAYER = ("NVRM", "[ ", "nvidia-")
"""How most of the kernel's lines begin that have no header."""


_HOST = re.compile(r"\[?(?P<host>(?=[\w.-]{0,255}\d)[A-Za-z0-9](?:[\w.-]{0,253}[A-Za-z0-9])?)\]?:? {1,4}")
_RANK = re.compile(r"\d{1,9}:? {1,4}")

_PAIR = r"(?!(?:msg|message|MESSAGE|log)=)[A-Za-z_@][\w.@/-]{0,63}=(?:\"(?:[^\"\\\n]|\\.){0,256}\"|[^\s\"=]{0,256})[ \t]{1,4}"
_PAIRS = re.compile(rf"(?:{_PAIR}){{1,24}}")
_VALUE = re.compile(r"(?P<name>[A-Za-z_@][\w.@/-]{0,63})=\"?(?P<value>[^\s\"]{0,253})")
_MESSAGE = re.compile(r"(?:msg|message|MESSAGE|log)=(?P<quote>\\?[\"'])?")
_CLOSED = re.compile(r"(?<!\\)\"(?= |$)")
_HOST_AFTER = re.compile(rf" (?:{'|'.join(_HOST_LABELS)})=\"?(?P<host>[A-Za-z0-9][\w.-]{{0,252}})(?:\"|\s|$)")
_TIMES = ("time", "ts", "t", "timestamp", "@timestamp")
_REACH = 4096
_KEY = 64


class Layers(NamedTuple):
    """The layers before a line: where they end, the host and time they name, and whether they say that the kernel wrote it."""

    end: int
    host: str | None = None
    kernel: bool = False
    time: str | None = None


def read(text: str, position: int) -> Layers | None:
    """The layers from `position` on; None where there is none."""
    if text.startswith(_NO_LAYER, position):
        return None
    found = None
    for match in _marks(text, position):
        host, kernel = _named_by(match)
        position = match.end()
        found = Layers(
            position, host or (found.host if found else None), kernel or bool(found and found.kernel)
        )
    names = _NAMES.match(text, position)
    if names is None:
        return found
    alone = _HOST.fullmatch(names[0])
    host = alone["host"] if alone is not None and _RANK.fullmatch(names[0]) is None else None
    return found._replace(end=names.end()) if found is not None else Layers(names.end(), host)


def read_fields(text: str, position: int) -> Layers | None:
    """`name=value` pairs up to the message (logfmt), or those that say that the kernel wrote what follows; else None."""
    if text.find("=", position, position + _KEY) < 0 or (pairs := _PAIRS.match(text, position)) is None:
        return None
    values: dict[str, str] = {}
    for pair in _VALUE.finditer(pairs[0]):
        values.setdefault(pair["name"], pair["value"])
    kernel = any(values.get(name) in _KERNELS for name in _WRITERS)
    message = _MESSAGE.match(text, pairs.end())
    if message is None and not kernel:
        return None
    end = message.end() if message is not None else pairs.end()
    host = _host_in(values)
    if host is None and message is not None and message["quote"] == '"':
        closed = _CLOSED.search(text, end, end + _REACH)
        after = _HOST_AFTER.search(text, closed.end(), closed.end() + _REACH) if closed is not None else None
        host = after["host"] if after is not None else None
    return Layers(end, host, kernel, next((values[name] for name in _TIMES if values.get(name)), None))


def without_marks(text: str) -> str:
    """The text without the layers at its beginning that only a program writes."""
    end = 0
    for match in _marks(text, 0):
        end = match.end()
    return text[end:]


def _marks(text: str, position: int) -> Iterator[re.Match[str]]:
    """The layers that only a program writes, from `position` on. A second column with a bar makes it a table."""
    gutter = False
    for _ in range(_MAX_LAYERS):
        if _BEGINS.match(text, position) is None or (match := _MARKED.match(text, position)) is None:
            return
        if match["gutter"] is not None:
            if gutter:
                return
            gutter = True
        yield match
        position = match.end()


def _named_by(match: re.Match[str]) -> tuple[str | None, bool]:
    """The host that a layer names, and True when its labels are those of the kernel's log."""
    if match["labels"] is None:
        return match["host"] or match["tagged"], False
    labels = {label["name"]: label["value"] for label in _LABEL.finditer(match["labels"])}
    return _host_in(labels), any(labels.get(name) in _KERNELS for name in _WRITERS)


def _host_in(values: Mapping[str, str]) -> str | None:
    address = _ADDRESS.fullmatch(next((values[name] for name in _HOST_LABELS if values.get(name)), ""))
    return address["host"] if address is not None else None
