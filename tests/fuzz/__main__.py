"""`python -m tests.fuzz`: fuzz one target after the other, each in a process of its own, and say what was found.

An input that raises ends its target and is kept in `.fuzz/TARGET/`. Every input that reached something new is also repeated to
64 KB: one whose cost grows faster than its length is kept as `slow-…` and fails the run too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS, seeds, words

FOLDER = Path(".fuzz")
_MAX_LEN = 65_536
_HANGS_S = 120
"""By the wall clock, with the timings of `guided.py` in it: only what never ends may reach it on a busy machine."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="which (default: all)")
    parser.add_argument("--seconds", type=int, default=300, help="for each target, its seeds included")
    options = parser.parse_args()
    failed = [name for name in options.targets or TARGETS if not _fuzz(name, options.seconds)]
    print("fuzzing found: " + ", ".join(failed) if failed else "fuzzing found nothing", flush=True)
    return 1 if failed else 0


def _fuzz(name: str, seconds: int) -> bool:
    folder = FOLDER / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds()):
        (corpus / f"seed-{number}").write_bytes(seed[:_MAX_LEN])
    dictionary = folder / "words"
    dictionary.write_text("".join(f'"{word.decode()}"\n' for word in sorted(set(words()))))
    print(f"{name}: {seconds} s", flush=True)
    run = subprocess.run(
        [
            sys.executable, "-m", "tests.fuzz.guided", name, str(folder),
            f"-max_total_time={seconds}", f"-max_len={_MAX_LEN}", f"-dict={dictionary}", f"-timeout={_HANGS_S}",
            f"-report_slow_units={_HANGS_S}", "-rss_limit_mb=2048",
            f"-artifact_prefix={folder}/", "-print_final_stats=1", str(corpus),
        ],
        check=False,
    )  # fmt: skip
    slow = list(folder.glob("slow-*"))
    return run.returncode == 0 and not slow


if __name__ == "__main__":
    sys.exit(main())
