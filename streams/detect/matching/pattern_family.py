"""A family that is a file of log patterns; most are nothing else.

Some fields name the place: `pci`, `uuid`, `index` and `mig` a GPU when the kind is `gpu.*`, `node` another node than the one that
wrote the line, `device` a NIC when the kind is `fabric.*`, `port` a port of the switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from streams.detect import managers
from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns, related_lines
from streams.detect.matching.log_patterns import Hit, PatternTable
from streams.detect.matching.quotation_filter import reported
from streams.detect.rule_state import Key
from streams.model.clock import from_millis, to_millis
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine
from streams.model.signal import Attribute, SignalState

_MAX_FIRING = 50_000
_MAX_ENDED = 10_000

_NAMED = re2_patterns.compile(r"\b([A-Za-z][\w-]{1,40})(?:\[\d{1,10}\])?: {1,4}$")


class PatternFamily:
    """Reads lines by the rows of `catalog/lines/SHEET.yaml`."""

    def __init__(self, sheet: str) -> None:
        self.patterns = PatternTable.load(sheet)
        self.hints = self.patterns.hints
        self.unhinted = self.patterns.unhinted
        self._by_kernel = self.patterns.sheet.written_by == "kernel"
        self._sheet = sheet
        self._ending = any(row.ends for row in self.patterns.sheet.rows)
        self._on_switch = self.patterns.sheet.written_by == "switch"
        self._by_manager = self.patterns.sheet.written_by == "manager"

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The messages of one line, in order."""
        after: int | None = None
        # A kernel message that begins with a device (`bond0: …`) looks as if a program of that name wrote it.
        begin = 0 if self._by_kernel and line.source == "kernel" else line.start
        for hit in self.patterns.find(line.text, begin):
            start, program = _program(line, hit) if hit.row.programs else (hit.start, "")
            if program and program not in hit.row.programs:
                continue
            if not reported(line, start, by_kernel=self._by_kernel, listed=hit.row.listed, after=after):
                continue
            after = hit.end
            found = self.finding(hit, line, stream)
            if found is None:
                continue
            ended_at = None
            if self._ending:
                keys = _keys(found, hit, line, stream)
                if found.state is SignalState.FIRING:
                    ended_at = self._note_firing(keys, line, stream)
                elif self._was_not_firing(keys, hit, line, stream):
                    continue
            if not related_lines.is_repeat(hit.row, found, line, stream):
                yield found
                if ended_at is not None:
                    yield found._replace(state=SignalState.CLEARED, at=ended_at)

    def _note_firing(self, keys: Sequence[Key], line: LogLine, stream: Stream) -> datetime | None:
        """Remember what is firing. Returns when it ended, if a line that overtook this one has told so."""
        table = stream.rule_state.table(f"{self._sheet}.ended", _MAX_ENDED)
        ended = None
        for key in keys:
            stream.rule_state.table(f"{self._sheet}.firing", _MAX_FIRING)[key] = (1,)
            ended = table.pop(key, None) or ended
        if ended is None or line.at is None or not isinstance(ended[0], (int, float)):
            return None
        at = from_millis(int(ended[0]))
        return at if line.at <= at else None

    def _was_not_firing(self, keys: Sequence[Key], hit: Hit, line: LogLine, stream: Stream) -> bool:
        """True for the end of what was not firing there, which every boot prints too.

        Where lines of one host are spread over several partitions, another one may have seen it fire, so every end counts.
        """
        table = stream.rule_state.table(f"{self._sheet}.firing", _MAX_FIRING)
        known = [table.pop(key, None) for key in keys]
        if any(known):
            return False
        if not hit.row.ends or stream.misses_lines:
            return False
        if line.at is not None:
            # Shippers that send in batches may let it overtake the line that begins what it ends.
            for key in keys:
                stream.rule_state.table(f"{self._sheet}.ended", _MAX_ENDED)[key] = (to_millis(line.at),)
        return True

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """The finding of one message; None when it is none after all."""
        attributes: dict[str, Attribute] = {**hit.row.sets, **hit.fields}
        pci = attributes.get("pci")
        if isinstance(pci, str) and (canonical := canonical_pci(pci)):
            attributes["pci"] = canonical
            if hit.row.kind.startswith("fabric.") and (function := pci.rpartition(".")[2]) in _OTHER_PORTS:
                attributes["pci_function"] = int(function)
        port = attributes.get("port", attributes.get("port_id"))
        found = Finding(
            hit.row.kind,
            hit.row.severity,
            attributes,
            hit.row.state,
            gpu=gpu_in(attributes) if hit.row.kind.startswith("gpu.") else None,
            node=_text(attributes, "node"),
            nic=_nic(attributes, hit) if hit.row.kind.startswith("fabric.") else None,
            port=str(port).rstrip(".:-") if port is not None else None,
            on_switch=self._on_switch,
            text=line.text,
        )
        if hit.row.itself or not (hit.row.kind.startswith("fabric.") or self._on_switch):
            return found
        if self._by_manager:
            return managers.placed(found, line, hit.start, hit.end, stream)
        return managers.placed(found, line, line.start, hit.end, stream) if managers.speaks(line) else found


_OTHER_PORTS = frozenset("1234567")
"""Functions of a card but the first: each of its ports is one, and a NIC of its own."""
_SAME_STATE = {"cable_unplugged": "link_down"}
"""What has ended when another state has: a link that is up has its cable in."""


def _keys(found: Finding, hit: Hit, line: LogLine, stream: Stream) -> list[Key]:
    """The place and state that a line is about: by the NIC's name, and by its PCI address, for interfaces are renamed."""
    subtype, pci = _text(found.attributes, "subtype"), _text(hit.fields, "pci")
    subtype = _SAME_STATE.get(subtype or "", subtype)
    names = [found.nic, *([pci.lower()] if pci and found.nic and pci.lower() != found.nic else [])]
    node = found.node or line.node
    return [(stream.cluster, node, found.kind, subtype, name, found.port) for name in names]


def _nic(attributes: Mapping[str, Attribute], hit: Hit) -> str | None:
    """The NIC's name on the host, else its PCI address with the function, in which alone the ports of a card differ."""
    pci = _text(hit.fields, "pci")
    return _text(attributes, "device") or (pci.lower() if pci else None)


def _program(line: LogLine, hit: Hit) -> tuple[int, str]:
    """Where the line of a program begins, and the program: without a time in the header its name is part of the message."""
    named = _NAMED.search(line.text[line.start : hit.start][-80:])
    if line.source or named is None:
        return hit.start, line.source
    return hit.start - len(named[0] or ""), named[1] or ""


def gpu_in(attributes: Mapping[str, Attribute]) -> Gpu | None:
    """The GPU in the attributes, None when they name none."""
    index = attributes.get("index")
    gpu = Gpu(
        canonical_pci(_text(attributes, "pci") or ""),
        _text(attributes, "uuid"),
        index if isinstance(index, int) else None,
        _text(attributes, "mig"),
    )
    return None if gpu == Gpu(mig=gpu.mig) else gpu


def _text(attributes: Mapping[str, Attribute], name: str) -> str | None:
    value = attributes.get(name)
    return value if isinstance(value, str) and value else None
