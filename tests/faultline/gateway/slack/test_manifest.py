"""The app's manifest asks for what the code uses, and the page beside it says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.gateway.slack import dialogs, http
from faultline.gateway.slack.actions import Delivery, Nothing
from faultline.gateway.slack.interactions import action_of
from faultline.live_view.view import LiveView
from tests.runbooks.scenes import NOW

PEOPLE = Path(__file__).parents[4] / "docs" / "people"
MANIFEST: dict[str, Any] = yaml.safe_load((PEOPLE / "slack-app-manifest.yaml").read_text())
PAGE = (PEOPLE / "slack.md").read_text()


@pytest.mark.parametrize("scope", [*MANIFEST["oauth_config"]["scopes"]["bot"], "connections:write"])
def test_every_scope_is_explained(scope: str) -> None:
    assert any(line.startswith("| ") and f"`{scope}`" in line for line in PAGE.splitlines())


def test_the_shortcut_and_the_command_are_those_that_are_answered() -> None:
    (shortcut,) = MANIFEST["features"]["shortcuts"]
    assert (shortcut["type"], shortcut["callback_id"]) == ("message", dialogs.NOTE)
    (command,) = MANIFEST["features"]["slash_commands"]
    assert command["command"] == "/faultline"


@pytest.mark.parametrize("event", MANIFEST["settings"]["event_subscriptions"]["bot_events"])
def test_every_event_that_is_subscribed_to_is_taken(event: str) -> None:
    kind = event.partition(".")[0]
    happened = {
        "type": kind, "user": "U1", "tab": "home", "channel": "C1", "thread_ts": "1.0", "ts": "2.0", "text": "x",
    }  # fmt: skip
    action = action_of(Delivery("events_api", {"event": happened}), LiveView(), "c1", NOW)
    assert not isinstance(action, Nothing)


def test_the_addresses_for_http_are_those_that_are_served() -> None:
    text = (PEOPLE / "slack-app-manifest.yaml").read_text()
    source = Path(http.__file__).read_text()
    for path in ("/slack/interactions", "/slack/commands", "/slack/events"):
        assert f"https://faultline.example.test{path}" in text
        assert f'"{path}"' in source
