"""`faultline maintenance` and `faultline rollout`: which nodes are meant, until when, and what is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from faultline.cli.commands.maintenance import announced, chosen, command, end_of, rows
from faultline.cli.commands.rollout import stages
from streams.config.rollout_settings import PoolRollout, Stage
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import rfc3339
from streams.model.control import Control, RolledBack
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.node_notice import NodeNotice
from tests.runbooks.scenes import incident

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def nodes(count: int = 16, pool: str | None = "h100") -> dict[str, NodeFact]:
    names = [f"gpu-{i:03d}" for i in range(1, count + 1)]
    return {name: NodeFact("c1", name, name, NOW, gpus=8, pool=pool) for name in names}


def work(node: str, until: datetime, **facts: object) -> Incident:
    given = {"by": "ada", "until": rfc3339(until), "work_reason": "firmware", "request": "cmd-1", **facts}
    return incident("planned_work", Entity("c1", node=node), id=f"inc-{node}", facts=given)


@pytest.mark.parametrize(
    ("given", "pool", "expected"),
    [
        (["gpu-[001-003]"], None, ["gpu-001", "gpu-002", "gpu-003"]),
        (["gpu-002", "gpu-002"], None, ["gpu-002"]),
        (["gpu-00[1,5]"], None, ["gpu-001", "gpu-005"]),
        (["gpu-01*"], None, ["gpu-010", "gpu-011", "gpu-012", "gpu-013", "gpu-014", "gpu-015", "gpu-016"]),
        ([], "h100", sorted(nodes())),
    ],
)
def test_nodes_are_names_host_lists_patterns_or_a_pool(
    given: list[str], pool: str | None, expected: list[str]
) -> None:
    assert chosen(given, pool, nodes()) == expected


@pytest.mark.parametrize(
    ("given", "pool", "why"),
    [
        (["gpu-[015-018]"], None, "no such node in the inventory: gpu-017, gpu-018"),
        (["gpu-0001"], None, "did you mean"),
        (["cpu-*"], None, "no such node"),
        ([], "h200", "no pool h200; known: h100"),
        ([], None, "give nodes"),
        (["gpu-[003-001]"], None, "runs backwards"),
    ],
)
def test_what_names_no_node_is_refused(given: list[str], pool: str | None, why: str) -> None:
    with pytest.raises(BadInput, match=why.replace("[", r"\[")):
        chosen(given, pool, nodes())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--until", "4h", "--reason", "firmware"], "give nodes, a host list, a pattern or --pool"),
        (["start", "gpu-1", "--until", "4h"], "--reason: say what is done"),
        (["stop"], "or --all"),
        (["stop", "gpu-1", "--all"], "give no others"),
    ],
)
def test_what_is_not_clear_is_refused_before_a_broker_is_asked(arguments: list[str], said: str) -> None:
    answer = CliRunner().invoke(command, arguments)
    assert isinstance(answer.exception, BadInput)
    assert said in str(answer.exception)


def test_more_nodes_than_one_request_takes_are_refused() -> None:
    with pytest.raises(BadInput, match="2001 nodes; one request takes 2000"):
        chosen(["gpu-*"], None, nodes(2001))


@pytest.mark.parametrize(
    ("text", "after"),
    [("90m", timedelta(minutes=90)), ("4h", timedelta(hours=4)), ("2d", timedelta(days=2))],
)
def test_the_end_is_a_length(text: str, after: timedelta) -> None:
    assert end_of(text, NOW) == NOW + after


def test_the_end_is_a_time_with_a_zone() -> None:
    assert end_of("2026-03-01T16:00:00+02:00", NOW) == NOW + timedelta(hours=2)


@pytest.mark.parametrize(
    "text", ["16:00", "2026-03-01T16:00:00", "2026-03-01T11:00:00Z", "h", "-1h", "", "1w", "٣h"]
)
def test_an_end_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--until"):
        end_of(text, NOW)


def test_overdue_work_comes_first_and_what_is_over_is_left_out() -> None:
    given = [
        work("gpu-001", NOW + timedelta(hours=1)),
        work("gpu-002", NOW - timedelta(hours=1)),
        replace(work("gpu-003", NOW), state=IncidentState.RESOLVED),
        work("gpu-004", NOW + timedelta(hours=1), work_over=True),
    ]
    found = rows({one.id: one for one in given}, {}, NOW)
    assert [(r["node"], r["overdue"], r["state"]) for r in found] == [
        ("gpu-002", True, "open"),
        ("gpu-001", False, "open"),
        ("gpu-004", False, "ending"),
    ]


def test_the_list_of_stages_marks_a_pool_that_no_node_is_in() -> None:
    view = ClusterView("c1")
    for fact in (*nodes(2).values(), *(replace(f, name=f"a-{n}", pool="a100") for n, f in nodes(1).items())):
        view.put(fact)
    policy = ResponderSettings(
        rollout=(
            PoolRollout(pool="h10O", stage=Stage.ACT),
            PoolRollout(pool="h100", stage=Stage.CANARY, canary_nodes=1, until=NOW + timedelta(days=1)),
        )
    )
    back = RolledBack("a100", "ada", NOW, "two healthy nodes")
    found = {r["pool"]: r for r in stages(view, policy, Control("c1", rolled_back=(back,)), NOW)}
    assert found["h10O"]["note"] == "no node of the inventory is in this pool"
    assert (found["h100"]["stage"], found["h100"]["acts_on"], found["h100"]["then"]) == (
        "canary",
        "gpu-001",
        "observe",
    )
    assert (found["a100"]["stage"], found["a100"]["by"]) == ("observe", "ada: two healthy nodes")
    later = {r["pool"]: r for r in stages(view, policy, Control("c1"), NOW + timedelta(days=2))}
    assert (later["h100"]["stage"], later["a100"]["stage"]) == ("observe", "act")
    assert later["h100"]["note"].startswith("stage canary ended")


def test_what_is_announced_is_listed_by_its_time_with_or_without_an_incident() -> None:
    """Of a node that no job runs on only its object tells; an Event of the cloud tells of another."""
    facts = nodes(4)
    coming = NodeNotice("the cloud", "mark", "host_maintenance", NOW + timedelta(days=3))
    facts["gpu-002"] = replace(facts["gpu-002"], notice=coming)
    facts["gpu-003"] = replace(facts["gpu-003"], notice=replace(coming, not_before=NOW - timedelta(days=1)))
    given = {
        "deadline": rfc3339(NOW + timedelta(days=2)),
        "node_ends": "gone",
        "opens": rfc3339(NOW + timedelta(days=1)),
    }
    told = incident("preemption", Entity("c1", node="gpu-004"), id="inc-4", facts=given)
    over = replace(told, id="inc-1", root=Entity("c1", node="gpu-001"), state=IncidentState.RESOLVED)
    later = rfc3339(NOW + timedelta(days=3))
    first, second = announced(facts, {"inc-4": told, "inc-1": over}, NOW)
    assert (first["node"], first["ends"], first["incident"]) == ("gpu-004", "gone", "inc-4")
    assert (first["due"], first["opens"]) == (given["deadline"], given["opens"])
    assert second == {
        "node": "gpu-002",
        "by": "the cloud",
        "ends": "back",
        "incident": "",
        "due": later,
        "opens": "",
    }
