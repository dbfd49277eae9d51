"""Whatever a subject, an incident or a text holds, a mail has the headers and the parts that we gave it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy

from hypothesis import given
from hypothesis import strategies as st

from connectors.posts.mail_message import mail
from connectors.posts.post import post_of
from streams.model.message import Code, Heading, Message, Paragraph
from tests.connectors.posts.effects import post

HEADERS = [
    "From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "List-Id", "Auto-Submitted",
    "X-Auto-Response-Suppress", "X-Faultline-Cluster", "X-Faultline-Incident", "MIME-Version", "Content-Type",
]  # fmt: skip

PIECES = st.sampled_from(
    [
        *"=?_ \r\n\t:<>@,;()\"\\éü中😀\u2028\u2029\x85\x0b\x0c\x1c\x00\x7f.",
        "=?utf-8?q?", "=?utf-8?b?", "?=", "=0D=0A", "DQpCY2M6IGVAeA==", "Bcc: eve@example.test", "\r\n\r\n", "a" * 50, "--===",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map("".join)


@given(subject=TEXTS, incident=TEXTS, cluster=TEXTS, written=TEXTS)
def test_no_text_adds_a_header_or_a_part(subject: str, incident: str, cluster: str, written: str) -> None:
    message = Message(written, (Heading(written), Paragraph(written), Code(written)))
    effect = replace(post(message=message, subject=subject, incident=incident, first=False), cluster=cluster)
    made = mail(
        effect,
        post_of(effect),
        sender="faultline@example.test",
        to=("ann@example.test",),
        list_id="",
        now=datetime(2030, 5, 4, tzinfo=UTC),
    )
    raw = made.as_bytes()
    read = message_from_bytes(raw, policy=policy.default)
    assert sorted(read.keys()) == sorted(HEADERS)
    assert [part.get_content_type() for part in read.walk()] == [
        "multipart/alternative",
        "text/plain",
        "text/html",
    ]
    assert read.defects == []
    assert max(map(len, raw.split(b"\r\n"))) <= 998
