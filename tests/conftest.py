"""Fixtures for the whole suite, and the rule that a test which needs the testbed never silently stays out.

A test marked ``kafka`` or ``cluster`` on a machine without the builds is skipped with its reason and counted
in a section of its own at the end; in continuous integration it is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.testbed import parts
from tests.testbed.build import in_ci
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

MARKERS = ("kafka", "cluster", "rsyslog", "telegraf", "containers")
# How long an example takes says how busy the machine is. What else holds by default (in continuous integration the same
# examples each time) stays.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
NOT_RUN = pytest.StashKey[Counter[str]]()


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep a test from starting when what it needs is not built."""
    absent = [name for marker in MARKERS if item.get_closest_marker(marker) for name in parts.missing(marker)]
    if not absent:
        return
    reason = f"not built: {', '.join(absent)} ('make testbed' builds it)"
    if in_ci():
        pytest.fail(reason, pytrace=False)
    item.config.stash.setdefault(NOT_RUN, Counter())[reason] += 1
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the end how many tests did not run for want of the testbed."""
    not_run = config.stash.get(NOT_RUN, Counter[str]())
    if not_run:
        terminalreporter.section("NOT RUN", sep="=", red=True, bold=True)
    for reason, count in not_run.items():
        terminalreporter.line(f"NOT RUN: {count} test(s), {reason}", red=True)
