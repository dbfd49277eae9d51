"""What a process says holds no value of a secret setting, however it is written down."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from connectors.base import Done, Retry
from streams.config.tracing_settings import TracingSettings
from streams.kafka.dead_letters import dead_letter, why_buried
from streams.model.clock import EPOCH
from streams.model.record import RawRecord
from streams.telemetry import redaction

SECRET = "s3cr/et+of=a&robot%7é"


@pytest.fixture(autouse=True)
def _forgotten() -> object:
    yield
    redaction.know(())


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"https://robot:{quote(SECRET, safe='')}@host/path",
        f"?token={quote_plus(SECRET)}&x=1",
        f"?token={quote(SECRET, safe='').lower()}&x=1",
        json.dumps({"Authorization": f"Bearer {SECRET}"}),
        repr({"Authorization": f"Bearer {SECRET}"}),
        repr(SECRET.encode()),
        SECRET.encode().hex(),
        *(
            "Basic " + base64.b64encode(f"{user}:{SECRET}".encode()).decode()
            for user in ("", "a", "ab", "abc", "robot@example.com")
        ),
        "Basic " + base64.urlsafe_b64encode(f"x:{SECRET}:more behind it".encode()).decode(),
    ],
)
def test_a_secret_is_taken_out_however_it_is_written(text: str) -> None:
    redaction.know([SECRET])
    cleaned = redaction.clean(text)
    assert redaction.PUT_IN in cleaned
    for part in (SECRET, quote(SECRET, safe=""), SECRET[:12], SECRET.encode().hex()[:24]):
        assert part not in cleaned


@given(st.text(min_size=6, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_secret_goes_behind_any_user_in_base64(secret: str, before: str, after: str) -> None:
    try:
        raw = f"{before}:{secret}{after}".encode()
    except UnicodeEncodeError:
        return
    redaction.know([secret])
    cleaned = redaction.clean(base64.b64encode(raw).decode())
    assert redaction.PUT_IN in cleaned or len(secret.encode()) < 8


def test_other_text_stays_as_it_is() -> None:
    redaction.know([SECRET, "longer " + SECRET])
    text = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert redaction.clean(text) == text
    assert redaction.clean(f"longer {SECRET}") == redaction.PUT_IN


def test_a_short_value_takes_no_words_out() -> None:
    redaction.know(["admin", ""])
    assert redaction.clean("admin of the node") == "admin of the node"


def test_secrets_are_found_in_lists_maps_urls_and_headers() -> None:
    settings = TracingSettings(
        endpoint="http://otel", headers={"Authorization": SecretStr("Bearer abcdefgh")}
    )
    assert set(redaction.secrets_of(settings)) == {"Bearer abcdefgh", "abcdefgh"}
    hook = SecretStr("https://user:pass-word@hooks.example.com/services/T000/B000/xyz")
    found = set(redaction.secrets_of((hook, "http://plain:password@host/", "http://host/")))
    assert {"pass-word", "services/T000/B000/xyz", "password"} <= found


def test_the_reason_of_a_dead_letter_and_of_an_outcome_quote_none() -> None:
    redaction.know([SECRET])
    record = RawRecord("raw.alerts", 0, 1, EPOCH, None, b"x")
    _, _, headers = dead_letter(record, stage="detector", reasons=[f"failed: {SECRET}"])
    assert why_buried(headers).reason == f"failed: {redaction.PUT_IN}"
    assert redaction.clean_outcome(Retry(1.0, f"GET /?token={SECRET}")) == Retry(1.0, "GET /?token=[secret]")
    done = Done({"a": 1}, "nothing here")
    assert redaction.clean_outcome(done) is done
