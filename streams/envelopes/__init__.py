"""What shippers send, opened: bytes in, `LogLine | Sample | KubeEvent | Alert` out. One file per format, recognised by shape."""

from streams.envelopes.opened import MAX_LINE, Opened, Outside
from streams.envelopes.shapes import ENVELOPE_HINTS, looks_like_json, open_record, open_unfinished

__all__ = [
    "ENVELOPE_HINTS",
    "MAX_LINE",
    "Opened",
    "Outside",
    "looks_like_json",
    "open_record",
    "open_unfinished",
]
