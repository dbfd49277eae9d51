"""One replay in a process of its own, for `bench/replay.py`: `python -m bench.replay_pass CAPTURE PROCESSES` tells its cost."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import orjson

from faultline.replay.capture import read
from faultline.replay.replay import replay_capture
from runbooks.language.loader import load as load_runbooks


def main() -> None:
    """Replay once. Imports and runbooks are loaded before; catalogs are part of it, as those of other processes are."""
    runbooks = load_runbooks()
    begin, before = time.perf_counter(), _cpu_s()
    decided = replay_capture(read(Path(sys.argv[1])), runbooks=runbooks, processes=int(sys.argv[2]))
    line = {
        "seconds": time.perf_counter() - begin,
        "cpu_s": _cpu_s() - before,
        "records": decided.records,
        "signals": decided.signals,
        "incidents": len(decided.incidents),
        "hash": decided.decision_hash,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "rss_of_others_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }
    print(orjson.dumps(line).decode())


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
