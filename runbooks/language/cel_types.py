"""Type check of an expression before it is evaluated: unknown names, comparisons that never hold, wrong calls.

CEL compares only like with like, and the evaluator reports that too late: a condition that fails is false, and its runbook looks
like one that does not match. What only some incidents have (`incident.facts`) may be of any type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import re2
from lark import Token, Tree

from runbooks.language.cel_syntax import CelFault, Node, arguments, core, fault, path_of, text_of
from runbooks.language.yaml_source import did_you_mean

MAX_PATTERN = 200
_QUIET = re2.Options()
_QUIET.log_errors = False


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a part of an expression. `words` are the values that a text can have, where they are known."""

    name: str
    item: Type | None = None
    fields: Mapping[str, Type] | None = None
    words: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


YES_NO = Type("yes or no")
INTEGER = Type("a whole number")
NUMBER = Type("a number with a fraction")
TEXT = Type("text")
ANY = Type("anything")
FACTS = Type("facts")
"""A mapping whose names are not known beforehand."""

_ORDERED = (INTEGER.name, NUMBER.name, TEXT.name)
_NUMBERS = (INTEGER.name, NUMBER.name)
_OPERANDS = {"addition_add": _ORDERED, "multiplication_mod": (INTEGER.name,)}
"""Types that `+` and `%` take; all other arithmetic takes `_NUMBERS`."""

_FUNCTIONS = {"int": INTEGER, "double": NUMBER, "string": TEXT}
"""Conversions, with the type that each returns."""
_MACROS = ("all", "exists", "exists_one", "map", "filter")
_TEXT_METHODS = ("contains", "startsWith", "endsWith", "matches")


def one_of(*words: str) -> Type:
    """Text that is one of a few words."""
    return Type(TEXT.name, words=frozenset(words))


def record(**fields: Type) -> Type:
    """A value with these names and no others."""
    return Type("a group of names", fields=fields)


def listing(item: Type) -> Type:
    """A list of one kind of thing."""
    return Type(f"a list of {item}" if item is not ANY else "a list", item=item)


@dataclass(frozen=True, slots=True)
class Mention:
    """A text that a field of the incident is compared with, e.g. a family, and its place in the source."""

    path: tuple[str, ...]
    word: str
    line: int
    column: int


@dataclass(slots=True)
class Checked:
    """The result of a check: the type of the whole expression, every fault, and the texts that fields are compared with."""

    type: Type = ANY
    faults: list[CelFault] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    reads: set[tuple[str, ...]] = field(default_factory=set)
    """Every path that is read, e.g. ("parameters", "settle_s")."""


def check(tree: Node, names: Mapping[str, Type]) -> Checked:
    """Find every fault in an expression over `names`."""
    found = Checked()
    found.type = _Checker(found, dict(names)).type_of(tree)
    return found


def fits(given: Type, wanted: Type) -> bool:
    """Whether a value of one type can be used where another is expected."""
    return ANY in (given, wanted) or given.name == wanted.name


# Rules about types alone. Each returns what is wrong; empty when nothing is.


def _mixed_numbers(one: Type, other: Type) -> str:
    if {one.name, other.name} != {INTEGER.name, NUMBER.name}:
        return ""
    return f"{one} beside {other}: write 2.0 for 2, or double(…)"


def _comparison_fault(one: Type, other: Type, *, ordered: bool) -> str:
    if mixed := _mixed_numbers(one, other):
        return mixed
    if not fits(one, other):
        return f"{one} is never compared with {other}"
    if any(kind.fields is not None or kind is FACTS for kind in (one, other)):
        return f"{one} is compared by its parts"
    if ordered and any(kind is not ANY and kind.name not in _ORDERED for kind in (one, other)):
        return f"{one} has no order"
    return ""


def _arithmetic_fault(one: Type, other: Type, operator: str) -> str:
    if mixed := _mixed_numbers(one, other):
        return mixed
    for kind in (one, other):
        if kind is not ANY and kind.name not in _OPERANDS.get(operator, _NUMBERS):
            return f"this is not done with {kind}"
    return "" if fits(one, other) else f"this is not done with {one} and {other}"


def _pattern_fault(pattern: str | None) -> str:
    # A pattern is part of the runbook, never of an incident: text of a log is only ever matched against.
    if pattern is None:
        return "a pattern is written as a literal"
    if len(pattern) > MAX_PATTERN:
        return f"a pattern of {len(pattern)} characters, limit {MAX_PATTERN}"
    try:
        re2.compile(pattern, _QUIET)
    except re2.error as error:
        message = error.args[0] if error.args else error
        return f"not a pattern: {message.decode(errors='replace') if isinstance(message, bytes) else message}"
    return ""


class _Checker:
    """Walks one tree. After a fault a part counts as anything, so that one mistake is reported once."""

    def __init__(self, found: Checked, names: dict[str, Type]) -> None:
        self._found = found
        self._names = names

    def type_of(self, node: Node) -> Type:
        node = core(node)
        rule: Callable[[Node], Type] | None = getattr(self, f"_{node.data}", None)
        return rule(node) if rule else self._fault("this part of CEL is not supported here", node)

    def _fault(self, message: str, where: object) -> Type:
        self._found.faults.append(fault(message, where))
        return ANY

    # What stands for itself.

    def _literal(self, node: Node) -> Type:
        token = node.children[0]
        assert isinstance(token, Token)
        match token.type:
            case "BOOL_LIT":
                return YES_NO
            case "STRING_LIT" | "MLSTRING_LIT":
                return TEXT
            case "FLOAT_LIT":
                return NUMBER
            case "INT_LIT":
                value = int(token, 16 if "0x" in token else 10)
                too_big = not -(2**63) <= value < 2**63
                return self._fault("a number beyond 64 bits", node) if too_big else INTEGER
            case "NULL_LIT":
                return self._fault("null is not supported; use has(…) to test whether a fact exists", node)
            case _:
                return self._fault("bytes and unsigned numbers are not supported", node)

    def _list_lit(self, node: Node) -> Type:
        kinds = [self.type_of(item) for item in arguments(node)]
        known = [kind for kind in kinds if kind is not ANY]
        if any(kind.name != known[0].name for kind in known):
            return self._fault("a list of different kinds of things", node)
        return listing(Type(known[0].name) if known else ANY)

    def _ident(self, node: Node) -> Type:
        name = str(node.children[0])
        if name not in self._names:
            return self._fault(f"there is no `{name}` here{did_you_mean(name, self._names)}", node)
        return self._names[name]

    # Getting at parts.

    def _member_dot(self, node: Node) -> Type:
        owner, name = node.children
        assert isinstance(owner, Tree)
        self._found.reads.add(path_of(node))
        return self._part(self.type_of(owner), str(name), name)

    def _member_index(self, node: Node) -> Type:
        owner, index = node.children
        assert isinstance(owner, Tree)
        assert isinstance(index, Tree)
        kind, by = self.type_of(owner), self.type_of(index)
        if kind.item is not None:
            return kind.item if fits(by, INTEGER) else self._fault("an index is a whole number", index)
        if kind is FACTS:
            return ANY if fits(by, TEXT) else self._fault("a name is text", index)
        if kind.fields is not None:
            name = text_of(index)
            if name is None:
                return self._fault("the name is written as a literal here", index)
            self._found.reads.add((*path_of(owner), name))
            return self._part(kind, name, index)
        return ANY if kind is ANY else self._fault(f"{kind} has no parts", node)

    def _part(self, owner: Type, name: str, where: object) -> Type:
        if owner is FACTS or owner is ANY:
            return ANY
        if owner.fields is None:
            return self._fault(f"{owner} has no part `{name}`", where)
        if name not in owner.fields:
            return self._fault(f"there is no `{name}`{did_you_mean(name, owner.fields)}", where)
        return owner.fields[name]

    # Operators.

    def _expr(self, node: Node) -> Type:
        condition, one, other = _trees(node)
        self._wants(condition, YES_NO)
        kinds = self.type_of(one), self.type_of(other)
        if not fits(*kinds):
            return self._fault(f"either {kinds[0]} or {kinds[1]}: both have to be of one kind", node)
        return kinds[1] if kinds[0] is ANY else kinds[0]

    def _conditionalor(self, node: Node) -> Type:
        for part in _trees(node):
            self._wants(part, YES_NO)
        return YES_NO

    _conditionaland = _conditionalor

    def _unary(self, node: Node) -> Type:
        sign, value = _trees(node)
        if sign.data == "unary_not":
            self._wants(value, YES_NO)
            return YES_NO
        kind = self.type_of(value)
        return kind if kind in (INTEGER, NUMBER, ANY) else self._fault(f"{kind} has no negative", node)

    def _relation(self, node: Node) -> Type:
        first, second = _trees(node)
        (left,), right = _trees(first), second
        one, other = self.type_of(left), self.type_of(right)
        if first.data == "relation_in":
            self._is_in(left, one, right, other)
            return YES_NO
        ordered = first.data not in ("relation_eq", "relation_ne")
        if wrong := _comparison_fault(one, other, ordered=ordered):
            self._fault(wrong, node)
        self._mention(left, one, right)
        self._mention(right, other, left)
        return YES_NO

    def _is_in(self, left: Node, one: Type, right: Node, other: Type) -> None:
        if other is FACTS:
            if not fits(one, TEXT):
                self._fault(f"the name of a fact is text, not {one}", left)
        elif other.item is not None:
            if not fits(one, other.item):
                self._fault(f"{one} is never in {other}", right)
            for item in arguments(core(right)):
                self._mention(left, one, item)
        elif other is not ANY:
            self._fault(f"`in` looks into a list or into facts, not into {other}", right)

    def _mention(self, left: Node, kind: Type, right: Node) -> None:
        path, word = path_of(left), text_of(right)
        if not path or word is None:
            return
        at = fault("", core(right))
        self._found.mentions.append(Mention(path, word, at.line, at.column))
        if kind.words and word not in kind.words:
            self._fault(f"{'.'.join(path)} is never {word!r}{did_you_mean(word, kind.words)}", core(right))

    def _addition(self, node: Node) -> Type:
        first, right = _trees(node)
        (left,) = _trees(first)
        one, other = self.type_of(left), self.type_of(right)
        if wrong := _arithmetic_fault(one, other, first.data):
            return self._fault(wrong, node)
        known = other if one is ANY else one
        return known if known is ANY else Type(known.name)

    _multiplication = _addition

    def _wants(self, node: Node, wanted: Type) -> None:
        kind = self.type_of(node)
        if not fits(kind, wanted):
            self._fault(f"expected {wanted}, this is {kind}", core(node))

    # Calls.

    def _ident_arg(self, node: Node) -> Type:
        name, given = str(node.children[0]), arguments(node)
        match name:
            case "has":
                if self._counted(name, given, 1, node) and core(given[0]).data != "member_dot":
                    return self._fault(
                        "has(…) asks for a name after a dot, e.g. has(incident.facts.xid)", node
                    )
                if given:
                    self.type_of(given[0])
                return YES_NO
            case "size":
                return self._size(given[0], node) if self._counted(name, given, 1, node) else INTEGER
            case _ if name in _FUNCTIONS:
                if self._counted(name, given, 1, node):
                    kind = self.type_of(given[0])
                    if kind is not ANY and kind.name not in _ORDERED:
                        self._fault(f"{name}(…) cannot be made of {kind}", node)
                return _FUNCTIONS[name]
            case _:
                known = ("has", "size", *_FUNCTIONS)
                return self._fault(f"there is no function {name}(…){did_you_mean(name, known)}", node)

    def _member_dot_arg(self, node: Node) -> Type:
        owner, name = node.children[0], str(node.children[1])
        assert isinstance(owner, Tree)
        given = arguments(node)
        if name in _MACROS:
            return self._macro(owner, name, given, node)
        kind = self.type_of(owner)
        if name == "size":
            self._counted(name, given, 0, node)
            return self._size(owner, node)
        if name not in _TEXT_METHODS:
            known = (*_TEXT_METHODS, "size", *_MACROS)
            return self._fault(f"there is no method {name}(…){did_you_mean(name, known)}", node.children[1])
        if not fits(kind, TEXT):
            self._fault(f"{name}(…) is for text, and this is {kind}", owner)
        if self._counted(name, given, 1, node):
            self._wants(given[0], TEXT)
            if name == "matches" and (wrong := _pattern_fault(text_of(given[0]))):
                self._fault(wrong, core(given[0]))
        return YES_NO

    def _macro(self, owner: Node, name: str, given: Sequence[Node], node: Node) -> Type:
        kind = self.type_of(owner)
        if kind is not ANY and kind.item is None:
            self._fault(f"{name}(…) is for a list, and this is {kind}", owner)
        if not self._counted(name, given, 2, node):
            return ANY
        variable = core(given[0])
        if variable.data != "ident":
            return self._fault(f"the first argument of {name}(…) is a name for the item", variable)
        word = str(variable.children[0])
        if word in self._names:
            return self._fault(f"`{word}` is already a name here", variable)
        self._names[word] = kind.item or ANY
        if name == "map":
            result = listing(self.type_of(given[1]))
        else:
            self._wants(given[1], YES_NO)
            result = listing(kind.item or ANY) if name == "filter" else YES_NO
        del self._names[word]
        return result

    def _size(self, of: Node, node: Node) -> Type:
        kind = self.type_of(of)
        if kind is not ANY and kind is not FACTS and kind.item is None and kind.name != TEXT.name:
            self._fault(f"{kind} has no size", node)
        return INTEGER

    def _counted(self, name: str, given: Sequence[Node], wanted: int, node: Node) -> bool:
        if len(given) != wanted:
            self._fault(f"{name}(…) takes {wanted}, here {len(given)} are given", node)
        return len(given) == wanted


def _trees(node: Node) -> Iterator[Node]:
    return (child for child in node.children if isinstance(child, Tree))
