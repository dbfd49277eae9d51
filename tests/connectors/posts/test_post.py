"""What a post is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.posts.post import MAX_SUBJECT, Remembered, post_id, post_of
from streams.model.errors import Permanent
from tests.connectors.posts.effects import INCIDENT, MESSAGE, post


def test_a_post_is_read_from_the_params() -> None:
    found = post_of(post(first=False))
    assert (found.message, found.thread, found.first) == (MESSAGE, INCIDENT, False)


@pytest.mark.parametrize(
    ("given", "first"), [(True, True), ("true", True), (False, False), ("false", False), ("", False)]
)
def test_whether_it_is_the_first_may_come_as_a_word(given: bool | str, first: bool) -> None:
    assert post_of(post(first=given)).first is first


def test_a_subject_is_one_line_and_never_empty() -> None:
    assert post_of(post(subject="a\r\nb\u2028c")).subject == "a b c"
    assert post_of(post(subject=" \n ")).subject == f"Incident {INCIDENT}"
    assert len(post_of(post(subject="x" * 5_000_000)).subject) == MAX_SUBJECT


@pytest.mark.parametrize(
    "message", ["", "no json", "{}", '{"summary":1}', '{"summary":"s","blocks":[{"type":"image"}]}']
)
def test_without_a_readable_message_there_is_no_post(message: str) -> None:
    effect = post()
    with pytest.raises(Permanent, match="no message"):
        post_of(replace(effect, params={**effect.params, "message": message}))


def test_an_id_is_that_of_the_effect_in_its_cluster() -> None:
    assert post_id(post("a")) == post_id(post("a", first=False))
    assert post_id(post("a")) != post_id(post("b"))
    assert post_id(post("a")) != post_id(replace(post("a"), cluster="c2"))
    assert post_id(post("../../\r\n")).isalnum()


def test_what_is_remembered_is_bounded() -> None:
    known = Remembered[int](3)
    for number in range(10):
        known.put(str(number), number)
    assert [known.get(str(number)) for number in (0, 6, 7, 9)] == [None, None, 7, 9]
    known.forget("9")
    known.forget("9")
    assert known.get("9") is None
