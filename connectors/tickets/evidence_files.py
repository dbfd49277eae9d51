"""The files of a hardware fault's ticket: `evidence.json` for programs, `evidence.txt` for whoever fills in the vendor's form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from connectors.tickets.ticket_api import TicketFile
from streams.model.clock import rfc3339
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.hardware_evidence import EVIDENCE, TIMELINE_SVG, HardwareEvidence, Observation
from streams.model.message import plain
from streams.model.signal import Attribute

FILE_KEYS = (EVIDENCE, TIMELINE_SVG)
"""Keys of an effect's context that become files and are no facts."""

UNKNOWN = "unknown: no log line, metric or inventory told it"

_TO_COLLECT = (
    "nvidia-bug-report.sh, run before the part is pulled; once more after a power cycle if it hangs (NVIDIA)",
    "dcgmi diag -r 3, and the field diagnostics if the vendor sends them (NVIDIA)",
    "nvidia-smi -q for serial number, part number and VBIOS where they are unknown above",
    "the machine's own report: SupportAssist collection (Dell), AHS log (HPE), BMC event log (Supermicro)",
    "whether the fault follows the part into another slot or stays with the slot",
)


def files_of(context: Mapping[str, Attribute]) -> list[TicketFile]:
    """The files for a ticket; none where the context carries no evidence, or evidence that a newer version wrote otherwise."""
    raw = context.get(EVIDENCE)
    if not isinstance(raw, str) or not raw:
        return []
    try:
        evidence = decode(HardwareEvidence, raw)
    except BadInput:
        return [TicketFile("evidence.json", "application/json", raw.encode())]
    files = [
        TicketFile("evidence.json", "application/json", raw.encode()),
        TicketFile("evidence.txt", "text/plain", evidence_text(evidence).encode()),
    ]
    drawing = context.get(TIMELINE_SVG)
    if isinstance(drawing, str) and drawing:
        files.append(TicketFile("timeline.svg", "image/svg+xml", drawing.encode()))
    return files


def evidence_text(evidence: HardwareEvidence) -> str:
    """The evidence as a form to read and copy from, section by section. Every text is cleaned of control characters."""
    return "\n".join(_lines(evidence)) + "\n"


def _lines(evidence: HardwareEvidence) -> Iterator[str]:
    yield f"EVIDENCE OF A HARDWARE FAULT: {plain(evidence.title, 500)}"
    yield ""
    yield from _section("1. The part")
    rows: list[tuple[str, str | None]] = [
        ("kind", evidence.part),
        ("serial number", evidence.serial),
        ("part number", evidence.part_number),
    ]
    if evidence.part == "GPU":
        rows += [("GPU UUID", evidence.uuid), ("PCI slot", evidence.pci_slot), ("index", evidence.index)]
        rows += [("VBIOS version", evidence.vbios)]
    if evidence.part == "NIC":
        rows += [("device", evidence.device)]
    if evidence.part != "GPU":
        rows += [("firmware version", evidence.firmware)]
    if evidence.part in ("GPU", "NVSwitch"):
        rows += [("driver version", evidence.driver)]
    yield from _rows(rows)
    yield from _section("2. The machine")
    names = ", ".join(evidence.node_names) or None
    yield from _rows(
        [
            ("node", evidence.node),
            ("cluster", evidence.cluster),
            ("serial number and other names", names),
            ("boot id", evidence.boot_id),
        ]
    )
    yield from _section("3. The fault")
    yield from _rows(
        [
            ("began", rfc3339(evidence.fault_at)),
            ("what", evidence.reason),
            ("family", evidence.family),
            ("certainty", evidence.certainty),
            ("incident", evidence.incident),
        ]
    )
    codes = "XID history" if evidence.part != "NVSwitch" else "SXid and XID history"
    yield from _seen(f"4. {codes}", evidence.xids)
    yield from _seen("5. Row remapping", evidence.row_remaps)
    yield from _seen("6. Diagnostics", evidence.diagnostics)
    yield from _seen("7. What was tried", evidence.done)
    yield from _seen("8. What else was seen", evidence.others)
    if evidence.left_out:
        yield f"{evidence.left_out} raw lines did not fit; they are in Kafka at the places named above."
        yield ""
    yield from _section("9. Still to be collected for the vendor")
    yield from (f"  [ ] {line}" for line in _TO_COLLECT)


def _section(title: str) -> Iterator[str]:
    yield title
    yield "-" * len(title)


def _rows(rows: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    for label, value in rows:
        yield f"  {label + ':':31}{plain(value, 2000) if value else UNKNOWN}"
    yield ""


def _seen(title: str, observations: Iterable[Observation]) -> Iterator[str]:
    yield from _section(title)
    nothing = True
    for one in observations:
        nothing = False
        times = f" ({one.count} times)" if one.count > 1 else ""
        code = f" code {one.code}" if one.code else ""
        yield f"  {rfc3339(one.at)}{code} {plain(one.what, 1000)}{times}" + (
            f" [{one.place}]" if one.place else ""
        )
        yield from (f"      {plain(line, 1024)}" for line in one.lines)
    if nothing:
        yield "  none known"
    yield ""
