"""Compressed records: unpacked, bounded, and told from text at no cost."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector
from streams.ingest import compression
from streams.model.errors import BadInput
from tests.effort import tries
from tests.streams.detect.lines import record

XID = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def lz4(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress(data))


def snappy_framed(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(data))


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


FRAMES: list[Callable[[bytes], bytes]] = [gzip.compress, zstandard.compress, lz4, snappy_framed]
frames = pytest.mark.parametrize("frame", FRAMES, ids=["gzip", "zstd", "lz4", "snappy"])


@frames
def test_a_compressed_record_is_read_as_what_it_holds(frame: Callable[[bytes], bytes]) -> None:
    detector = Detector("c1")
    value = frame(XID)
    assert detector.select([b"", value, b"{}", b"nothing"]) == [1]
    (signal,) = detector.detect(record(value)).signals
    assert signal.attributes["xid"] == 79
    assert not detector.detect(record(frame(b"nothing of interest"))).observations


@frames
@settings(max_examples=tries(60))
@given(data=st.binary(max_size=5000))
def test_what_was_packed_is_unpacked(frame: Callable[[bytes], bytes], data: bytes) -> None:
    if not compression.is_packed(data):
        assert compression.unpacked(frame(data)) == data


@pytest.mark.parametrize("begin", [b"\n", b"\x1a", b'"'])
@settings(max_examples=tries(100))
@given(data=st.one_of(st.binary(min_size=1, max_size=5000), st.binary(max_size=9).map(lambda b: b * 900)))
def test_a_bare_snappy_block_of_a_message_is_unpacked(begin: bytes, data: bytes) -> None:
    assert compression.unpacked(snappy_block(begin + data)) == begin + data


@settings(max_examples=tries(500))
@given(
    st.one_of(
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
        st.binary(max_size=200),
        st.builds(lambda frame, data: frame(data)[:30], st.sampled_from(FRAMES), st.binary(max_size=90)),
    )
)
def test_any_bytes_are_unpacked_or_refused(value: bytes) -> None:
    with suppress(BadInput):
        assert compression.unpacked(value) is not None
    assert Detector("c1").detect(record(value)).observations < 100


@frames
def test_a_bomb_is_a_dead_letter_that_names_the_bound(frame: Callable[[bytes], bytes]) -> None:
    bomb = frame(bytes(compression.MAX_UNPACKED + 1))
    assert len(bomb) < compression.MAX_UNPACKED // 15
    (reason,) = Detector("c1").detect(record(bomb)).dead
    assert str(compression.MAX_UNPACKED) in reason


def test_a_bomb_in_many_members_is_refused_as_well() -> None:
    bomb = gzip.compress(bytes(compression.MAX_UNPACKED // 4)) * 5
    with pytest.raises(BadInput, match="more than"):
        compression.unpacked(bomb)


def test_a_snappy_block_is_refused_by_the_length_it_claims() -> None:
    block = snappy_block(b"\n" + bytes(compression.MAX_UNPACKED))
    with pytest.raises(BadInput, match="more than"):
        compression.unpacked(block)


def test_members_behind_one_another_are_one_record() -> None:
    assert compression.unpacked(gzip.compress(b"a") + gzip.compress(XID)) == b"a" + XID


def test_layers_are_opened_twice_and_no_more() -> None:
    assert compression.unpacked(gzip.compress(zstandard.compress(XID))) == XID
    with pytest.raises(BadInput, match="more than 2 times"):
        compression.unpacked(gzip.compress(gzip.compress(gzip.compress(XID))))


@frames
def test_a_cut_record_is_refused(frame: Callable[[bytes], bytes]) -> None:
    value = frame(b"".join(b"%d NVRM: Xid\n" % zlib.crc32(b"%d" % n) for n in range(2000)))
    (reason,) = Detector("c1").detect(record(value[: len(value) // 2])).dead
    assert reason


@pytest.mark.parametrize(
    "text", ["(RayWorkerWrapper pid=1, ip=10.0.0.1) x", "größe", "日本語のログ", "\ufeffNov 21 x", "ab\ncd"]
)
def test_text_is_not_taken_for_something_compressed(text: str) -> None:
    assert compression.unpacked(text.encode()) == text.encode()
    assert not compression.is_packed(text.encode())
