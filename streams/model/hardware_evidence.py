"""What is known of a part that failed, in the words its vendor asks for: travels from the responder to a ticket's attachment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

EVIDENCE = "evidence"
"""The key in an effect's context: a `HardwareEvidence`, encoded."""
TIMELINE_SVG = "timeline_svg"
"""The key of a drawing of the incident's timeline, where there is one."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was seen or done, with its raw lines. `count` is how often; `place` is where it was read, in Kafka."""

    at: datetime
    what: str
    code: str = ""
    count: int = 1
    place: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HardwareEvidence:
    """One part and what was seen of it. None is what nobody told: it is unknown, which a vendor has to be told, too."""

    incident: str
    cluster: str
    title: str
    reason: str
    family: str
    certainty: str
    fault_at: datetime
    part: str
    """`GPU`, `NVSwitch`, `NIC` or `host`."""
    node: str
    node_names: tuple[str, ...] = ()
    """Other names of the machine as inventoried: serial number, system UUID, asset names."""
    boot_id: str | None = None
    serial: str | None = None
    part_number: str | None = None
    uuid: str | None = None
    pci_slot: str | None = None
    index: str | None = None
    device: str | None = None
    """The NIC's name on its host."""
    vbios: str | None = None
    firmware: str | None = None
    driver: str | None = None
    xids: tuple[Observation, ...] = ()
    row_remaps: tuple[Observation, ...] = ()
    diagnostics: tuple[Observation, ...] = ()
    others: tuple[Observation, ...] = ()
    done: tuple[Observation, ...] = ()
    """What Faultline did about this part, in this incident and before."""
    left_out: int = 0
    """Raw lines that did not fit."""
    schema: int = 1
