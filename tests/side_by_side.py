"""`python -m tests.side_by_side TIER [PYTEST ARGUMENT …]`: the tests of a tier, in four parts at once.

They mostly wait for servers, so four parts take little longer than the longest alone. Each part starts servers of its own.
What failed is named once more at the very end, where also a reader sees it who is shown only the tail.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

from tests.testbed import machinery, parts
from tests.tiers import Tier

PARTS = {
    "cluster": "cluster and not containers",
    "broker": "kafka and not cluster and not containers",
    "embedded": "not kafka and not cluster and not containers",
    "containers": "containers",
}
"""Tests of the control plane, of a real broker, of neither, and in containers, by pytest's markers: each test in one of them."""

_IN_TWO = ("-n", "2", "--dist", "loadfile")
_OPTIONS = {"embedded": _IN_TWO, "cluster": _IN_TWO}
"""Parts that take longest are run by two processes each: in a row their tests waited for 20 minutes, with an idle core beside."""

_NOTHING_SELECTED = 5
_FAILURES = ("FAILED ", "ERROR ")
"""How the lines begin in which pytest sums up a failure."""


def main(tier: Tier, arguments: Sequence[str]) -> int:
    """Run all, each line of output under its part's name; the exit code is 0 when none failed.

    When all tests of the server tier passed, those of the machinery were among them: that is noted for the next time.
    """
    machine = machinery.digest()  # as it is before anybody changes it while the tests run
    runs = {
        name: _start(marks, [f"--tier={tier}", *_OPTIONS.get(name, ()), *arguments])
        for name, marks in PARTS.items()
    }
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
    worst = max(0 if code == _NOTHING_SELECTED else abs(code) for code in codes.values())
    if worst == 0 and tier is Tier.SERVER and not arguments and not parts.missing("kafka", "cluster"):
        machinery.note_tested(machine)
    return worst


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
    sys.exit(main(Tier(sys.argv[1]), sys.argv[2:]))
