"""What an incident knows of a part that failed, for the ticket with which it goes back to its vendor. Pure.

NVIDIA, and through it Dell, Supermicro and HPE, ask for the same: which part in which machine, what it reported when (XIDs, row
remapping, diagnostics), with which driver and firmware, and what was tried. What no signal told stays None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from runbooks.engine.escalation import faulty_entity
from streams.model.codec import encode
from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.hardware_evidence import HardwareEvidence, Observation
from streams.model.incident import Incident, Proof
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.message import plain
from streams.model.run import EffectState, Run

HARDWARE = frozenset(
    {
        IncidentFamily.GPU_OFF_BUS,
        IncidentFamily.GPU_MEMORY,
        IncidentFamily.GPU_NVLINK,
        IncidentFamily.GPU_FAULT,
        IncidentFamily.HOST_FAULT,
        IncidentFamily.NIC_LINK,
    }
)
"""Families whose root is a part that a vendor may replace."""

MAX_BYTES = 64 * 1024
"""Of the whole document, as it travels."""
MAX_RUNS = 10
MAX_OBSERVATIONS = 200

_CODE = re.compile(r"\bS?Xid \([^)]{1,80}\): (\d{1,6})|\b(?:XID|xid)\D{1,4}(\d{1,4})")
_DRIVER = re.compile(r"(?i)(?:driver version|kernel module)\W{1,8}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
_VBIOS = re.compile(r"(?i)vbios(?: version)?\W{1,20}([0-9a-f]{2}(?:\.[0-9a-f]{2}){4})")
_SERIAL = re.compile(r"(?i)serial(?: number|_number)?\W{1,20}(\d{10,20})\b")
_PART_NUMBER = re.compile(r"(?i)(?:gpu|board) part number\W{1,20}([0-9A-Z]{3,5}-[0-9A-Z-]{4,20})")
_FIRMWARE = re.compile(r"(?i)\b(?:fw|firmware)(?: version)?\W{1,8}(\d{1,3}\.\d{1,3}\.\d{1,6})")
_DIAGNOSTIC = re.compile(r"(?i)dcgmi diag|dcgm diagnostic|fieldiag|field diag|\bnvvs\b|nvidia-bug-report")
_TRIED = frozenset(
    {
        "reset_gpu",
        "reboot_node",
        "power_cycle_node",
        "replace_node",
        "apply_template",
        "validate_node",
        "cordon_node",
        "drain_node",
    }
)


def evidence_of(
    incident: Incident, node: NodeFact | None, runs: Sequence[Run] = ()
) -> HardwareEvidence | None:
    """The evidence for a part that failed; None where the incident is about no such part.

    Args:
        node: the machine as inventoried.
        runs: runs about this part, this incident's and earlier ones: what was tried, and what validation said.
    """
    root = faulty_entity(incident)
    if incident.family not in HARDWARE or root.node is None:
        return None
    own = _own_lines(incident.proofs, root)
    everything = [line for proof in incident.proofs for line in _lines(proof)]
    gpu = root.gpu
    seen = [_seen(p) for p in sorted(incident.proofs, key=lambda p: p.occurred_at)[-MAX_OBSERVATIONS:]]
    done = tuple(_done(runs))
    of_kind = {kind: tuple(o for o in seen if _kind(o) == kind) for kind in ("xid", "remap", "diag", "other")}
    evidence = HardwareEvidence(
        incident=incident.id,
        cluster=incident.cluster,
        title=plain(incident.title, 500),
        reason=plain(incident.reason, 2000),
        family=incident.family,
        certainty=str(incident.certainty),
        fault_at=incident.fault_at,
        part=_part(incident, root),
        node=root.node,
        node_names=tuple(node.aliases) if node else (),
        boot_id=node.boot_id if node else None,
        serial=_told(incident, own, _SERIAL, "serial", "gpu_serial"),
        part_number=_told(incident, own, _PART_NUMBER, "part_number"),
        uuid=gpu.uuid if gpu else None,
        pci_slot=gpu.pci if gpu else None,
        index=str(gpu.index) if gpu and gpu.index is not None else None,
        device=root.nic,
        vbios=_told(incident, own, _VBIOS, "vbios", "vbios_version"),
        firmware=_told(incident, own, _FIRMWARE, "firmware", "fw_version"),
        # The driver is the node's, whichever GPU's line tells of it.
        driver=_told(incident, everything, _DRIVER, "driver", "driver_version"),
        xids=of_kind["xid"],
        row_remaps=of_kind["remap"],
        diagnostics=of_kind["diag"] + tuple(o for o in done if o.what.startswith("validate_node")),
        others=of_kind["other"],
        done=tuple(o for o in done if not o.what.startswith("validate_node")),
    )
    return _bounded(evidence)


def _part(incident: Incident, root: Entity) -> str:
    if root.gpu is None and incident.facts.get("sxids"):
        return "NVSwitch"
    return "GPU" if root.gpu else "NIC" if root.nic else "host"


def _lines(proof: Proof) -> list[str]:
    return [evidence.text for evidence in proof.evidence if evidence.text]


def _own_lines(proofs: Iterable[Proof], root: Entity) -> list[str]:
    """Lines about the part itself: a serial number of its neighbour would send the wrong one back."""
    return [line for proof in proofs if proof.entity.key == root.key for line in _lines(proof)]


def _told(incident: Incident, lines: Iterable[str], pattern: re.Pattern[str], *facts: str) -> str | None:
    for name in facts:
        if value := incident.facts.get(name):
            return plain(str(value), 100)
    found = {match[1] for line in lines if (match := pattern.search(line))}
    return found.pop() if len(found) == 1 else None  # two that differ tell nothing


def _seen(proof: Proof) -> Observation:
    lines = tuple(plain(line, 1024) for line in _lines(proof))
    match = next((m for text in (*lines, proof.summary) if (m := _CODE.search(text))), None)
    code = (match[1] or match[2]) if match else ""
    place = proof.evidence[0].coordinates if proof.evidence else ""
    what = f"{proof.kind}: {plain(proof.summary, 500)}"
    return Observation(proof.occurred_at, what, code, proof.count, place, lines)


def _kind(observation: Observation) -> str:
    kind = observation.what.partition(":")[0]
    if kind == SignalKind.GPU_ROW_REMAP:
        return "remap"
    if any(map(_DIAGNOSTIC.search, (observation.what, *observation.lines))):
        return "diag"
    if kind in (SignalKind.GPU_XID, SignalKind.GPU_SXID) or observation.code:
        return "xid"
    return "other"


def _done(runs: Sequence[Run]) -> Iterable[Observation]:
    for run in sorted(runs, key=lambda run: run.created_at)[-MAX_RUNS:]:
        for record in run.steps:
            effect = record.effect
            if effect is None or effect.action not in _TRIED:
                continue
            if effect.state not in (EffectState.CONFIRMED, EffectState.REFUSED):
                continue
            how = "done" if effect.state is EffectState.CONFIRMED else "failed"
            told = "; ".join(f"{name}: {value}" for name, value in sorted(effect.result.items()))
            text = f"{effect.action} of {effect.target}: {how} {effect.reason or told}".strip()
            at = effect.confirmed_at or effect.intended_at
            yield Observation(at, plain(text, 1000), place=f"{run.incident} {run.id}")


def _bounded(evidence: HardwareEvidence) -> HardwareEvidence:
    """The evidence with as many raw lines as fit: the newest of what says least goes first, the first of what says most last."""
    left_out = 0
    while len(encode(evidence)) > MAX_BYTES:
        for name in ("others", "diagnostics", "row_remaps", "xids"):
            rows: tuple[Observation, ...] = getattr(evidence, name)
            fullest = max((row for row in rows), key=lambda row: len("".join(row.lines)), default=None)
            if fullest is not None and fullest.lines:
                left_out += len(fullest.lines)
                bare = replace(fullest, lines=())
                rows = tuple(bare if row is fullest else row for row in rows)
                evidence = replace(evidence, left_out=left_out, **{name: rows})  # type: ignore[arg-type]
                break
        else:
            rows = evidence.others or evidence.xids
            if not rows:
                break
            name = "others" if evidence.others else "xids"
            half = rows[: len(rows) // 2]
            evidence = replace(evidence, left_out=left_out, **{name: half})  # type: ignore[arg-type]
    return evidence
