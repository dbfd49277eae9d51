"""What is told of keys of which nothing is known from before a capture begins."""

from __future__ import annotations

from faultline.replay.kafka_capture.state import Keys


def seen(*records: tuple[int, bytes, bool]) -> Keys:
    keys = Keys(100)
    for offset, key, is_later in records:
        keys.see(offset, key, is_gone=False, is_later=is_later)
    return keys


def test_what_is_new_on_a_fresh_installation_is_no_doubt() -> None:
    # offset 2 is the mark at the end of a transaction
    keys = seen((0, b"a", False), (1, b"b", False), (3, b"a", True), (4, b"c", True))
    assert (keys.latest, keys.unknown) == ({b"a": 0, b"b": 1}, set())


def test_what_is_new_may_have_been_there_where_records_are_gone() -> None:
    keys = seen((0, b"a", False), (7, b"a", True), (8, b"c", True))
    assert (keys.latest, keys.unknown) == ({b"a": 0}, {b"c"})
    assert seen((40, b"c", True)).unknown == {b"c"}, "gone from the beginning"
