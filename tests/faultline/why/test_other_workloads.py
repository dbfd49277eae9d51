"""What is no training job and is kept from starting, where people read of an incident; no plan and no decision has it."""

from __future__ import annotations

from connectors.chat.slack_blocks import render
from faultline.chat.thread_messages import root_message
from faultline.console.incident_page import incident_page
from faultline.live_view.overview import Overview
from faultline.mcp.tools import _details
from faultline.report.incident_page import incident_page as report_page
from faultline.report.incident_report import decision_hash, report_of
from faultline.report.markdown import markdown
from faultline.why.explanation import explain
from streams.model.codec import decode, encode, encode_plain
from streams.model.entity import JobRef
from streams.model.incident import MAX_NAME, Incident, OtherWorkloads
from tests.connectors.chat.thread_documents import NOW, incident

FIRST = (
    JobRef("Deployment", "serving", "chat"),
    JobRef("Job", "ci", "build-7"),
    JobRef("Pod", "home", "nb-1"),
)
NAMES = ("Deployment serving/chat", "Job ci/build-7", "Pod home/nb-1")


def refused(count: int = 240) -> Incident:
    return incident(other_workloads=OtherWorkloads(count, FIRST))


def test_the_thread_names_the_first_and_how_many_more_there_are() -> None:
    shown = str(render(root_message(refused(), ())))
    assert "Also kept from starting" in shown
    assert "Deployment serving/chat" in shown
    assert "more" in shown
    assert "Also kept from starting" not in str(render(root_message(incident(), ())))


def test_an_explanation_names_them_beside_the_victims() -> None:
    text = explain(refused())
    assert "also kept from starting, by their own words (no plan has them): 240" in text
    assert all(name in text for name in NAMES)
    assert "and 237 more" in text
    assert "and 0 more" not in explain(refused(3))
    assert "kept from starting" not in explain(incident())


def test_the_page_of_an_incident_lists_them() -> None:
    page = incident_page(Overview(refused()), (), {}, {})
    assert (page.other_workloads, page.more_workloads) == (NAMES, 237)
    assert incident_page(Overview(incident()), (), {}, {}).other_workloads == ()


def test_a_tool_reads_their_number_and_the_first() -> None:
    assert _details(refused())["other_workloads"] == {"count": 240, "first": list(NAMES)}
    assert _details(incident())["other_workloads"] is None


def test_a_report_has_them_and_they_change_no_decision() -> None:
    report = report_of(refused(), (), (), {}, NOW)
    assert report.other_workloads == OtherWorkloads(240, FIRST)
    assert "240: Deployment serving/chat, Job ci/build-7" in markdown(report_page(report))
    assert (report.jobs, report.impact) == (report_of(incident(), (), (), {}, NOW).jobs, incident().impact)
    assert decision_hash(refused(), ()) == decision_hash(incident(), ())


def test_a_list_of_them_is_short_whatever_they_are_called() -> None:
    assert OtherWorkloads(3, FIRST).shortened(3) == ", ".join(NAMES)
    assert OtherWorkloads(240, FIRST).shortened(2) == "Deployment serving/chat, Job ci/build-7, +238 more"
    strange = OtherWorkloads(2, (JobRef("Pod", "ci", f"\u202ex{'y' * 300}"), FIRST[0]))
    shown, _, rest = strange.shortened(1).rpartition(", ")
    assert (rest, len(shown), "\u202e" in shown) == ("+1 more", MAX_NAME, False)


def test_a_document_from_before_has_none() -> None:
    plain = encode_plain(incident())
    plain.pop("other_workloads", None)
    assert decode(Incident, encode(plain)).other_workloads is None
    assert decode(Incident, encode(refused())) == refused()
