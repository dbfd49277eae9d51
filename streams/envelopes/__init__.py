"""What shippers send, opened: bytes in, `LogLine | Sample | KubeEvent` out. One file per format, recognised by shape."""

from streams.envelopes.opened import MAX_LINE, Opened, Outside
from streams.envelopes.shapes import looks_like_json, open_record

__all__ = ["MAX_LINE", "Opened", "Outside", "looks_like_json", "open_record"]
