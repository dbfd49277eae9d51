"""Points at which a process calls its crash hook with their names. Only tests use the hook, to kill the process there.

Around an effect of the responder and of chat, where NAME is that of the call (`runbooks.engine.crash_points`):

    taken_up               all input has been read, nothing is decided yet
    NAME:before_intent     decided, intent not committed
    NAME:after_intent      intent committed, not called
    NAME:after_call        called; only this process knows the outcome
    NAME:before_commit     the outcome is about to be committed
    NAME:after_commit      the outcome is committed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CrashHook = Callable[[str], None]

TAKEN_UP: Final = "taken_up"

DETECTOR_BEFORE_PRODUCE: Final = "detector:before_produce"
DETECTOR_AFTER_PRODUCE: Final = "detector:after_produce"
DETECTOR_AFTER_COMMIT: Final = "detector:after_commit"
SNAPSHOT_WRITTEN: Final = "detector:snapshot_written"
SNAPSHOT_COMMITTED: Final = "detector:snapshot_committed"

CORRELATOR_BEFORE_STORE: Final = "correlator:before_store"
CORRELATOR_AFTER_STORE: Final = "correlator:after_store"
CORRELATOR_AFTER_PUBLISH: Final = "correlator:after_publish"

ARCHIVE_FILE_WRITTEN: Final = "archive:file_written"
ARCHIVE_FILE_IN_PLACE: Final = "archive:file_in_place"
ARCHIVE_COMMITTED: Final = "archive:committed"
ARCHIVE_MERGED: Final = "archive:merged"


def ignore(label: str) -> None:
    """The hook in production: nothing happens."""
