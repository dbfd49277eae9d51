"""Slurm's daemons: `catalog/lines/slurm.yaml`. The controller speaks of many nodes in one line, as a host list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from streams.detect import slurm_ends
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.pattern_family import PatternFamily
from streams.detect.matching.quotation_filter import reported
from streams.detect.rule_state import RuleTable
from streams.model.clock import to_millis
from streams.model.entity import SLURM_JOB, JobRef, is_output_of_slurm
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, SignalState

MAX_NODES = 256
"""Nodes taken from one line; a controller that lost its network names all of them."""

_MAX_DOWN = 20_000
_STEP, _LOST = "step", "slurm_job_lost"
_MAX_LAUNCHED = 20_000
_DRAIN = "slurm_drain"
_GIVEN_BACK = re2_patterns.compile(r"\bstate set to (?:IDLE|RESUME|UNDRAIN)")
_OF_STEP = re2_patterns.compile(r"\[(?P<job>\d{1,10})\.(?:batch|extern|interactive|\d{1,8})\] done with")

_LAUNCH = re2_patterns.compile(
    r"^(?:slurmd: )?Launching batch job (?:JobId=)?(?P<job>\d{1,10}) for UID (?P<user>\d{1,10})\b"
)
"""For whom. A node logs it once for each job; that a step is launched it logs as often as it is asked to, and that is not read.

Source: slurm, src/slurmd/slurmd/req.c.
"""

_REFUSED = re2_patterns.compile(
    r"\[\[(?P<node>[A-Za-z][\w.-]{0,253})\]:\d{2,5}\] (?:auth_g_verify: )?"
    r"(?:MESSAGE_NODE_REGISTRATION_STATUS|MESSAGE_EPILOG_COMPLETE|REQUEST_COMPLETE_\w{1,40}|REQUEST_STEP_COMPLETE)"
    r" has authentication error"
)
"""Messages that only nodes send, and only to the controller. Source: slurm, src/common/slurm_protocol_api.c."""
_MUNGE = "munge"
_REFUSED_WITHIN_MS = 1_000

_PART = re2_patterns.compile(r"[^,\[\]]+(?:\[[\d,-]+\][^,\[\]]*)?")
_RANGED = re2_patterns.compile(r"([^\[]*)\[([\d,-]+)\](.*)")
_RANGE = re2_patterns.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Slurm(PatternFamily):
    """Reads the sheet; a line about several nodes gives one finding for each."""

    def __init__(self) -> None:
        super().__init__("slurm")
        self.hints = (
            *self.hints,
            rb"aunching batch job \S+ for UID ",
            rb"\]:\d+\] .* has authentication error",
        )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The messages of one line, each at the nodes it names, else at the node that wrote it."""
        if (launch := _LAUNCH.search(line.message)) is not None and reported(line, line.start):
            _note_launch(launch, line, stream)
        if (message := _REFUSED.search(line.message)) is not None and reported(line, line.start):
            yield from _of_sender(str(message["node"]), line, stream)
        for found in super().read(line, stream):
            attributes = dict(found.attributes)
            if attributes.get("subtype") == _MUNGE:
                now = to_millis(line.at or stream.received_at)
                _refusals(stream)[stream.source(line)] = (str(attributes.get("reason", "")), now)
            if found.kind == SignalKind.JOB_ALLOCATION:
                name = _job(attributes)
                if attributes.get("subtype") == _STEP:
                    # `[4242.0]` looks like the kernel's clock, and was read as a part of the header.
                    step = None if name is not None else _OF_STEP.search(line.text)
                    name = step["job"] if step is not None else name
                    if line.node is None:
                        continue
                    attributes["hosts"] = line.node
                    attributes |= _user(str(name), line, stream)
                if name is not None and not _is_printed_by_a_pod(line):
                    job = JobRef(SLURM_JOB, "", str(name))
                    yield found._replace(attributes=attributes, job=job, node=None)
                    yield from _of_small_job(str(name), attributes, line, stream)
                continue
            if attributes.get("subtype") == _LOST and (number := attributes.get("job_id")) is not None:
                name = str(attributes.get("array_task") or number)
                yield from slurm_ends.ended(name, attributes, line, stream)
            named = attributes.pop("nodes", None)
            if not isinstance(named, str):
                yield found
                continue
            for node in islice(hosts_in(named), MAX_NODES):
                one = found._replace(attributes=attributes, node=node)
                yield from _of_drain(one, line, stream)
                if found.kind != SignalKind.NODE_NOT_READY:
                    yield one
                elif _is_news(one, stream):
                    yield _of_a_pod(one) if line.pod is not None else one


def _job(attributes: Attributes) -> Attribute | None:
    """The name of the job that a line is about, taken out of its attributes.

    The parts of a heterogeneous job (`4242+1`) are one job; the tasks of an array (`4242_7`) are one each, also where `scontrol`
    shows either by a number of its own.
    """
    name, het = attributes.pop("job", None), attributes.pop("het_job", None)
    array, index = attributes.pop("array_job", None), attributes.pop("array_index", None)
    return het or (name if index is None else f"{array}_{index}")


def _of_small_job(job: str, attributes: Attributes, line: LogLine, stream: Stream) -> Iterator[Finding]:
    """What the start and the end of a job on one node say of that node."""
    said = attributes.get("subtype")
    if said == "running":
        slurm_ends.started(job, attributes, line, stream)
    elif said == "asked":
        slurm_ends.asked(job, stream)
    elif said == "ended":
        yield from slurm_ends.ended(job, attributes, line, stream)


def _note_launch(launch: re2_patterns.Match, line: LogLine, stream: Stream) -> None:
    """Remember for whom a node's daemon started a job first: the controller does not log that."""
    launched = stream.rule_state.table("slurm.launched", _MAX_LAUNCHED)
    key = (*stream.source(line), launch["job"])
    if key not in launched:
        launched[key] = (launch["user"], to_millis(line.at or stream.received_at))


def _refusals(stream: Stream) -> RuleTable:
    return stream.rule_state.table("slurm.refused", _MAX_DOWN)


def _of_sender(node: str, line: LogLine, stream: Stream) -> Iterator[Finding]:
    """What the controller refuses of a node, where munge said right before that it is for the time."""
    reason, at = _refusals(stream).get(stream.source(line), ("", 0))
    now = to_millis(line.at or stream.received_at)
    if str(reason).startswith(("Rewound", "Expired")) and abs(now - int(at or 0)) <= _REFUSED_WITHIN_MS:
        said: Attributes = {"subtype": _MUNGE, "reason": str(reason)}
        yield Finding(SignalKind.NODE_CONDITION, Severity.WARNING, said, node=node, text=line.text)


def _user(job: str, line: LogLine, stream: Stream) -> Attributes:
    """Whose job a node's daemon is done with, where that took no longer than what is ended early."""
    row = stream.rule_state.table("slurm.launched", _MAX_LAUNCHED).pop((*stream.source(line), job), None)
    if row is None or not isinstance(row[1], int):
        return {}
    ran = to_millis(line.at or stream.received_at) - row[1]
    return {"user": str(row[0])} if ran <= slurm_ends.EARLY_S * 1000 else {}


def _is_printed_by_a_pod(line: LogLine) -> bool:
    """Whether a step's own words (`*** STEP 4242.0 ON …`) are in the log of a pod: no job there is Slurm's alone."""
    return line.pod is not None and not is_output_of_slurm(line.pod.key) and " *** " in line.text


def _is_news(found: Finding, stream: Stream) -> bool:
    """Whether a node was set down, or is back after it: when the controller starts, every node begins to respond.

    Where lines of one host are spread over several partitions, another one may have seen it go, so every return counts.
    """
    down, key = stream.rule_state.table("slurm.down", _MAX_DOWN), (stream.cluster, found.node)
    if found.state is SignalState.FIRING:
        down[key] = (1,)
        return True
    return down.pop(key, None) is not None or stream.misses_lines


def _of_drain(found: Finding, line: LogLine, stream: Stream) -> Iterator[Finding]:
    """The end of a drain, where somebody gives a drained node back: such a line says the same of a node that was down."""
    drained, key = stream.rule_state.table("slurm.drained", _MAX_DOWN), (stream.cluster, found.node)
    if found.kind == SignalKind.NODE_CONDITION and found.attributes.get("subtype") == _DRAIN:
        drained[key] = (1,)
        return
    if found.kind != SignalKind.NODE_NOT_READY or found.state is not SignalState.CLEARED:
        return
    if _GIVEN_BACK.search(line.text) and (drained.pop(key, None) is not None or stream.misses_lines):
        yield found._replace(kind=SignalKind.NODE_CONDITION, attributes={"subtype": _DRAIN})


def _of_a_pod(found: Finding) -> Finding:
    """What a controller that runs in a pod says: its nodes may be pods too, of which the API server knows more."""
    return found._replace(
        kind=SignalKind.NODE_CONDITION, attributes={**found.attributes, "subtype": "slurm_down"}
    )


def hosts_in(hostlist: str) -> Iterator[str]:
    """The hosts of Slurm's notation: `gpu-[017-019,021],login1`. Zeros before a number are part of the name."""
    for part in _PART.findall(hostlist):
        ranged = _RANGED.fullmatch(part)
        if ranged is None:
            yield part
            continue
        head, numbers, tail = ranged.groups()
        for first, last in (found.groups() for found in _RANGE.finditer(numbers)):
            end = min(int(last or first), int(first) + MAX_NODES)
            for number in range(int(first), end + 1):
                yield f"{head}{number:0{len(first)}d}{tail}"
