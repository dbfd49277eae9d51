"""When each test runs. Every test is in exactly one tier; what it *needs* (a broker, a control plane) is another question.

| tier    | marker          | runs                                                                           |
|---------|-----------------|--------------------------------------------------------------------------------|
| quick   | none            | with every change (`make quick`): Python and seconds                           |
| server  | from its needs  | with every commit (`make test`): an invariant that only a real server can show |
| nightly | `nightly`       | at night (`make nightly`): full products, contests, storms, twins of a story   |

A test that needs a server is in the server tier unless it is marked `nightly`. A test of the test machinery (`machinery`) is in
the server tier while the machinery differs from what was last tested on this machine, and otherwise nightly.

`python -m tests.tiers` prints how many tests of each file are in which tier.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

NEEDS = (
    "kafka",
    "cluster",
    "helm",
    "rsyslog",
    "telegraf",
    "alertmanager",
    "prometheus",
    "slurm",
    "containers",
    "browser",
)
"""Markers of tests that need a part of the testbed: `make testbed` builds it, and they do not run without it."""

SERVERS = frozenset({*NEEDS, "embedded", "server"})


class Tier(StrEnum):
    """When a test runs."""

    QUICK = "quick"
    SERVER = "server"
    NIGHTLY = "nightly"


def tier_of(markers: Collection[str], *, machinery_tested: bool) -> Tier:
    """The tier of a test with these markers, on a machine where the present machinery was tested or not."""
    if "nightly" in markers:
        return Tier.NIGHTLY
    if "machinery" in markers:
        return Tier.NIGHTLY if machinery_tested else Tier.SERVER
    return Tier.SERVER if SERVERS.intersection(markers) else Tier.QUICK


def tier_of_item(item: pytest.Item, *, machinery_tested: bool) -> Tier:
    """The tier of a collected test."""
    return tier_of({mark.name for mark in item.iter_markers()}, machinery_tested=machinery_tested)


def may_hold(file: Path, markers: Collection[str]) -> bool:
    """Whether a file may hold tests of the server tier that have all of these markers, by the markers that it and the fixtures
    beside it name.

    Of all files a quarter does, and collecting the others takes most of what collecting takes. A marker that a file's tests have
    without naming it would be missed here: the quick tier, which collects all files, tells of such ones (`tests/conftest.py`).
    """
    beside = (
        folder / "conftest.py"
        for folder in file.parents
        if folder.is_relative_to(_TESTS) and folder != _TESTS
    )
    named = _named(file).union(*map(_named, beside))
    return not named.isdisjoint(SERVERS | {"machinery"}) and named.issuperset(markers)


def wanted_markers(expression: str) -> set[str]:
    """The markers that a test must have to be selected by an expression like `kafka and not cluster`; none of any other form."""
    parts = [part.strip() for part in expression.split(" and ")]
    plain = all(_PLAIN.fullmatch(part) for part in parts)
    return {part for part in parts if not part.startswith("not ")} if plain else set()


@cache
def _named(file: Path) -> frozenset[str]:
    return frozenset(_MARK.findall(file.read_text())) if file.is_file() else frozenset()


_TESTS = Path(__file__).parent
_MARK = re.compile(r"\bmark\.(\w+)")
_PLAIN = re.compile(r"(not )?\w+")


def sample(values: Iterable[str], *every_commit: str) -> list[ParameterSet]:
    """The values as parameters of a test, of which all but those named run only at night."""
    return [pytest.param(v, marks=[] if v in every_commit else [pytest.mark.nightly]) for v in values]


class _Census:
    """A pytest plugin that counts instead of running."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Tier]] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            file, tier = item.nodeid.partition("::")[0], tier_of_item(item, machinery_tested=True)
            self.counts[file, tier] += 1


def main() -> int:
    """Print the table of files and tiers."""
    census = _Census()
    code = pytest.main(["--collect-only", "-o", "addopts=", "-p", "no:terminal"], plugins=[census])
    files = sorted({file for file, _ in census.counts})
    print(f"{'file':64}" + "".join(f"{tier:>9}" for tier in Tier))
    for file in files:
        print(f"{file:64}" + "".join(f"{census.counts[file, tier] or '':>9}" for tier in Tier))
    totals = {tier: sum(census.counts[file, tier] for file in files) for tier in Tier}
    print(f"{'all':64}" + "".join(f"{totals[tier]:>9}" for tier in Tier))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
