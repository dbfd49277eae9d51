"""The threads in `docs/examples/threads` are those that are posted."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.thread_examples import page_with_threads
from streams.model.errors import BadInput

FOLDER = Path(__file__).parents[2] / "docs/examples/threads"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_is_posted(name: str) -> None:
    page = (FOLDER / name).read_text(encoding="utf-8")
    assert page_with_threads(page) == page, "run `make docs`, and read what has changed"


def test_the_index_counts_the_threads_of_each_page() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in PAGES:
        _, _, posted = (FOLDER / name).read_text(encoding="utf-8").partition("## Posted")
        posted, _, before = posted.partition("## Before")
        now = 0 if "(no thread)" in posted else posted.count("-" * 40) + 1
        row = next(line for line in index.splitlines() if f"({name})" in line)
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[3] == str(now), name
        assert f"made {cells[4]} threads" in before, name


def test_a_page_that_names_no_fault_is_refused() -> None:
    with pytest.raises(BadInput):
        page_with_threads("# A page\n")
