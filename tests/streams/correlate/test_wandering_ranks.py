"""A rank that hangs while the others of its node keep up: the node is suspected, until another node's rank does the same."""

from __future__ import annotations

import pytest

from streams.model.incident import Audience, Certainty, IncidentState
from tests.streams.correlate.world import World, at, cluster, pods, timeouts

NODES = ["n1", "n2", "n3", "n4"]
RANKS = range(32)


def tries(*silent: int) -> World:
    """A job that hangs once for each of these ranks, and is started again after it."""
    world = World(cluster({"llm": NODES}))
    for number, rank in enumerate(silent):
        start = number * 2400.0
        if number:
            for fact in pods("llm", NODES, since=start - 600, attempt=number + 1):
                world.tell(fact)
        told = timeouts("llm", [r for r in RANKS if r != rank], start + 600, seq=40 + number)
        world.see(*told)
        world.pass_to(start + 1200, step=20)
    return world


def test_one_silent_rank_names_its_node_and_says_that_the_others_keep_up() -> None:
    incident = tries(11).only()
    assert (incident.family, incident.root.node, incident.certainty) == (
        "silent_node",
        "n2",
        Certainty.LIKELY,
    )
    assert incident.facts["others_keep_up"] is True
    assert incident.audience is Audience.ON_CALL


def test_ranks_of_two_nodes_in_turn_are_the_programs_and_one_incident() -> None:
    standing = [i for i in tries(11, 22).incidents() if i.state is not IncidentState.MERGED]
    assert [(i.family, i.root.job and i.root.job.name) for i in standing] == [("hang", "llm")]
    assert "2 times some ranks of one node were behind: of n2, n3" in standing[0].reason
    assert standing[0].audience is Audience.OWNER
    assert standing[0].fault_at <= at(60)


@pytest.mark.parametrize("rank", [8, 15])
def test_ranks_of_one_node_in_turn_are_that_nodes(rank: int) -> None:
    assert {i.root.node for i in tries(11, rank).incidents()} == {"n2"}
