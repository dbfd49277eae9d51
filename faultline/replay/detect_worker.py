"""One process that detects in a big capture: gets its `Share` by standard input, gives what it finds by standard output."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from itertools import islice

from faultline.replay.detect_processes import Ended, Share
from faultline.replay.detection import Detection
from streams.model.errors import BadInput
from streams.model.garbage import collect_seldom

_TOGETHER = 200
"""Findings written at once."""


def main() -> None:
    """Detect, and tell at the end how it went."""
    share: Share = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_whoever_asked, daemon=True).start()
    detection = Detection(share.cluster, share.clock, share.topics, share.partitions)
    found = detection.found()
    collect_seldom()
    try:
        while together := list(islice(found, _TOGETHER)):
            pickle.dump(together, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
            sys.stdout.buffer.flush()
        ended = Ended(detection.dead_letters)
    except BadInput as error:
        ended = Ended(bad_input=str(error))
    pickle.dump(ended, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _end_with_whoever_asked() -> None:
    os.read(
        sys.stdin.fileno(), 1
    )  # nothing comes, only the end; past the buffer, whose lock the end of a process needs
    os._exit(1)


if __name__ == "__main__":
    main()
