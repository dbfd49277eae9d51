"""Blocks that need an installation are run against one, which has the incidents and nodes that they name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.docs.pages import Block, Needs, command_blocks
from tests.docs.prepared import Prepared

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module")]

FIRST = r"faultline (incidents approve|incidents show|nodes release)"
LAST = ("guard", "rollout", "maintenance")
"""Commands after which no run would start or wait any more; in this order at the end."""


def when(block: Block) -> int:
    return max((n + 1 for n, word in enumerate(LAST) if f"faultline {word}" in block.text), default=0)


BLOCKS = sorted((b for b in command_blocks() if b.needs is Needs.INSTALLATION), key=when)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prepared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prepared]:
    async with Prepared.installation(tmp_path_factory.mktemp("docs")) as installation:
        yield installation


def of_tier(block: Block) -> object:
    """What operators type first at every commit; all else, which takes many minutes, at night."""
    is_first = not block.place.endswith("--help") and re.search(FIRST, block.text) is not None
    marks = [] if is_first else [pytest.mark.nightly]
    return pytest.param(block, id=block.place, marks=marks)


@pytest.mark.parametrize("block", [of_tier(block) for block in BLOCKS])
async def test_a_block_that_needs_an_installation_does_what_it_says(block: Block, prepared: Prepared) -> None:
    await prepared.run(block)
