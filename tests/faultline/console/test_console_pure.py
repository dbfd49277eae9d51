"""The pure parts of the console: rows and their order, groups of nodes, commands from forms, addresses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from faultline.console.board import Board, Choice
from faultline.console.fleet_page import fleet
from faultline.console.forms import command_of
from faultline.console.identity import safe_path
from faultline.console.rendering import short, static_files
from faultline.console.runbook_page import runbook_page
from faultline.console.sessions import Person
from streams.config.console_settings import ConsoleSettings
from streams.model.incident import IncidentState
from streams.model.node_notice import NodeNotice
from streams.model.run import Mode, RunOutcome, RunState
from tests.faultline.console.scenes import EAST, NOW, Night, bad_night, incident, many
from tests.runbooks.scenes import LIBRARY

ADA = Person("Ada", "ada@example.test", ("oidc:sre",), "s1")
FORM = {"verb": "approve", "step": "cordon", "digest": "d1", "press": "p1"}


def board(night: Night) -> Board:
    made = Board(night.view)
    made.reload()
    return made


def test_those_that_ask_a_person_come_first_then_the_newest_then_contained_then_over() -> None:
    rows = board(bad_night()).rows()
    order = [(row.rank, not row.asks) for row in rows]
    assert order == sorted(order)
    asking = [row.opened_at for row in rows if row.rank == 0 and row.asks]
    assert asking == sorted(asking, reverse=True)
    assert [row.state for row in rows][-7:] == ["contained", *["resolved"] * 6]


def test_an_incident_without_a_runbook_waits_for_a_person_too() -> None:
    rows = {row.title: row for row in board(bad_night()).rows()}
    assert rows["PFC storm from Ethernet48 of leaf-03"].asks
    assert not rows["Thermal slowdown on gpu-40"].asks


def test_all_words_have_to_fit() -> None:
    made = board(bad_night())
    assert made.listing(Choice(words="GPU-17 llm"), 50).total == 1
    assert made.listing(Choice(words="GPU-17 eval"), 50).total == 0


def test_a_page_beyond_the_last_is_the_last() -> None:
    night = Night()
    many(night, 11)
    listing = board(night).listing(Choice(page=99), 5)
    assert (listing.page, listing.pages, len(listing.rows)) == (3, 3, 1)


def test_the_groups_with_the_most_gpus_out_come_first_and_stay_whole() -> None:
    night = bad_night()
    shown = fleet(night.view.nodes(EAST), board(night).places(EAST), "rack", 1, 20)
    assert [group.name for group in shown.groups] == ["r06", "r02"]
    assert [len(group.nodes) for group in shown.groups] == [8, 8]
    assert (shown.pages, shown.out, shown.gpus) == (4, 25, 512)
    (held,) = [node for group in shown.groups for node in group.nodes if node.name == "gpu-09"]
    assert (held.state, held.by, len(held.incidents)) == ("cordoned", "Faultline", 1)


def test_a_node_that_is_announced_to_go_is_shown_with_when_and_by_whom() -> None:
    night = bad_night()
    nodes = dict(night.view.nodes(EAST))
    well = next(name for name, fact in nodes.items() if fact.ready and not fact.unschedulable)
    notice = NodeNotice("the cloud", "its-label", "host_maintenance", datetime(2026, 3, 9, 6, tzinfo=UTC))
    nodes[well] = replace(nodes[well], notice=notice)
    groups = fleet(nodes, board(night).places(EAST), "rack", 1, 1000).groups
    (shown,) = [node for group in groups for node in group.unwell if node.name == well]
    assert shown.by == "announced by the cloud for 09 Mar 06:00 UTC (its-label)"


def test_runbooks_that_ran_come_first_and_say_how_it_ended() -> None:
    night = Night()
    run = night.open(incident()).run
    ended = replace(run, id="run-2", state=RunState.FAILED, outcome=RunOutcome.FAILED)
    shadow = replace(run, id="run-3", plan=replace(run.plan, mode=Mode.SHADOW))
    gone = replace(ended, id="run-4", plan=replace(run.plan, runbook="old-one"))
    first, *_, last = runbook_page(LIBRARY, [run, ended, shadow, gone])
    assert (first.id, first.runs, first.running, first.shadowed) == (run.plan.runbook, 2, 1, 1)
    assert first.outcomes == (("failed", 1),)
    assert (last.id, last.revision, last.outcomes) == ("old-one", None, (("failed", 1),))


@pytest.mark.parametrize(
    "changes", [{}, {"reason": "go"}, {"step": "drain"}, {"press": "p2"}, {"digest": "d2"}]
)
def test_a_press_is_the_same_command_until_anything_about_it_differs(changes: dict[str, str]) -> None:
    about = {"incident": "inc-1", "cluster": EAST, "person": ADA, "now": NOW}
    first = command_of(FORM, **about)  # type: ignore[arg-type]
    later = command_of({**FORM, **changes}, **{**about, "now": NOW + timedelta(minutes=1)})  # type: ignore[arg-type]
    assert (first.id == later.id) is not bool(changes)


def test_another_session_is_another_press() -> None:
    about = {"incident": "inc-1", "cluster": EAST, "now": NOW}
    ids = {command_of(FORM, person=replace(ADA, session=s), **about).id for s in ("s1", "s2")}  # type: ignore[arg-type]
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ("/incidents/inc-1?told=x", "/incidents/inc-1?told=x"),
        ("//evil.example.test", "/"),
        ("/\\evil.example.test", "/"),
        ("https://evil.example.test/", "/"),
        ("incidents", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("/search?q=ä", "/search?q=%C3%A4"),
        ("", "/"),
    ],
)
def test_a_way_back_is_a_path_of_the_console(told: str, path: str) -> None:
    assert safe_path(told) == path


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (59, "59 s"), (60, "1 min"), (3_600, "1 h"), (3_900, "1 h 5 min"), (90_000, "1 d 1 h")],
)
def test_an_age_is_short(seconds: int, text: str) -> None:
    assert short(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"oidc": {"issuer": "https://login.example.test"}, "public_url": "https://c.example.test"},
            "client_id",
        ),
        ({"oidc": {"issuer": "https://login.example.test", "client_id": "x"}}, "public_url"),
        ({"oidc": {"scopes": ["profile"]}}, "openid"),
        ({"proxy": {"addresses": ["10.0.0.7"]}}, "session_secret"),
        ({"session_secret": "short"}, "32 characters"),
        ({"proxy": {"addresses": ["proxy.example.test"]}}, "not an address"),
        ({"proxy": {"addresses": ["0.0.0.0/0"]}}, "holds every address"),
        ({"oidc": {"issuer": "http://login.example.test", "client_id": "c"}}, "not https"),
        ({"readers": 0}, "readers"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ConsoleSettings.model_validate(settings)


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    made = ConsoleSettings.model_validate({"public_url": "", "session_secret": "", "oidc": {"issuer": ""}})
    assert not made.has_login


def test_the_script_is_short_and_asks_nobody_else() -> None:
    script = static_files()["console.js"][0].decode()
    assert len(script.splitlines()) <= 150
    for name in ("innerHTML = ", "eval(", "document.write", "http://", "https://"):
        assert name not in script
    assert "url(" not in static_files()["console.css"][0].decode()


def test_a_state_that_was_never_drawn_has_a_shape_all_the_same() -> None:
    """A new state must not be an invisible one: the shape is there without a rule of its own."""
    css = static_files()["console.css"][0].decode()
    assert ".state i {" in css
    for state in IncidentState:
        assert f".is-{state}" in css
