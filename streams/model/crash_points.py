"""Points at which a crash of a process would matter. A process calls its hook with their names; only tests listen, and kill it.

Around an effect of the responder and of chat, where NAME is that of the call (`runbooks.engine.crash_points`):

    taken_up               everything that was there has been read, nothing is decided yet
    NAME:before_intent     decided, not written down
    NAME:after_intent      written down, not called
    NAME:after_call        called; what became of it is known to this process alone
    NAME:before_commit     what became of it is about to be written down
    NAME:after_commit      it is written down
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


def ignore(label: str) -> None:
    """The hook in production: nothing happens."""
