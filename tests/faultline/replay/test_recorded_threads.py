from dataclasses import replace
from datetime import timedelta

from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.cli.thread_text import message_lines, thread_lines
from faultline.replay.replay import replay_capture
from faultline.replay.threads import RecordedThreads, final
from streams.correlate.changes import Changes
from streams.model.entity import Entity
from streams.model.incident import IncidentState
from streams.model.thread import ROOT
from tests.connectors.chat.thread_documents import NOW, incident
from tests.faultline.replay.test_replay import LIBRARY, NOON, TRAINING, capture, decided_once


def recorded() -> RecordedThreads:
    threads = RecordedThreads()
    decided = replay_capture(capture(), runbooks=LIBRARY, threads=threads)
    assert decided.decision_hash == decided_once().decision_hash
    return threads


def test_an_incident_has_one_thread_and_its_root_is_posted_at_once() -> None:
    ((incident, posted),) = recorded().by_incident().items()
    assert {one.incident for one in posted} == {incident}
    assert (posted[0].slot, posted[0].is_edit) == (ROOT, False)
    assert posted[0].at <= NOON + timedelta(seconds=62)
    assert [one for one in posted if one.slot == ROOT and not one.is_edit] == [posted[0]]


def test_what_came_later_edits_the_message_that_is_there() -> None:
    (posted,) = recorded().by_incident().values()
    slots = [one.slot for one in final(posted)]
    assert len(slots) == len(set(slots))
    evidence = [one for one in posted if one.slot == "evidence"]
    assert [one.is_edit for one in evidence[:2]] == [False, True]
    assert "rank" not in "\n".join(message_lines(evidence[0].message))
    assert "waited" in "\n".join(message_lines(evidence[-1].message))


def test_a_rack_that_goes_down_is_one_thread_in_a_replay_too() -> None:
    threads = RecordedThreads()
    down = tuple(
        incident(id=f"inc-{n:02}", root=Entity("c1", node=f"node-{n:02}"), proofs=()) for n in range(8)
    )
    threads.take_changes(Changes(down))
    threads.advance(NOW)
    ended = tuple(replace(one, revision=2, state=IncidentState.RESOLVED, closed_at=NOW) for one in down)
    threads.take_changes(Changes(ended))
    threads.advance(NOW + timedelta(seconds=10))
    (posted,) = threads.by_incident().values()
    root, *replies = final(posted)
    assert "8 incidents in c1" in root.message.summary
    assert "8 resolved" in root.message.summary
    assert ["resolved" in reply.message.summary for reply in replies] == [True] * 8


def test_a_thread_reads_as_text() -> None:
    (posted,) = recorded().by_incident().values()
    lines = list(thread_lines(posted))
    assert f"fell off the bus on {TRAINING[1]}" in lines[1]
    assert any(line.startswith("    ") and "Evidence" in line for line in lines)


def test_the_command_prints_the_threads_of_a_capture() -> None:
    result = CliRunner().invoke(cli, ["replay", "docs/examples/gpu-off-bus", "--threads"])
    titles = [line for line in result.output.splitlines() if line.endswith("GPU fell off the bus on gpu-03")]
    assert (result.exit_code, len(titles)) == (0, 1)
    assert "would cordon node (Node gpu-03): keep new pods off the node" in result.output
    assert "more evidence" not in result.output, "a revision that says nothing new is no line of a thread"
    as_json = CliRunner().invoke(cli, ["replay", "docs/examples/gpu-off-bus", "--threads", "-o", "json"])
    assert as_json.output.splitlines()[0].startswith('{"record":"post"')
