"""Proofs: what is taken, and what is not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from faultline.gateway.authentication import Basic, Bearer, Headers, SignedBody, StandardWebhook
from faultline.gateway.refusal import RequestRefused
from tests.faultline.gateway import serving
from tests.faultline.gateway.serving import NEXT_SECRET, NEXT_TOKEN, NOW, PASSWORD, SECRET, TOKEN, secret_str

BODY = b'{"of": "our own"}'
TOKENS = Bearer((secret_str(TOKEN), secret_str(NEXT_TOKEN)))
SIGNED = SignedBody("X-PagerDuty-Signature", "v1", (secret_str(SECRET), secret_str(NEXT_SECRET)))
STANDARD = StandardWebhook((secret_str(SECRET), secret_str(NEXT_SECRET)), 300)


def headers(**values: str) -> Headers:
    found = CIMultiDict({name.replace("_", "-"): value for name, value in values.items()})
    return CIMultiDictProxy(found)


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {NEXT_TOKEN} ", True),
        ("Bearer ", False),
        ("Bearer", False),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        ("Bearer \udcff\udcfe", False),
        ("", False),
    ],
)
def test_a_token_is_one_of_those_that_are_set(value: str, is_good: bool) -> None:
    assert TOKENS.proves(headers(authorization=value)) is is_good


def test_no_token_is_right_where_none_is_set() -> None:
    assert not Bearer(()).proves(headers(Authorization="Bearer "))


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        (serving.basic()["Authorization"], True),
        (serving.basic(user="somebody")["Authorization"], False),
        (serving.basic(password="password")["Authorization"], False),
        ("Basic !!!", False),
        ("Basic ", False),
        (f"Bearer {PASSWORD}", False),
    ],
)
def test_a_login_is_user_and_password(value: str, is_good: bool) -> None:
    assert Basic("prometheus", secret_str(PASSWORD)).proves(headers(Authorization=value)) is is_good


@pytest.mark.parametrize("secrets", [(SECRET,), (NEXT_SECRET,), ("an older one of theirs", SECRET)])
def test_one_fitting_signature_among_several_is_enough(secrets: tuple[str, ...]) -> None:
    SIGNED.check(headers(**serving.pagerduty(BODY, *secrets)), BODY, NOW)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "v1=",
        "v1=00",
        serving.pagerduty(BODY, "another secret altogether")["X-PagerDuty-Signature"],
        serving.pagerduty(b"another body")["X-PagerDuty-Signature"],
        serving.pagerduty(BODY)["X-PagerDuty-Signature"].replace("v1=", "v2="),
        serving.pagerduty(BODY)["X-PagerDuty-Signature"].replace("v1=", ""),
        ",".join(["v1=00"] * 50 + [serving.pagerduty(BODY)["X-PagerDuty-Signature"]]),
        "v1=\udcff",
    ],
)
def test_a_forged_signature_is_refused(value: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        SIGNED.check(headers(X_PagerDuty_Signature=value), BODY, NOW)
    assert refused.value.status == 401


def test_a_signature_of_standard_webhooks_fits_id_time_and_body() -> None:
    for secret in (SECRET, NEXT_SECRET):
        STANDARD.check(headers(**serving.standard(BODY, secret=secret)), BODY, NOW)


def test_a_key_behind_whsec_is_base64() -> None:
    # The example of the specification's own documentation cannot be copied; the key is `0123456789abcdef`.
    proof = StandardWebhook((secret_str("whsec_MDEyMzQ1Njc4OWFiY2RlZg=="),), 300)
    proof.check(headers(**serving.standard(BODY, secret="0123456789abcdef")), BODY, NOW)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"webhook-id": "msg_2"}, 401),
        ({"webhook-id": ""}, 401),
        ({"webhook-timestamp": "1772366401"}, 401),
        ({"webhook-timestamp": "soon"}, 401),
        ({"webhook-signature": ""}, 401),
        ({"webhook-signature": "v1,AAAA"}, 401),
        (serving.standard(BODY, version="v2"), 401),
        (serving.standard(BODY, at=NOW - timedelta(seconds=301)), 403),
        (serving.standard(BODY, at=NOW + timedelta(seconds=301)), 403),
    ],
)
def test_a_changed_or_stale_delivery_is_refused(changed: dict[str, str], status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        STANDARD.check(CIMultiDictProxy(CIMultiDict(serving.standard(BODY) | changed)), BODY, NOW)
    assert refused.value.status == status


def test_a_wrong_clock_is_named_with_how_far_it_is_off() -> None:
    late = serving.standard(BODY, at=NOW - timedelta(minutes=10))
    with pytest.raises(RequestRefused, match="600 s behind this clock, more than the 300 s"):
        STANDARD.check(CIMultiDictProxy(CIMultiDict(late)), BODY, NOW)
