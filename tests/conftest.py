"""Fixtures for the whole suite, and the rule that a test which needs the testbed never silently stays out.

A test that needs a part of the testbed is skipped with its reason on a machine that has not built it, and counted in a section
of its own at the end; in continuous integration it is an error. ``--tier`` chooses which tests run (``tests/tiers.py``).
"""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from tests import effort, tiers
from tests.testbed import machinery, parts
from tests.testbed.build import in_ci
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

effort.load_profile()
_NOT_BUILT = "not built: "


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for the whole run; make topics under names of your own and leave them.

    Mark the test ``kafka``. Whoever stops, kills or freezes a broker starts one of its own:
    ``Kafka.running(tmp_path)``.
    """
    with Kafka.running(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for the whole run; use pools and namespaces of your own.

    Mark the test ``cluster``. Whoever kills or freezes a part of it starts one of its own:
    ``ControlPlane.running(tmp_path)``.
    """
    with ControlPlane.running(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the choice of tiers."""
    choices = [tier.value for tier in tiers.Tier]
    parser.addoption("--tier", choices=choices, action="append", help="only the tests of this tier")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without any test of the server tier that has the markers asked for, where no other tier is wanted."""
    if config.getoption("--tier") != [tiers.Tier.SERVER] or not collection_path.name.startswith("test_"):
        return None
    markers = tiers.wanted_markers(config.getoption("markexpr"))
    return None if tiers.may_hold(collection_path, markers) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tiers that were asked for, or all."""
    wanted = config.getoption("--tier")
    if not wanted:
        return
    tested = tiers.Tier.NIGHTLY in wanted or machinery.tested()  # at night the machinery is tested anyhow
    by_tier: defaultdict[tiers.Tier, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_tier[tiers.tier_of_item(item, machinery_tested=tested)].append(item)
    if tiers.Tier.QUICK in wanted:
        _require_named_markers(by_tier[tiers.Tier.SERVER])
    left_out = {item for tier, found in by_tier.items() if tier not in wanted for item in found}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _require_named_markers(items: Iterable[pytest.Item]) -> None:
    """Every marker by which the server tier leaves out files has to stand in the file of a test that has it."""
    needs: defaultdict[Path, set[str]] = defaultdict(set)
    for item in items:
        needs[item.path] |= {mark.name for mark in item.iter_markers()} & tiers.SERVERS
    for path, markers in needs.items():
        if not tiers.may_hold(path, markers):
            raise pytest.UsageError(
                f"{path}: has tests marked {', '.join(sorted(markers))} and does not name each of these"
            )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is collected out of every search for garbage: each would go through all modules and items, which are kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep a test from starting when what it needs is not built."""
    absent = [
        name for marker in tiers.NEEDS if item.get_closest_marker(marker) for name in parts.missing(marker)
    ]
    if not absent:
        return
    reason = f"{_NOT_BUILT}{', '.join(absent)} ('make testbed' builds it)"
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end how many tests did not run for want of the testbed."""
    skipped = [
        report for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)
    ]
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in skipped]
    not_run = Counter(reason for reason in reasons if reason.startswith(_NOT_BUILT))
    if not_run:
        terminalreporter.section("NOT RUN", sep="=", red=True, bold=True)
    for reason, count in not_run.items():
        terminalreporter.line(f"NOT RUN: {count} test(s), {reason}", red=True)
