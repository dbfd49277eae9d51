"""Blocks that need an installation are run against one, which has the incidents and nodes that they name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.docs.installations import Installations
from tests.docs.pages import Block, Needs, command_blocks

pytestmark = [pytest.mark.embedded, pytest.mark.asyncio(loop_scope="module")]

FIRST = r"faultline (incidents approve|incidents show|nodes release)"
BLOCKS = [block for block in command_blocks() if block.needs is Needs.INSTALLATION]
CHANGES = """\
faultline guard kill --reason test
faultline guard status -o json | jq -e .kill_switch.on
faultline rollout observe h100 --reason test
faultline rollout list -o json | jq -e '.pools[0].stage == "observe"'
faultline maintenance start gpu-01 --until 1h --reason test
"""
IS_AT_REST = """\
faultline guard status -o json | jq -e '.kill_switch.on == false'
faultline rollout list -o json | jq -e '.pools[0].stage == "act"'
faultline maintenance list -o json | jq -e '.nodes == []'
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installations(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installations]:
    made = Installations(tmp_path_factory.mktemp("docs"))
    yield made
    await made.stop()


def of_tier(block: Block) -> object:
    """What operators type first at every commit; all else, which takes many minutes, at night."""
    is_first = not block.place.endswith("--help") and re.search(FIRST, block.text) is not None
    marks = [] if is_first else [pytest.mark.nightly]
    return pytest.param(block, id=block.place, marks=marks)


@pytest.mark.parametrize("block", [of_tier(block) for block in BLOCKS])
async def test_a_block_that_needs_an_installation_does_what_it_says(
    block: Block, installations: Installations
) -> None:
    await installations.run(block)


@pytest.mark.nightly
async def test_a_block_finds_nothing_of_what_an_earlier_one_changed(installations: Installations) -> None:
    await installations.run(Block("changes", "sh", CHANGES))
    await installations.run(Block("is at rest", "sh", IS_AT_REST))
