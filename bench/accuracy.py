"""How much of what a cluster says is found, how exactly, and how often something harmless is taken for a fault.

Reads the corpus of the tests (`tests/streams/detect/corpus/*.jsonl`) or files given on the command line, each case in the
two ways in which lines come in: as Kafka records and as `faultline detect` reads them. A case counts as found when every
expected signal is there with its kind, place and state; as exact when all its fields are as expected too and nothing else was
raised.

Figures: `recall`, `exact` (share of the expected signals; 1 is all), `false_alarms` (share of look-alikes that raised
anything), `reports`, `look_alikes` (how many of each), `families` (the same for each family).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, progress, report
from tests.streams.detect.cases import Case, Way, cases_of, from_kafka, from_the_command, missing

CORPUS = Path(__file__).parent.parent / "tests/streams/detect/corpus"
WAYS: tuple[Way, ...] = (from_kafka, from_the_command)


@dataclass
class Score:
    """Of one family, or of all."""

    expected: int = 0
    found: int = 0
    exact: int = 0
    look_alikes: int = 0
    alarms: int = 0

    def figures(self) -> dict[str, Figure]:
        """As they are printed; None where there was nothing to judge."""
        return {
            "recall": self.found / self.expected if self.expected else None,
            "exact": self.exact / self.expected if self.expected else None,
            "false_alarms": self.alarms / self.look_alikes if self.look_alikes else None,
            "reports": self.expected,
            "look_alikes": self.look_alikes,
        }


def judge(case: Case, way: Way, scores: list[Score]) -> None:
    """Put one case through the detector and count what came of it."""
    signals = way(case)
    if "expect" not in case:
        for score in scores:
            score.look_alikes += 1
            score.alarms += bool(signals)
        if signals:
            progress(f"  false alarm ({way.__name__}): {signals[0].kind} from {str(case['records'])[:200]}")
        return
    unfound, wrong = missing(case, signals)
    extra = len(signals) - (len(case["expect"]) - len(unfound))
    for score in scores:
        score.expected += len(case["expect"])
        score.found += len(case["expect"]) - len(unfound)
        score.exact += max(0, len(case["expect"]) - len(unfound) - max(len(wrong), min(extra, 1)))
    if unfound or wrong or extra:
        told = (
            f"not found {unfound}"
            if unfound
            else f"wrong {wrong}"
            if wrong
            else f"{extra} more than expected"
        )
        progress(f"  miss ({way.__name__}): {told} in {str(case['records'])[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help="corpus files (default: the tests' own)")
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    options = parser.parse_args()
    total = Score()
    families: defaultdict[str, Score] = defaultdict(Score)
    for path in options.files or sorted(CORPUS.glob("*.jsonl")):
        progress(f"{path.name} …")
        for case in cases_of(path):
            for way in WAYS:
                judge(case, way, [total, families[case["family"]]])
    report({**total.figures(), "families": {name: families[name].figures() for name in sorted(families)}})


if __name__ == "__main__":
    main()
