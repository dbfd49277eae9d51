"""Parses CEL into a tree of bounded size: what is refused here is never evaluated.

CEL has no loops besides its macros over lists, so the cost of an expression is bounded by its length, its nesting and the
length of the lists it iterates over, once macros are not nested. Patterns are matched in linear time (RE2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import celpy
from celpy.celparser import CELParseError, CELParser
from lark import Token, Tree, UnexpectedToken

MAX_SOURCE = 600
MAX_DEPTH = 100
"""Levels of the tree: nine brackets inside one another, or some 45 terms in a row. Evaluating a level takes five calls."""

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter", "reduce", "min"})
"""Methods that iterate over a list. The last two are extensions of the evaluator that the type check refuses."""


class _Placed(CELParser):
    """The parser, but with the positions of `true` and `false`."""

    @staticmethod
    def ambiguous_literals(t: Token) -> Token:
        """Tell literals from names."""
        return Token.new_borrow_pos("BOOL_LIT", t.value, t) if t.value in ("true", "false") else t


@cache
def cel() -> celpy.Environment:
    """The evaluator. It is made when it is first needed: reading its grammar takes longer than most commands do."""
    _Placed()  # The library reads its grammar once per process, with the literals of the first parser made.
    return celpy.Environment()


_PASSED_THROUGH = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member", "primary",
     "paren_expr"}
)  # fmt: skip
"""Rules of the grammar that only pass on their child while they have a single one."""

Node = Tree[Token]


class CelFault(ValueError):
    """Something wrong in an expression, at a line and column of its source (both from 1)."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that must all hold. Equal conditions have equal `key`s, however they are formatted."""

    key: tuple[Any, ...]
    tree: Node
    names: frozenset[str]


def parse(source: str) -> Node:
    """The tree of an expression that is small enough to be evaluated.

    Raises:
        CelFault: it is no CEL, too long, too deeply nested, or has more than one macro.
    """
    if len(source) > MAX_SOURCE:
        raise CelFault(f"an expression of {len(source)} characters, limit {MAX_SOURCE}")
    try:
        tree: Node = cel().compile(source)
    except CELParseError as error:
        raise _no_cel(source, error) from error
    _refuse_depth(tree)
    calls = [node.children[1] for node in tree.find_data("member_dot_arg") if node.children[1] in MACROS]
    if len(calls) > 1:
        raise fault("more than one macro over a list in one expression", max(calls, key=_place))
    return tree


def core(node: Node) -> Node:
    """The node without the brackets and levels of precedence around it."""
    while node.data in _PASSED_THROUGH and len(node.children) == 1:
        child = node.children[0]
        assert isinstance(child, Tree)
        node = child
    return node


def fault(message: str, where: object) -> CelFault:
    """A fault at a node or token; at the start for an empty list, which has no position."""
    at = where.meta if isinstance(where, Tree) else where
    return CelFault(message, getattr(at, "line", None) or 1, getattr(at, "column", None) or 1)


def conjuncts(tree: Node) -> tuple[Conjunct, ...]:
    """The parts between the outermost `&&` of an expression, each once."""
    found: dict[tuple[Any, ...], Conjunct] = {}
    for node in _split(tree):
        found.setdefault(key := _key(node), Conjunct(key, node, frozenset(_identifiers(node))))
    return tuple(found.values())


def source_of(node: Node, source: str) -> str:
    """The source text of a part of an expression."""
    return source[node.meta.start_pos : node.meta.end_pos]


def path_of(node: Node) -> tuple[str, ...]:
    """The names in `incident.root.node`, empty where the node is anything else."""
    node = core(node)
    if node.data == "ident":
        return (str(node.children[0]),)
    if node.data == "member_dot":
        owner, name = node.children
        assert isinstance(owner, Tree)
        before = path_of(owner)
        return (*before, str(name)) if before else ()
    return ()


def text_of(node: Node) -> str | None:
    """The value of a text literal, None where the node is anything else."""
    node = core(node)
    if node.data != "literal" or getattr(node.children[0], "type", "") not in ("STRING_LIT", "MLSTRING_LIT"):
        return None
    return str(cel().program(node).evaluate({}))


def arguments(node: Node) -> list[Node]:
    """The arguments of a call, or the items of a list."""
    last = node.children[-1] if node.children else None
    if isinstance(last, Tree) and last.data == "exprlist":
        return [child for child in last.children if isinstance(child, Tree)]
    return []


def _no_cel(source: str, error: CELParseError) -> CelFault:
    cause = error.__context__
    if isinstance(cause, UnexpectedToken) and cause.token.type == "$END":
        lines = source.splitlines() or [""]
        return CelFault("not CEL: it ends too early", len(lines), max(1, len(lines[-1])))
    line, column = max(1, error.line or 1), max(1, error.column or 1)
    rest = (source.splitlines()[line - 1 : line] or [""])[0][column - 1 :]
    return CelFault(f"not CEL: it cannot go on with {rest[:20]!r}", line, column)


def _refuse_depth(tree: Node) -> None:
    waiting: list[tuple[Node, int]] = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise fault("nested too deeply, or too many terms in a row", node)
        waiting += [(child, depth + 1) for child in node.children if isinstance(child, Tree)]


def _place(token: Token | Node) -> int:
    assert isinstance(token, Token)
    return token.start_pos or 0


def _split(node: Node) -> Iterator[Node]:
    node = core(node)
    if node.data != "conditionaland":
        yield node
        return
    for child in node.children:
        assert isinstance(child, Tree)
        yield from _split(child)


def _key(node: Node) -> tuple[Any, ...]:
    node = core(node)
    return (
        str(node.data),
        *(_key(child) if isinstance(child, Tree) else str(child) for child in node.children),
    )


def _identifiers(node: Node) -> Iterator[str]:
    for part in node.iter_subtrees():
        if part.data == "ident":
            yield str(part.children[0])
