"""Tables and lists of `nvidia-smi` and `dcgmi`: the overview, the state of links, health and diagnostics.

The line that names the GPU comes before the one with the fault, so it is remembered: `GPU 0: NVIDIA H100 (UUID: GPU-…)` before
`Link 3: <inactive>`, `|   3  NVIDIA H100 …  | 00000000:5E:00.0 Off |` before the row with `ERR!`, `| -> 0 |` before
`|    -> Thermal system  | Warning |`. Healthy rows give nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.gpu_names import named
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import written_by_people
from streams.model.clock import to_millis
from streams.model.entity import Gpu, canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Severity

_LISTED = re2_patterns.compile(
    r"\s{0,8}GPU (?P<index>\d{1,3}): (?P<name>[^\n(]{2,80})\(UUID: (?P<uuid>GPU-[0-9A-Fa-f-]{36})\)"
)
_OVERVIEW = re2_patterns.compile(
    r"\|\s{1,4}(?P<index>\d{1,3})\s{1,4}(?P<name>\S[^|\n]{0,60}?)\s{1,40}(?:On|Off|N/A|ERR!|Enabled|Disabled)\s{1,8}\|"
    r"\s{0,4}(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s{1,4}\S{2,8}\s{1,8}\|\s{1,40}(?P<ecc>\S{1,12})\s{1,8}\|"
)
_READINGS = re2_patterns.compile(r"\|[^|\n]{0,80}\|[^|\n]{0,80}\|[^|\n]{0,80}\|\s{0,8}$")
_LINK = re2_patterns.compile(r"\s{0,24}Link (?P<link>\d{1,2})(?:, Lane \d{1,2})?: (?P<rest>[^\n]{1,120})$")
_INACTIVE = re2_patterns.compile(r"(?i)<?inactive>?\s{0,8}$")
_ERRORS = re2_patterns.compile(
    r"(?i)(?P<what>(?:Replay|Recovery|CRC(?: FLIT| Data)?|Malformed packet|Buffer overrun|Rx(?: remote| general)?|"
    r"Local link integrity|Effective|ECC) Errors?|Link recovery failed events):\s{1,4}(?P<count>[1-9]\d{0,14})\s{0,8}$"
)
_ALL_INACTIVE = re2_patterns.compile(
    r"(?i)(?:NVML: )?Unable to retrieve NVLink information as all links are inactive"
)
_DCGM_GPU = re2_patterns.compile(r"\s{0,8}gpuId (?P<index>\d{1,3}):\s{0,4}$")
_DCGM_LINKS = re2_patterns.compile(r"\s{0,16}(?P<links>[UDX_](?: [UDX_]){3,35})\s{0,4}$")
_HEALTH_GPU = re2_patterns.compile(r"\|\s{1,8}(?:->|GPU ID:?)\s{1,4}(?P<index>\d{1,3})\s{1,60}\|")
_HEALTH = re2_patterns.compile(
    r"\|[^|\n]{0,60}?(?:->\s{1,4}|\|\s{1,4})(?P<system>PCIe|Memory|InfoROM|Thermal|Power|"
    r"NVLINK|NvLink|SM|Driver|PMU|MCU)(?: system)?\s{0,60}[|:]\s{0,4}(?P<state>Warning|Failure)\b"
)
_DIAG = re2_patterns.compile(
    r"\|\s{1,4}(?P<test>(?i:Denylist|NVML Library|CUDA Main Library|Permissions and OS Blocks|Persistence Mode|"
    r"Page Retirement/Row Remap|Inforom|Software|PCIe|(?:GPU )?Memory|Diagnostic|Memory[ _]Bandwidth|Memtest|SM Stress|"
    r"Targeted[ _]Stress|Targeted[ _]Power|Pulse[ _]Test|EUD(?: Test)?|NVBandwidth|Context[ _]Create))\s{1,40}\|"
    r"\s{1,4}Fail(?:\s{0,4}-\s{0,4}(?P<which>All|GPUs?:?\s{0,4}[\d, ]{1,60}))?\s{0,60}\|\s{0,8}$"
)
_DIGITS = re2_patterns.compile(r"\d{1,3}")

_KINDS = {
    "thermal": SignalKind.GPU_THERMAL,
    "power": SignalKind.GPU_POWER,
    "nvlink": SignalKind.GPU_NVLINK,
    "memory": SignalKind.GPU_ECC,
    "gpu memory": SignalKind.GPU_ECC,
    "memtest": SignalKind.GPU_ECC,
    "page retirement/row remap": SignalKind.GPU_ROW_REMAP,
}
"""Kinds by health system or test; all others are `gpu.driver`."""

_MAX_NODES = 20_000
_APART_MS = 120_000


class SmiTables:
    """Reads lines of these tables."""

    hints = (
        rb"\(UUID: GPU-",
        rb"\d\.\d +(?:On|Off|N/A) +\| ",
        rb"ERR!",
        rb"(?i:Link \d+(?:, Lane \d+)?: <?inactive)",
        rb"Link \d+(?:, Lane \d+)?: [A-Z][\w ]+: [1-9]",
        rb"all links are in[aA]ctive",
        rb"gpuId \d",
        rb"(?: [UDX_]){4}",
        rb"\| +-> +\d|\| GPU ID",
        rb"(?:\||system:) +(?:Warning|Failure)",
        rb"\| +Fail[ -]",
    )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of a line, given the one that names its GPU."""
        if written_by_people(line.source):
            return
        last, text = _NamedGpu(line, stream), line.message
        for pattern in (_LISTED, _OVERVIEW, _DCGM_GPU, _HEALTH_GPU):
            if (gpu := pattern.match(text)) is not None:
                last.remember(gpu.groupdict())
                break
        yield from self._links(text, last)
        yield from self._rows(text, last)

    def _links(self, text: str, last: _NamedGpu) -> Iterator[Finding]:
        family: Attributes = {"family": "gpu_nvlink"}
        if (link := _LINK.match(text)) is not None:
            attributes: Attributes = {"link": int(link["link"]), **family}
            if _INACTIVE.match(link["rest"]) is not None:
                attributes["subtype"] = "link_inactive"
                yield last.finding(SignalKind.GPU_NVLINK, Severity.ERROR, attributes)
            elif (errors := _ERRORS.match(link["rest"])) is not None:
                subtype = errors["what"].lower().removesuffix("s").removesuffix(" error").replace(" ", "_")
                attributes |= {"subtype": subtype, "count": int(errors["count"])}
                yield last.finding(SignalKind.GPU_NVLINK, Severity.WARNING, attributes)
        elif _ALL_INACTIVE.match(text.lstrip()) is not None:
            attributes = {"subtype": "links_inactive", **family}
            yield last.finding(SignalKind.GPU_NVLINK, Severity.WARNING, attributes)
        elif last.index is not None and (links := _DCGM_LINKS.match(text)) is not None:
            down = links["links"].split(" ").count("D")
            if down:
                attributes = {"subtype": "link_inactive", "count": down, **family}
                yield last.finding(SignalKind.GPU_NVLINK, Severity.ERROR, attributes)

    def _rows(self, text: str, last: _NamedGpu) -> Iterator[Finding]:
        if not text.startswith("|"):
            return
        if (row := _OVERVIEW.match(text)) is not None and row["ecc"].isdecimal() and int(row["ecc"]):
            ecc: Attributes = {"subtype": "uncorrectable", "scope": "volatile", "family": "gpu_memory"}
            ecc |= {"action": "reset_gpu", "count": int(row["ecc"])}
            yield last.finding(SignalKind.GPU_ECC, Severity.CRITICAL, ecc)
        elif (
            "ERR!" in text and last.pci and (row or _READINGS.match(text)) is not None and not last.unreadable
        ):
            last.mark_unreadable()
            unreadable: Attributes = {"subtype": "unreadable", "action": "reset_gpu"}
            yield last.finding(SignalKind.GPU_DRIVER, Severity.ERROR, unreadable)
        elif (health := _HEALTH.match(text)) is not None:
            severity = Severity.ERROR if health["state"] == "Failure" else Severity.WARNING
            kind = _KINDS.get(health["system"].lower(), SignalKind.GPU_DRIVER)
            yield last.finding(kind, severity, {"subtype": "dcgm_health", "system": health["system"]})
        elif (diag := _DIAG.match(text)) is not None:
            kind = _KINDS.get(diag["test"].lower(), SignalKind.GPU_DRIVER)
            result: Attributes = {"subtype": "dcgm_diag", "test": diag["test"]}
            indexes = [int(digits.group()) for digits in _DIGITS.finditer(diag["which"] or "")]
            for index in indexes:
                yield Finding(
                    kind, Severity.ERROR, {**result, "index": index}, gpu=Gpu(index=index), text=text
                )
            if not indexes:
                yield Finding(kind, Severity.ERROR, result, text=text)


class _NamedGpu:
    """The GPU that was named last in the lines of this node."""

    def __init__(self, line: LogLine, stream: Stream) -> None:
        self._line = line
        self._stream = stream
        self._key = (stream.cluster, line.node or stream.lines)
        self._at = to_millis(line.at or stream.received_at)
        self._table = stream.rule_state.table("smi.named", _MAX_NODES)
        row = self._table.get(self._key)
        if row is None or abs(self._at - int(row[0] or 0)) > _APART_MS:
            row = (0, None, None, None, False)
        self.index, self.uuid, self.pci = _int(row[1]), _text(row[2]), _text(row[3])
        self.unreadable = bool(row[4])

    def remember(self, named_as: dict[str, str]) -> None:
        """Remember the GPU that a line names for the next lines."""
        self.index = int(named_as["index"])
        self.uuid = named_as.get("uuid")
        self.pci = canonical_pci(named_as["pci"]) if named_as.get("pci") else None
        self.unreadable = False
        self._save()

    def mark_unreadable(self) -> None:
        """Remember that this GPU was reported as unreadable."""
        self.unreadable = True
        self._save()

    def finding(self, kind: str, severity: Severity, attributes: Attributes) -> Finding:
        """A finding about the GPU named last."""
        gpu = None
        if self.index is not None:
            attributes["index"] = self.index
            known = named(self.pci, self._line, self._stream, attributes) if self.pci else Gpu()
            uuid = self.uuid or known.uuid
            if uuid is not None:
                attributes["uuid"] = uuid
            gpu = Gpu(known.pci, uuid, self.index)
        return Finding(kind, severity, attributes, gpu=gpu, text=self._line.text)

    def _save(self) -> None:
        self._table[self._key] = (self._at, self.index, self.uuid, self.pci, self.unreadable)


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
