import os
from pathlib import Path

import pytest

from faultline.reference.__main__ import pages
from faultline.reference.markdown import code, table, text
from faultline.runtime.settings import Settings
from streams.job_kinds.known import KNOWN

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN = pages()


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_reference_page_says_what_the_code_says(name: str) -> None:
    path = FOLDER / name
    on_disk = path.read_text(encoding="utf-8") if path.exists() else ""
    assert on_disk == WRITTEN[name], f"docs/reference/{name} is stale: run `make docs`"


def test_the_reference_has_no_page_that_nothing_writes() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name for name in WRITTEN if "/" not in name}


def test_the_page_of_jobs_names_every_kind_with_its_versions_and_what_its_owner_is_told() -> None:
    page = WRITTEN["../jobs.md"]
    for kind in KNOWN.values():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{kind.name}` |")]
        assert all(f"`{version}`" in row for version in kind.api_versions)
        assert f"**{kind.name}**: Its owner is told" in page or not kind.no_means


def test_a_page_is_the_same_on_every_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "37")
    monkeypatch.setenv("FAULTLINE_CLUSTER", "elsewhere")
    assert os.environ["COLUMNS"] == "37"
    assert pages() == WRITTEN


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<script>", "&lt;script&gt;"),
        ("one\ntwo", "one two"),
        ("*bold* _it_ [x](y)", "\\*bold\\* \\_it\\_ \\[x\\](y)"),
        ("`code`", "\\`code\\`"),
    ],
)
def test_plain_text_is_never_read_as_markup(raw: str, shown: str) -> None:
    assert text(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("", ""),
        ("a", "`a`"),
        ("a|b", "`a\\|b`"),
        ("a`b", "`` a`b ``"),
        ("a\nb", "`a b`"),
    ],
)
def test_code_keeps_its_characters_and_its_cell(raw: str, shown: str) -> None:
    assert code(raw) == shown


def test_a_table_has_as_many_cells_in_every_row_as_in_its_head() -> None:
    head, rule, *rows, _ = table(("a", "b"), [(code("x|y"), text("p|q"))])
    assert [line.replace("\\|", "").count("|") for line in (head, rule, *rows)] == [3, 3, 3]


def test_every_setting_has_a_meaning() -> None:
    """A row whose last cell is empty would leave the reader guessing."""
    rows = [line for line in WRITTEN["settings.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > len(Settings.model_fields)
    assert [row for row in rows if row.endswith("|  |")] == []
