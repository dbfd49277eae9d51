"""What `faultline guard` shows as in force."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from faultline.cli.commands.guard import _as_json, _switches
from faultline.runtime.settings import Settings
from faultline.why.acting import standing_branches
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control, Freeze

NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)
ENDED = Freeze("", "ada", NOW - timedelta(hours=3), "switch upgrade", NOW - timedelta(hours=1))
STANDS = Freeze("pool:a100", "bob", NOW - timedelta(hours=3), "storage", NOW + timedelta(hours=1))


def test_a_freeze_whose_end_has_passed_is_not_in_force_though_no_responder_has_taken_it_out() -> None:
    rows = [
        row
        for row in _switches(Settings().responder, Control("c", freezes=(ENDED,)), NOW)
        if row[0] == "freeze"
    ]
    assert [value.partition(",")[0] for _, value, _ in rows] == [
        "the whole cluster: ended at 2026-03-01 05:00:00Z", "none now",
    ]  # fmt: skip
    rows = _switches(Settings().responder, Control("c", freezes=(ENDED, STANDS)), NOW)
    assert ("freeze", "pool:a100 until 2026-03-01 07:00:00Z: storage", "bob") in rows
    assert "none now" not in {value for _, value, _ in rows}
    shown = _as_json(Settings(), Control("c", freezes=(ENDED, STANDS)), (), NOW)
    assert [freeze["in_force"] for freeze in shown["freezes"]] == [False, True]


def test_nor_does_it_hold_anything_back_in_what_explains_why_nothing_was_done() -> None:
    control = Control("c", freezes=(ENDED, STANDS))
    told = standing_branches(None, ClusterView("c"), control, Settings().responder, NOW)
    assert [one.text.split(" by ")[0] for one in told if one.kind == "freeze"] == ["freeze of pool:a100"]
