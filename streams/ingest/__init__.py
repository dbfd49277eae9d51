"""Opens shippers' records: bytes in, `LogLine | Sample | KubeEvent | Alert` out. One file per format, recognised by shape."""

from streams.ingest.open_record import ENVELOPE_HINTS, open_record, open_unfinished
from streams.ingest.records import MAX_LINE, Opened, RecordContext

__all__ = [
    "ENVELOPE_HINTS",
    "MAX_LINE",
    "Opened",
    "RecordContext",
    "open_record",
    "open_unfinished",
]
