"""`python -m tests.side_by_side [PYTEST ARGUMENT …]`: the tests on real servers, in three pytest runs at once.

They mostly wait for servers, so three parts take little longer than the longest alone. Each part starts servers of its own.
What failed is named once more at the very end, where also a reader sees it who is shown only the tail.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

PARTS = {
    "cluster": "cluster and not containers",
    "broker": "(kafka or embedded) and not cluster and not containers",
    "containers": "containers",
}
"""The control plane's tests, all others that take real time, and those in containers, by pytest's markers."""

_NOTHING_SELECTED = 5
_FAILURES = ("FAILED ", "ERROR ")
"""How the lines begin in which pytest sums up a failure."""


def main(arguments: Sequence[str]) -> int:
    """Run all, each line of output under its part's name; the exit code is 0 when none failed."""
    runs = {name: _start(marks, arguments) for name, marks in PARTS.items()}
    failures: list[str] = []
    tellers = [threading.Thread(target=_tell, args=(name, run, failures)) for name, run in runs.items()]
    for teller in tellers:
        teller.start()
    for teller in tellers:
        teller.join()
    codes = {name: run.wait() for name, run in runs.items()}
    for failure in failures:
        print(failure)
    for name, code in codes.items():
        print(f"{name}: exit code {code}", flush=True)
    if all(code == _NOTHING_SELECTED for code in codes.values()):
        return _NOTHING_SELECTED
    return max(0 if code == _NOTHING_SELECTED else abs(code) for code in codes.values())


def _start(marks: str, arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-m", marks, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _tell(name: str, run: subprocess.Popen[str], failures: list[str]) -> None:
    assert run.stdout is not None, "asked for above"
    for line in run.stdout:
        print(f"{name}: {line}", end="", flush=True)
        if line.startswith(_FAILURES):
            failures.append(f"{name}: {line.rstrip()}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
