"""Errors in words that no rule knows, where people read of an incident: each with its line, and apart from what decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from connectors.chat.slack_blocks import render
from faultline.chat.thread_messages import evidence_message
from faultline.console.incident_page import incident_page
from faultline.live_view.overview import Overview
from faultline.report.incident_report import decision_hash, report_of
from faultline.why.explanation import explain
from faultline.why.raw_lines import evidence_of
from streams.model.codec import decode, encode, encode_plain
from streams.model.entity import Entity
from streams.model.incident import Incident, Proof
from streams.model.message import Code, Paragraph
from streams.model.signal import MAX_EVIDENCE_TEXT, Evidence
from tests.connectors.chat.thread_documents import NOW, incident

SUMMARY = "an error of nvme in unknown words at node node-07"
HOSTILE = "<6>nvme nvme0: \x1b[31m<!channel> ``` the queue is in a mood \u202e" + "x" * MAX_EVIDENCE_TEXT


def beside(text: str = HOSTILE, count: int = 3) -> Incident:
    line = Evidence("raw.node-logs", 1, 8, text)
    place = Entity("c1", node="node-07")
    at = NOW - timedelta(seconds=90)
    return incident(unknown_errors=(Proof("u1", "unknown", place, at, "context", SUMMARY, (line,), count),))


def test_the_thread_shows_them_after_the_evidence_and_counts_them_as_none() -> None:
    shown = evidence_message(beside())
    assert shown.summary == evidence_message(incident()).summary
    *before, note, lines = shown.blocks
    assert tuple(before) == evidence_message(incident()).blocks
    assert isinstance(note, Paragraph)
    assert "Nothing was decided by it" in note.text
    assert isinstance(lines, Code)
    first, second = lines.text.split("\n")
    assert first == f"05:04:37  {SUMMARY} (x3)"
    assert second.startswith("  nvme nvme0: ")
    assert len(second) <= 202
    assert not {"\x1b", "\u202e"} & set(lines.text)
    assert "<!channel>" not in str(render(shown))


def test_an_explanation_shows_them_in_a_section_of_their_own() -> None:
    text = explain(beside())
    assert "nearby, in words that no rule knows (nothing was decided by it): 1" in text
    assert f"{SUMMARY} (x3)" in text
    assert "the queue is in a mood" in text
    assert "\x1b" not in text
    assert "no rule knows" not in explain(incident())
    assert text.index("evidence: ") < text.index("nearby, ")


def test_the_page_of_an_incident_shows_them_among_the_evidence_in_order_of_time() -> None:
    shown = incident_page(Overview(beside()), (), {}, {}).proofs
    assert [one.summary for one in shown] == [SUMMARY, "XID 79", "NCCL timeout"]
    assert (shown[0].role, shown[0].count, shown[0].where) == ("context", 3, "node node-07")
    assert not {"\x1b", "\u202e"} & set(shown[0].lines[0].text)


def test_their_whole_lines_are_looked_up_like_those_of_the_evidence() -> None:
    assert set(evidence_of(beside())) == {*evidence_of(incident()), "raw.node-logs:1:8"}


def test_a_report_lists_them_last_and_they_change_no_decision() -> None:
    report = report_of(beside("plain words"), (), (), {}, NOW)
    without = report_of(incident(), (), (), {}, NOW)
    assert [one.summary for one in report.evidence] == [*(one.summary for one in without.evidence), SUMMARY]
    assert report.noticed == without.noticed
    assert report.advice == without.advice
    assert decision_hash(beside(), ()) == decision_hash(incident(), ())


def test_a_document_from_before_has_none() -> None:
    plain = encode_plain(incident())
    plain.pop("unknown_errors", None)
    assert decode(Incident, encode(incident())) == incident()
    assert decode(Incident, encode(plain)).unknown_errors is None
    assert decode(Incident, encode(beside())) == beside()
    assert replace(beside(), unknown_errors=None) == incident()
