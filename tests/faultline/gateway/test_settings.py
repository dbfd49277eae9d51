"""The gateway's settings: off until configured, and what cannot work is said at start."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from faultline.gateway.hooks import HOOKS
from streams.config.gateway_settings import GatewaySettings
from tests.faultline.gateway import serving
from tests.faultline.gateway.serving import SECRET, TOKEN


def test_nothing_is_served_until_it_is_configured() -> None:
    settings = GatewaySettings()
    assert settings.port == 0
    assert not any(getattr(settings, name).is_on for name in HOOKS)


def test_every_hook_is_on_with_its_secret() -> None:
    settings = serving.settings()
    assert all(getattr(settings, name).is_on for name in HOOKS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jira": {"secret": SECRET, "own_user": "x"}}, "needs a port"),
        ({"port": 1, "jira": {"secret": SECRET}}, "own_user: not set"),
        ({"port": 1, "servicenow": {"token": TOKEN}}, "own_user: not set"),
        ({"port": 1, "alertmanager": {"token": "short"}}, "is shorter than 16 characters"),
        ({"port": 1, "events": {"secret": "whsec_no base64 at all"}}, "is not base64"),
        ({"port": 1, "alertmanager": {"user": "prometheus"}}, "needs a user and a password"),
        ({"port": 1, "alertmanager": {"password": serving.PASSWORD}}, "needs a user and a password"),
        ({"port": 1, "alertmanager": {"token_next": TOKEN}}, "set without token"),
        ({"port": 1, "pagerduty": {"secret_next": SECRET}}, "set without secret"),
        ({"max_body_bytes": 8 * 1024 * 1024}, "less than or equal to 7340032"),
        ({"max_body_bytes": 2048, "max_held_bytes": 1024}, "less than one body"),
    ],
)
def test_what_cannot_work_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GatewaySettings.model_validate(given)


def test_an_empty_variable_unsets_a_secret() -> None:
    settings = GatewaySettings.model_validate({"jira": {"secret": ""}, "events": {"token": ""}})
    assert not settings.jira.is_on
    assert not settings.events.is_on


def test_no_secret_is_in_what_settings_say_of_themselves() -> None:
    assert SECRET not in repr(serving.settings())
    assert TOKEN not in serving.settings().model_dump_json()
