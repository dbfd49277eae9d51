from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runbooks.herd import Herd


@pytest.fixture
def herds() -> Iterator[list[Herd]]:
    """Herds of the test, ended with it."""
    found: list[Herd] = []
    yield found
    for herd in found:
        herd.stop()
