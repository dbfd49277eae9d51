"""libyaml reads a document as the slow loader does, to the place of every value; what it cannot read, that one words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runbooks.language import yaml_source
from runbooks.language.loader import LIBRARY, yaml_files
from streams.config.yaml_tables import LOADER
from streams.model.errors import ConfigError

SHIPPED = {str(path.relative_to(LIBRARY)): path.read_text(encoding="utf-8") for path in yaml_files(LIBRARY)}
ODD = """\
"quoted: key": 'it''s'
folded: >-
  a
  b

  c
literal: |
  NVRM: Xid 79  # no comment
? long key
: {flow: [1, ~, 2026-03-01, é, "\\u00e9\\n"]}
empty:
"""
LINES = st.lists(
    st.text("ab:-#'\"[]{},&*!|>?%@ \t", max_size=12).map(lambda text: f"{text}\n"), max_size=6
).map("".join)


def spelled(node: yaml.Node) -> Iterator[tuple[object, ...]]:
    """Everything of a tree that anybody here looks at."""
    mark = node.start_mark
    own = node.value if isinstance(node, yaml.ScalarNode) else len(node.value)
    style = getattr(node, "style", None) if isinstance(node, yaml.ScalarNode) else None
    yield node.tag, own, style or None, mark.name, mark.line, mark.column, mark.pointer
    for item in node.value if isinstance(node, yaml.CollectionNode) else ():
        for part in item if isinstance(item, tuple) else (item,):
            yield from spelled(part)


def read(text: str, monkeypatch: pytest.MonkeyPatch, loader: type) -> object:
    with monkeypatch.context() as patched:
        patched.setattr(yaml_source, "LOADER", loader)
        try:
            return list(spelled(yaml_source.compose(text, "mine.yaml")))
        except ConfigError as error:
            return str(error)


@pytest.mark.parametrize("text", [*SHIPPED.values(), ODD], ids=[*SHIPPED, "odd"])
def test_both_loaders_find_the_same_values_at_the_same_places(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOADER is not yaml.SafeLoader, "PyYAML's wheels have libyaml"
    fast, slow = read(text, monkeypatch, LOADER), read(text, monkeypatch, yaml.SafeLoader)
    assert fast == slow
    assert isinstance(fast, list)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: &b 1",
        "a: *b",
        "a:\n\t- b",
        "a: 1\n b: 2",
        "{" * 40,
        "a: !tag 1",
        "- a",
        "",
        "a: \x07",
        f"a: {'[' * 20}{']' * 20}",
        "a: \ud800",
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = read(text, monkeypatch, LOADER), read(text, monkeypatch, yaml.SafeLoader)
    assert fast == slow


@given(text=LINES)
def test_what_both_read_is_the_same(text: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        fast, slow = read(text, monkeypatch, LOADER), read(text, monkeypatch, yaml.SafeLoader)
    if isinstance(fast, list) and isinstance(slow, list):
        assert fast == slow
