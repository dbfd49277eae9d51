"""Tables for people: whole names, nothing wider than the terminal, and no text that reaches the terminal raw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from faultline.cli.output import laid_out, table


def test_a_cell_that_is_too_wide_goes_on_below_and_the_name_stays_whole() -> None:
    name, said = "inc-0123456789abcdef", "the node stays closed until somebody has repaired it"
    head, *lines = laid_out([["id", "waits for", "title"], [name, said, "GPU fell off the bus"]], 60)
    assert head.split() == ["id", "waits", "for", "title"]
    assert lines[0].startswith(name)
    assert len(lines) > 1
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(" ".join(line[22:].split("  ")[0] for line in lines).split()).startswith("the node stays")


LONG = "gpu-" + "a" * 240 + ".east-017"
WHY = "the node stays closed until somebody has repaired it"


@pytest.mark.parametrize("column", [0, 1])
def test_a_name_of_253_characters_loses_its_middle_and_leaves_the_others_their_room(column: int) -> None:
    row = ["gpu-1", "gpu-2", WHY]
    row[column] = LONG
    head, *lines = laid_out([["node", "other", "why"], row], 80)
    assert all(len(line) <= 80 for line in [head, *lines])
    assert len(lines) <= 4, "what is beside it is not squeezed into a column of a few letters"
    shown = lines[0].split()[column]
    begin, _, end = shown.partition("…")
    assert LONG.startswith(begin)
    assert LONG.endswith(end)
    assert end.endswith("017")


def test_what_is_no_terminal_gets_every_name_whole(capsys: pytest.CaptureFixture[str]) -> None:
    table(("node", "other", "why"), [(LONG, LONG + "b", WHY)], empty="")
    out = capsys.readouterr().out.split()
    assert LONG in out
    assert LONG + "b" in out


@given(
    st.lists(
        st.tuples(st.text(max_size=50), st.text(max_size=200), st.text(max_size=200)), min_size=1, max_size=4
    ),
    st.integers(60, 200),
)
def test_whatever_the_cells_hold_no_line_is_wider_than_the_terminal(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    assert all(cell_len(line) <= width for line in laid_out(rows, width))


def test_control_characters_of_a_log_line_never_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table(("title",), [("XID 79 \x1b[2J[red]x[/red]",)], empty="")
    assert capsys.readouterr().out == "title\nXID 79 [2J[red]x[/red]\n"


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    table(("id",), [], empty="no open incident")
    assert capsys.readouterr().out == "no open incident\n"
