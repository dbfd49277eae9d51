"""What the compared programs look for: one expression for each kind of report, as anybody writes it. Only Python is needed."""

from __future__ import annotations

import json
import re
from typing import Any

PATTERNS = {
    "gpu.xid": re.compile(
        r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)(?:, pid=(?P<pid>\d+), name=(?P<process>[^,]+))?"
    ),
    "gpu.sxid": re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<sxid>\d+)"),
    "gpu.off_bus": re.compile(r"NVRM: GPU (?P<pci>[0-9a-fA-F:.]+): GPU has fallen off the bus"),
    "nccl.timeout": re.compile(
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+).*?"
        r"Timeout\(ms\)=(?P<timeout_ms>\d+)\) ran for (?P<elapsed_ms>\d+) milliseconds"
    ),
    "nccl.error": re.compile(r"NCCL WARN NET/IB : Got completion .*?status=(?P<status>\d+)"),
    "fabric.pfc_storm": re.compile(r"PFC [Ss]torm (?:detected|restored) on port (?P<port>\S+)"),
    "fabric.link": re.compile(r"mlx5_core \S+ (?P<device>\w+): Link (?P<state>up|down)"),
    "node.pcie": re.compile(r"AER: (?P<subtype>Uncorrected|Corrected).*? error"),
    "node.kernel": re.compile(r"INFO: task (?P<process>\S+) blocked for more than (?P<seconds>\d+) seconds"),
}
_TEXT = ("log", "message", "MESSAGE", "msg")
_SYSLOG = re.compile(r"(?P<at>\w{3} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\S+) ")


def signals_of(value: bytes) -> list[dict[str, Any]]:
    """The reports in one record."""
    text, host, at = value.decode("utf-8", "replace"), None, None
    if text.startswith("{"):
        record = json.loads(text)
        host = record.get("host") or record.get("_HOSTNAME")
        at = record.get("@timestamp") or record.get("date")
        text = next((record[name] for name in _TEXT if name in record), "")
    found = []
    for kind, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            if host is None and (header := _SYSLOG.match(text)):
                host, at = header["host"], header["at"]
            found.append({"kind": kind, "host": host, "at": at, "text": text, **match.groupdict()})
    return found
