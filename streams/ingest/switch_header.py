"""The header before a switch's message, `%FACILITY-SEVERITY-MNEMONIC: text`.

NX-OS writes `2026 Nov 21 07:13:13 leaf-1 %$ VDC-1 %$ %ETHPORT-5-…`, and to a collector `<189>: 2026 Nov 21 07:13:13 UTC: %…`,
to which the collector adds its own header; IOS counts its messages (`000123: *Nov 21 07:13:13.123 UTC: %…`); EOS names the agent
(`Nov 21 07:13:13 leaf-1 Pfc: %PFC-4-…`). All are a few tokens in some order, and are read as such; any other token means another
format.
"""

from __future__ import annotations

import re
from datetime import datetime

from streams.ingest import timestamps
from streams.ingest.records import Header

_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MESSAGE = re.compile(r"%[A-Z][A-Z0-9_]{1,63}(?:-[A-Za-z0-9_]{1,63}){0,4}-[0-7]-[A-Z0-9_]{2,95} ?: ?")
_WITHOUT_MEANING = re.compile(
    r"%\$ {0,2}VDC-\d{1,4} {0,2}%\$ {0,4}|[:*.\s]{1,8}|\d{1,10}: {0,4}|(?:RP|LC)/\d{1,4}/[A-Z]{0,4}\d{1,4}/CPU\d{1,3}: ?|"
    r"(?:EMERG|ALERT|CRIT|ERR|ERROR|WARN|WARNING|NOTICE|INFO|DEBUG) "
)
"""Skipped: the virtual switch, the card of an IOS-XR router, marks of an unset clock, message numbers, a relay's severity."""
_DATE = re.compile(
    rf"(?:(?P<y1>\d{{4}}) )?(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) (?:(?P<y2>\d{{4}}) )?"
    r"(?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?: (?P<y3>20\d\d)(?=[ :]))?(?P<zone> (?:UTC|GMT|[A-Z]{3,4}(?=:)))?:? {0,4}"
)
_ISO = re.compile(r"(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?):?(?: |$)")
_NAME = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]{0,254})(?:\[\d{1,10}\])?(?P<colon>:?)(?: {1,4}|$)")
REACH = 320
"""Characters within which the message must begin."""
_MAX_TOKENS = 16


def read(text: str, position: int, reference: datetime) -> Header | None:
    """The header of a switch's line from `position` on; None for another format."""
    message = _MESSAGE.search(text, position, position + REACH)
    if message is None:
        return None
    end = message.start()
    at: datetime | None = None
    certain = dated = False
    host, tag = None, ""
    for _ in range(_MAX_TOKENS):
        if position >= end:
            return Header(end, at, host, tag, certain=certain) if position == end else None
        if (token := _DATE.match(text, position, end)) is not None:
            if at is None:
                year = token["y1"] or token["y2"] or token["y3"]
                at = timestamps.yearless(token["month"], token["day"], token["clock"], reference, year=year)
                certain = at is not None and token["zone"] in (" UTC", " GMT")
            dated = True
        elif (token := _ISO.match(text, position, end)) is not None:
            at = at or timestamps.iso(token["at"], reference=reference)
            certain = at is not None and timestamps.has_zone(token["at"])
            dated = True
        elif (token := _WITHOUT_MEANING.match(text, position, end)) is not None:
            pass
        elif (token := _NAME.match(text, position, end)) is not None:
            name, colon = token["name"], token["colon"]
            before_date = _DATE.match(text, token.end(), end) is not None
            if host is None and (before_date or not colon):
                if not dated and not before_date and not any(c.isdigit() or c == "-" for c in name):
                    return None  # without a time it may be prose
                host = name
            elif name == host:
                pass  # the relay's header and the switch's own have the same name
            elif not tag and colon:
                tag = name
            elif not tag and before_date:
                host = name
            else:
                return None
        else:
            return None
        position = token.end()
    return None
