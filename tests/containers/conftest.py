"""The engine with the project's image, built once for a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed import images
from tests.testbed.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine that has the project's image as the sources are now. Mark the test ``containers``."""
    with Engine.held() as held:
        images.build_project(held)
        yield held
