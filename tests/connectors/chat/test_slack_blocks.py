"""A message in Slack's form and in a ticket: what it shows, and what hostile text cannot do with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.chat.slack_blocks import MAX_TOTAL, MAX_VALUE, render
from connectors.tickets.adf import document
from faultline.chat.thread_plan import wanted
from runbooks.engine.containment import PendingRepair, Ticket
from sandbox.fake_services.jira import _wrong_document
from sandbox.fake_services.slack import Posting, _check_content
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.incident import IncidentState
from streams.model.message import (
    Button,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Step,
    Steps,
    Table,
    Tone,
    plain,
)
from streams.model.run import EffectRecord, EffectState, Mode, Run, RunOutcome, RunState, StepState, Target
from tests.connectors.chat.thread_documents import NOW, incident, run

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "<!channel> <@U1> @here <http://evil.example|click> & ```\n*bold* \x1b[2J\x07\u202egnp.exe\ud800"


def everything(text: str) -> Message:
    return Message(
        text,
        (
            Heading(text),
            Paragraph(text),
            Facts((Fact(text, text), Fact("when", at=NOW))),
            Table((text, "b"), ((text, text),)),
            Steps(text, (Step("a", text, "error", (Fact(text, text), Fact("when", at=NOW)), text),)),
            Code(text),
            Buttons((Button("approve", text, "v"),)),
        ),
        Tone.BAD,
    )


def with_ticket(made: Run) -> Run:
    """The run once it is through, its ticket opened."""
    target = Target("Ticket", made.incident)
    result = {"ticket": "GPU-61", "url": "https://jira.example/browse/GPU-61"}
    effect = EffectRecord("k", "open_ticket", target, EffectState.CONFIRMED, NOW, NOW, result=result)
    cordon, ticket = made.steps
    steps = (cordon, replace(ticket, effect=effect))
    return replace(
        made, steps=steps, state=RunState.SUCCEEDED, outcome=RunOutcome.SUCCEEDED, reason=incident().reason
    )


CASES = {
    "open": wanted(incident(), [], []),
    "mitigating": wanted(
        incident(state=IncidentState.MITIGATING),
        [run(incident(), cordon=StepState.DONE, ticket=StepState.RUNNING)],
        [TimelineEntry(incident().id, "c1", NOW, "responder", "step.done", "cordoned node-07")],
    ),
    "asking": wanted(
        incident(state=IncidentState.AWAITING_HUMAN),
        [run(incident(), Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)],
        [],
    ),
    "shadow": wanted(incident(), [run(incident(), Mode.SHADOW, cordon=StepState.WOULD)], []),
    "contained": wanted(
        incident(state=IncidentState.RESOLVED, closed_at=NOW),
        [with_ticket(run(incident(), cordon=StepState.DONE, ticket=StepState.DONE))],
        [],
        repairs=[PendingRepair("node-07", 8, NOW, Ticket("GPU-61", "https://jira.example/browse/GPU-61"))],
    ),
    "resolved": wanted(incident(state=IncidentState.RESOLVED, closed_at=NOW), [], []),
}


def plan(count: int, text: str = "x") -> Message:
    steps = tuple(
        Step(
            f"s{n}", text, "pending", (Fact("Since", at=NOW), Fact(text, text, url="https://a.example")), text
        )
        for n in range(count)
    )
    return Message("s", (Heading("h"), Steps(text, steps), Paragraph(text)))


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "classic"])
@pytest.mark.parametrize("count", [1, 50, 80])
@pytest.mark.parametrize("text", ["x", HOSTILE, "&<>" * 2000], ids=["short", "hostile", "long"])
def test_a_plan_keeps_within_the_caps_and_mentions_nobody(count: int, text: str, rich: bool) -> None:
    shown = render(plan(count, text), rich=rich)
    _check_content(shown)  # raises when Slack would reject it
    assert not any(bad in json.dumps(shown) for bad in ("<!channel>", "<@U1>", "<http://evil"))
    (tasks,) = [block["tasks"] for block in shown["blocks"] if block["type"] == "plan"] or [[]]
    assert len(tasks) == (min(count, 50) if rich else 0)


def test_a_plan_is_shown_in_the_readers_own_time_in_either_form() -> None:
    rich, classic = render(plan(1)), render(plan(1), rich=False)
    (task,) = rich["blocks"][1]["tasks"]
    parts = task["details"]["elements"][0]["elements"]
    assert [part["timestamp"] for part in parts if part["type"] == "date"] == [int(NOW.timestamp())]
    assert f"<!date^{int(NOW.timestamp())}^" in json.dumps(classic["attachments"])


def test_an_edit_has_new_block_ids_and_the_same_action_ids() -> None:
    buttons = Buttons((Button("approve", "Approve", "v"),))
    one, other = (
        render(Message("s", (*plan(n).blocks, buttons)), answers=True)["blocks"]
        + render(Message("s", (*plan(n).blocks, buttons)), answers=True)["attachments"][0]["blocks"]
        for n in (1, 2)
    )
    assert not {block["block_id"] for block in one} & {block["block_id"] for block in other}
    assert [e["action_id"] for e in one[-1]["elements"]] == [e["action_id"] for e in other[-1]["elements"]]
    assert [task["task_id"] for task in one[1]["tasks"]] == ["s0"]


@pytest.mark.parametrize("name", CASES)
def test_a_thread_looks_as_it_was_approved(name: str, request: pytest.FixtureRequest) -> None:
    """To approve a new look: delete the file under golden/, run once, and read the diff."""
    shown = [{"slot": slot.name, **render(slot.message)} for slot in CASES[name]]
    golden = GOLDEN / f"{name}.json"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
        pytest.fail(f"{golden.name} was missing and is written now: read it")
    assert shown == json.loads(golden.read_text())


def test_the_stand_in_shows_what_a_reader_sees() -> None:
    (root, *_, approval) = CASES["asking"]
    posting = _posting(approval.message)
    assert posting.lines[0] == "🟣 Approval needed: cordon node-07"
    assert not [line for line in posting.lines if "[Approve]" in line], "nobody answers a press"
    assert f"faultline incidents approve {incident().id} --step cordon" in posting.lines
    assert "[Approve] [Reject]" in _posting(approval.message, answers=True).lines
    assert "Started 2026-03-04 05:05:07 UTC" in _posting(root.message).lines
    assert _posting(Message("s", (Paragraph("a < b & c"),))).lines[-1] == "a < b & c"


def _posting(message: Message, *, answers: bool = False) -> Posting:
    content = render(message, answers=answers)
    return Posting("1.1", "C1", content["text"], content["blocks"], content["attachments"])


def test_a_message_survives_the_way_through_kafka() -> None:
    message = everything("x")
    assert decode(Message, encode(message)) == message
    assert decode(Message, encode(message)).digest == message.digest


def test_hostile_text_can_neither_mention_nor_link_nor_leave_its_code_block() -> None:
    shown = render(everything(HOSTILE))
    parsed = [shown["text"], *(part["text"] for part in _mrkdwn_parts(shown))]
    for text in parsed:
        for dangerous in ("<!channel>", "<@U1>", "<http", "\x1b", "\u202e"):
            assert dangerous not in text
    fenced = [text for text in parsed if text.startswith("```")]
    assert len(fenced) == 2
    assert "<!channel>" not in json.dumps(shown["blocks"][1])
    assert all(text.endswith("```") and "```" not in text[3:-3] for text in fenced)
    assert all(part["verbatim"] for part in _mrkdwn_parts(shown))


def test_a_contained_incident_ends_with_what_is_owed_and_says_its_cause_once() -> None:
    root, *_ = CASES["contained"]
    lines = _posting(root.message).lines
    assert (
        lines[-1]
        == "🔧 node-07 stays cordoned for GPU-61; once repaired, run: faultline nodes release node-07"
    )
    assert sum(incident().reason in line for line in lines) == 1
    assert not [line for line in lines if "GPU-hours" in line]
    assert "Out of service 8 GPUs" in lines
    assert "node-07 stays cordoned for GPU-61" in root.message.summary
    assert "<https://jira.example/browse/GPU-61|GPU-61>" in json.dumps(render(root.message))


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://a|b", "https://a> <!channel", "https://a b", ""]
)
def test_only_a_plain_address_of_the_web_becomes_a_link(url: str) -> None:
    shown = json.dumps(render(Message("s", (Facts((Fact("Ticket", "GPU-61", url=url),)),))))
    assert "|GPU-61>" not in shown
    assert "GPU-61" in shown


def _mrkdwn_parts(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Every text object of a message that Slack parses."""
    blocks = shown["blocks"] + shown["attachments"][0]["blocks"]
    parts = [
        part
        for block in blocks
        for part in [*block.get("fields", []), *block.get("elements", []), block.get("text", {})]
    ]
    return [part for part in parts if part.get("type") == "mrkdwn"]


@given(st.text(max_size=300), st.integers(1, 60))
def test_whatever_it_says_a_message_keeps_within_the_caps(text: str, times: int) -> None:
    *blocks, buttons = everything(text * times or "x").blocks
    message = Message(text * times or "x", (*blocks * times, buttons), Tone.GOOD)
    _check_content(render(message, answers=True))  # raises when Slack would reject it
    assert _wrong_document(document(message, footer="faultline-k")) is None


def test_an_overlong_message_says_so_and_keeps_its_buttons() -> None:
    buttons = Buttons((Button("approve", "Approve", "v" * MAX_VALUE),))
    message = Message("s", (Heading("h"), *[Code("x" * 2500)] * 20, buttons))
    blocks = render(message, answers=True)["attachments"][0]["blocks"]
    assert [b["type"] for b in blocks[-2:]] == ["actions", "context"]
    assert sum(len(json.dumps(b)) for b in blocks) < MAX_TOTAL + 2000


def test_a_cut_never_leaves_half_an_escape_behind() -> None:
    text = render(Message("&" * 1000))["text"]
    assert text.rstrip("…").replace("&amp;", "") == ""


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("a\x1bb\x00c", 9, "abc"),
        ("a\nb\tc", 9, "a\nb\tc"),
        ("", 1, ""),
    ],
)
def test_plain_text_is_bounded_and_free_of_control_characters(text: str, limit: int, expected: str) -> None:
    assert plain(text, limit) == expected


def test_in_a_ticket_text_is_only_ever_text() -> None:
    doc = document(everything(HOSTILE), footer="faultline-k")
    assert _wrong_document(doc) is None
    kinds = {node["type"] for node in _nodes(doc)}
    assert kinds <= {
        "doc",
        "heading",
        "paragraph",
        "text",
        "table",
        "tableRow",
        "tableHeader",
        "tableCell",
        "codeBlock",
    }
    assert all("marks" not in node or node["marks"] == [{"type": "code"}] for node in _nodes(doc))


def _nodes(node: dict[str, object]) -> list[dict[str, object]]:
    children = node.get("content")
    assert children is None or isinstance(children, list)
    return [node, *(below for child in children or [] for below in _nodes(child))]
