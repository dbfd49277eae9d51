"""One process that replays one side: gets its `Side` by standard input, gives what was decided by standard output."""

from __future__ import annotations

import os
import pickle
import sys
import threading


def main() -> None:
    """Replay, and tell what was decided or why nothing was.

    Its modules are imported here: a table with a fault is told of like any other bad input.
    """
    from streams.model.errors import BadInput, ConfigError

    try:
        answer = _answer()
    except (BadInput, ConfigError) as error:
        from faultline.replay.what_if.failed import Failed

        answer = Failed(str(error))
    pickle.dump(answer, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
    sys.stdout.buffer.flush()


def _answer() -> object:
    from faultline.replay.what_if.decide import decided

    side = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_whoever_asked, daemon=True).start()
    return decided(side)


def _end_with_whoever_asked() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing comes, only the end
    os._exit(1)


if __name__ == "__main__":
    main()
