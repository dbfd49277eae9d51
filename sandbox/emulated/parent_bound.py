"""Run a program that cannot outlive its parent: `python -m sandbox.emulated.parent_bound PARENT COMMAND…`.

The parent-death signal survives the exec, so it works for any program. It is set in the child and not in a hook between fork
and exec, which is unsafe once the parent runs threads. Only Linux has it; elsewhere children end because their parent stops
them, and because their standard input closes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie_to(parent: int) -> None:
    """Ask the kernel to kill this process when `parent` is gone; exit at once when it is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")


if __name__ == "__main__":
    tie_to(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
