"""Lines that a runtime cut in pieces: each is looked at once, whole when its rest comes and by itself when it does not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest

from streams.detect import Detector, cli_records
from streams.ingest import line_reassembly
from streams.model.record import RawRecord
from streams.model.signal import Signal
from tests.streams.detect.lines import NOW

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
FIRST, REST = XID[:25], XID[25:]
KEY = b"gpu-1"


def cri(tag: str, text: str, stream: str = "stderr") -> bytes:
    return f"2026-11-21T07:13:13.123456789Z {stream} {tag} {text}".encode()


def docker(text: str) -> bytes:
    return orjson.dumps({"log": text, "stream": "stderr", "time": "2026-11-21T07:13:13.123456789Z"})


def fluent_bit(tag: str, text: str, pod: str = "kmsg-x7") -> bytes:
    kubernetes = {"pod_name": pod, "namespace_name": "kube-system", "host": "gpu-1", "container_name": "tail"}
    return orjson.dumps({"stream": "stderr", "logtag": tag, "log": text, "kubernetes": kubernetes})


def journald(text: str, **more: str) -> bytes:
    return orjson.dumps({"MESSAGE": text, "_HOSTNAME": "gpu-1", "CONTAINER_NAME": "tail"} | more)


def read(
    values: Sequence[bytes], *, ends: bool = True, key: bytes = KEY, every_s: float = 0.0
) -> list[Signal]:
    """The signals of one partition's records, read as the process reads a poll's."""
    detector = Detector("c1")
    found: list[Signal] = []
    for offset in detector.wanted(values, detector.rule_state("raw.job-logs", 0)):
        at = NOW + timedelta(seconds=offset * every_s)
        found += detector.read(RawRecord("raw.job-logs", 0, offset, at, key, values[offset])).signals
    return found + (detector.flush_unfinished("raw.job-logs", 0) if ends else [])


WHOLE = {
    "cri": [cri("P", FIRST), cri("F", REST)],
    "cri in three": [cri("P", XID[:10]), cri("P", XID[10:40]), cri("F", XID[40:])],
    "cri with more tags": [cri("P:x", FIRST), cri("F:x", REST)],
    "cri, other streams between": [cri("P", FIRST), cri("F", "nothing", "stdout"), cri("F", REST)],
    "cri in one record": [cri("P", FIRST) + b"\n" + cri("F", REST) + b"\n"],
    "docker": [docker(FIRST), docker(REST + "\n")],
    "docker in one record": [docker(FIRST) + b"\n" + docker(REST + "\n")],
    "fluent bit": [fluent_bit("P", FIRST), fluent_bit("F", REST)],
    "fluent bit, another pod between": [
        fluent_bit("P", FIRST),
        fluent_bit("F", "epoch is over", "other-y8"),
        fluent_bit("F", REST),
    ],
    "docker's journald driver": [journald(FIRST, CONTAINER_PARTIAL_MESSAGE="true"), journald(REST)],
    "docker's fluentd driver": [
        orjson.dumps({"log": FIRST, "container_id": "ab", "source": "stderr", "partial_message": "true"}),
        orjson.dumps(
            {
                "log": REST,
                "container_id": "ab",
                "source": "stderr",
                "partial_message": "true",
                "partial_last": "true",
            }
        ),
    ],
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_line_in_pieces_is_looked_at_whole_and_once(name: str) -> None:
    (found,) = read(WHOLE[name], ends=False)
    assert (found.attributes["xid"], found.attributes["pid"], found.attributes["process"]) == (
        79,
        1234,
        "python3",
    )
    assert found.entity.node == "gpu-1"


@pytest.mark.parametrize("name", WHOLE)
def test_a_line_whose_rest_never_comes_is_looked_at_by_itself_and_once(name: str) -> None:
    if len(WHOLE[name]) == 1:
        return
    values = [value.replace(FIRST.encode(), XID.encode()) for value in WHOLE[name][:1]]
    if values == WHOLE[name][:1]:
        return
    assert read(values, ends=False) == []
    (found,) = read(values)
    assert (found.attributes["xid"], found.entity.node, found.evidence[0].offset) == (79, "gpu-1", 0)


def test_a_line_that_waits_for_too_long_is_let_go() -> None:
    detector = Detector("c1")
    detector.detect(RawRecord("t", 0, 4, NOW, KEY, cri("P", XID), ((b"x".decode(), b"y"),)))
    assert detector.flush_unfinished("t", 0, NOW + line_reassembly.OVERDUE) == []
    (found,) = detector.flush_unfinished("t", 0, NOW + 2 * line_reassembly.OVERDUE)
    assert found.evidence[0].offset == 4
    assert detector.flush_unfinished("t", 0) == []


def test_a_line_beyond_the_bound_is_let_go_and_its_rest_is_a_line_of_its_own() -> None:
    long = "x" * (line_reassembly.MAX_JOINED - 2000)
    found = read([cri("P", XID + " " + long), cri("P", "y" * 3000), cri("F", "z " * 10)])
    assert [signal.attributes["xid"] for signal in found] == [79]


def test_no_more_than_so_many_lines_wait() -> None:
    values = [fluent_bit("P", XID.replace("3b", f"{number:02x}"), f"pod-{number}") for number in range(40)]
    early = read(values, ends=False)
    assert len(early) == 40 - line_reassembly.MAX_WAITING
    found = read(values)
    assert len({signal.entity.gpu.pci for signal in found if signal.entity.gpu}) == 40
    assert len(found) == 40


def test_whole_lines_of_docker_without_a_line_feed_are_not_glued() -> None:
    values = [docker(XID), docker(XID.replace("3b", "9b")), docker("[ 12.3] " + XID.replace("3b", "4c"))]
    assert [signal.entity.gpu.pci for signal in read(values) if signal.entity.gpu] == [
        "0000:3b:00",
        "0000:9b:00",
        "0000:4c:00",
    ]


def test_the_command_joins_lines_of_a_file_and_keeps_their_numbers() -> None:
    lines = [cri("P", FIRST), cri("F", REST), b"nothing", cri("P", XID.replace("3b", "9b"))]
    found = list(cli_records([line.decode() for line in lines], cluster="c1", now=NOW))
    assert [(ref, signal.attributes["xid"]) for ref, signal in found] == [(2, 79), (4, 79)]


def test_the_command_reads_a_text_that_ends_within_a_line() -> None:
    record: dict[str, Any] = {"id": "a", "text": cri("P", XID).decode(), "node": "n1"}
    ((ref, found),) = cli_records([orjson.dumps(record).decode()], cluster="c1", now=NOW)
    assert (ref, found.attributes["xid"]) == ("a", 79)


def test_what_waits_does_not_keep_other_records() -> None:
    detector = Detector("c1")
    values = [
        fluent_bit("P", FIRST),
        *(cri("F", f"nothing {n}", "stdout") for n in range(50)),
        fluent_bit("F", REST),
    ]
    kept = []
    for index in detector.wanted(values, detector.rule_state("t", 0)):
        kept.append(index)
        detector.read(RawRecord("t", 0, index, NOW, None, values[index]))
    assert kept == [0, 51]


OBJECT = '{{"time":"2026-11-21T07:13:{}Z","level":"ERROR","error":"NVRM: Xid (PCI:0000:3b:00): {}, quark"'
LOST_REST = {
    "an object": [cri("P", OBJECT.format(10, 62) + ',"more":"'), cri("F", OBJECT.format(11, 79) + "}")],
    "an object, of Fluent Bit": [
        fluent_bit("P", OBJECT.format(10, 62) + ',"more":"'),
        fluent_bit("F", OBJECT.format(11, 79) + "}"),
    ],
    "a header": [
        fluent_bit("P", "2026-11-21T07:13:10Z gpu-1 kernel: NVRM: Xid (PCI:0000:3b:00): 62, qua"),
        fluent_bit("F", "2026-11-21T07:13:11Z gpu-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, quark"),
    ],
}


@pytest.mark.parametrize("values", LOST_REST.values(), ids=LOST_REST.keys())
def test_a_line_that_begins_as_the_waiting_one_did_is_not_its_rest(values: list[bytes]) -> None:
    found = read(values, ends=False)
    assert [(one.attributes["xid"], one.occurred_at.second) for one in found] == [(62, 10), (79, 11)]


def test_the_rest_of_an_object_may_begin_with_another_object() -> None:
    values = [cri("P", OBJECT.format(10, 79) + ',"more":['), cri("F", '{"quark":1}]}')]
    (signal,) = read(values, ends=False)
    assert (signal.attributes["xid"], signal.occurred_at.second) == (79, 10)


def test_of_an_object_whose_rest_is_lost_what_is_left_is_read() -> None:
    (signal,) = read([cri("P", OBJECT.format(10, 79) + ',"more":[{"quark":"')])
    assert (signal.attributes["xid"], signal.occurred_at.second) == (79, 10)
