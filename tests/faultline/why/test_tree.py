"""Trees of sentences: guides, folding, wrapping."""

from __future__ import annotations

from faultline.why.tree import branch, lines, printable

TREE = branch(
    "incident",
    "top",
    [
        branch(
            "evidence", "evidence", [branch("proof", f"line {n}", [branch("line", "raw")]) for n in range(4)]
        ),
        branch("missing", "missing"),
    ],
)


def test_a_branch_below_the_depth_is_counted_and_not_shown() -> None:
    assert list(lines(TREE, depth=1)) == ["top", "├─ evidence  (+4)", "└─ missing"]


def test_more_branches_than_fit_are_one_line_that_says_how_to_see_them() -> None:
    shown = list(lines(TREE, most=2))
    assert "│  └─ … and 2 more (--all)" in shown
    assert sum("line" in line for line in shown) == 2


def test_everything_is_shown_without_bounds() -> None:
    assert sum("raw" in line for line in lines(TREE)) == 4


def test_a_long_sentence_is_wrapped_under_its_own_guide() -> None:
    tree = branch("incident", "top", [branch("a", "word " * 20, [branch("b", "below")]), branch("c", "last")])
    shown = list(lines(tree, width=40))
    assert all(len(line) <= 40 for line in shown)
    assert all(line.startswith(("├─ ", "│  ")) for line in shown[1:-1])


def test_control_characters_of_a_log_line_do_not_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb") == "a\\x1b[31mb"


def test_values_that_are_not_known_are_left_out_of_the_document() -> None:
    assert branch("proof", "x", count=1, line=None).plain() == {"kind": "proof", "text": "x", "count": 1}
