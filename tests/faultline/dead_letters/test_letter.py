"""What a dead letter keeps of its record, and which letters belong together."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faultline.dead_letters.counting import REST, Groups
from faultline.dead_letters.letter import Choice, Letter, Retried, folded, place_of
from streams.kafka.dead_letters import MAX_BYTES, dead_letter, original, why_buried
from streams.model.errors import BadInput
from streams.model.record import RawRecord

AT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


def record(**changes: Any) -> RawRecord:
    """A record of `raw.metrics` that nobody could read."""
    return RawRecord("raw.metrics", 1, 44, AT, b"n1", b"{", (("faultline-cluster", b"west"),))._replace(
        **changes
    )


def letter(offset: int = 7, reason: str = "no JSON at 12", **changes: Any) -> Letter:
    """The letter of `record(**changes)` at an offset of partition 0, written that many minutes later."""
    _, value, headers = dead_letter(record(**changes), stage="detector", reasons=[reason])
    return Letter(0, offset, AT + timedelta(minutes=offset), why_buried(headers), original(headers, value))


def test_the_original_record_comes_back_with_key_headers_and_time() -> None:
    _, value, headers = dead_letter(record(), stage="detector", reasons=["no JSON"])
    assert original(headers, value) == record()


def test_a_tombstone_comes_back_as_a_tombstone() -> None:
    _, value, headers = dead_letter(record(value=None), stage="correlator", reasons=["no key"])
    assert original(headers, value).value is None


@pytest.mark.parametrize(
    "cut",
    [{"key": b"k" * 5000}, {"headers": (("h", b"x" * 20_000),)}],
    ids=["key", "headers"],
)
def test_a_record_whose_key_or_headers_were_cut_says_so(cut: dict[str, Any]) -> None:
    assert letter(**cut).why.cut_short
    assert not letter().why.cut_short


def test_a_value_beyond_a_mib_is_cut_and_says_so() -> None:
    long = letter(value=b"x" * (MAX_BYTES + 1))
    assert long.why.truncated
    assert len(long.record.value or b"") == MAX_BYTES


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no JSON at 12", "no JSON at 4711"),
        (
            "message 0x1f of pod 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
            "message 0x2a of pod 00000000-4f89-11d3-9a0c-0305e82c3301",
        ),
        ("field 'host-a' is unknown", "field 'host-bcd' is unknown"),
        ("block deadbeef01 at 1.5", "block 77aa00bb11cc at 22.75"),
    ],
)
def test_reasons_that_differ_in_numbers_and_ids_are_one_group(one: str, other: str) -> None:
    assert folded(one) == folded(other)
    assert letter(reason=one).group == letter(8, reason=other).group


def test_other_reasons_stages_and_topics_are_other_groups() -> None:
    others = [letter(reason="no text"), letter(topic="raw.fabric")]
    assert len({letter().group, *(one.group for one in others)}) == 3


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (Choice(), True),
        (Choice(since=AT + timedelta(minutes=8)), False),
        (Choice(until=AT + timedelta(minutes=7)), False),
        (Choice(until=AT + timedelta(minutes=8)), True),
        (Choice(stage="correlator"), False),
        (Choice(topic="raw.metrics"), True),
        (Choice(grep=re.compile("no J.ON")), True),
        (Choice(grep=re.compile(r"^\{")), True),
        (Choice(grep=re.compile("else")), False),
        (Choice(letters=frozenset({"0:7"})), True),
        (Choice(letters=frozenset({"0:8"})), False),
        (Choice(groups=(letter().group[:3],)), True),
        (Choice(groups=("zz",)), False),
    ],
)
def test_a_choice_takes(choice: Choice, taken: bool) -> None:
    assert choice.takes(letter()) is taken


@pytest.mark.parametrize("text", ["dead-letters:3:99", "3:99", "west.dead-letters:3:99"])
def test_coordinates_are_read_with_and_without_the_topic(text: str) -> None:
    assert place_of(text) == (3, 99)


@pytest.mark.parametrize("text", ["", "3", "a:b", "raw.metrics:1:2", "-1:2"])
def test_other_texts_are_no_coordinates(text: str) -> None:
    with pytest.raises(BadInput, match="PARTITION:OFFSET"):
        place_of(text)


def test_the_same_offset_of_a_topic_made_anew_is_another_record() -> None:
    assert letter().source != letter(timestamp=AT + timedelta(days=1)).source
    assert letter().source == letter(9).source


def mark(of: Letter) -> Retried:
    return Retried(of.coordinates, of.source, of.group, AT, "ada")


def test_a_group_counts_letters_bytes_and_what_was_written_back() -> None:
    groups = Groups()
    for offset in (3, 5, 9):
        groups.add(letter(offset))
    groups.add(mark(letter(5)))
    groups.add(mark(letter(4)))  # not among those counted
    groups.add(None)
    (group,) = groups.largest_first()
    assert (group.letters, group.bytes, group.retried, group.example) == (3, 3, 1, "0:9")
    assert (group.first, group.last) == (AT + timedelta(minutes=3), AT + timedelta(minutes=9))
    assert groups.foreign == 1


def test_reasons_without_end_are_counted_as_one_group() -> None:
    groups = Groups(most=2)
    for offset in range(26):
        groups.add(letter(offset, reason="reason " + chr(ord("a") + offset)))
    counted = groups.largest_first()
    assert [(group.id == REST, group.letters) for group in counted] == [(True, 24), (False, 1), (False, 1)]
