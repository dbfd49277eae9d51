from types import SimpleNamespace
from typing import Any

import pytest

from faultline.cli.send_command import answers_to, is_refusal
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.process import Responder
from streams.config.settings import KafkaSettings
from streams.kafka.topics import COMMANDS, INCIDENTS
from streams.model.codec import encode
from streams.model.conversation import Command, Verb
from streams.model.incident import Incident
from tests.runbooks.scenes import CLUSTER, NOW, incident, policy


class Received:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []

    def take_incident(self, told: Incident) -> None:
        self.incidents.append(told)


@pytest.mark.parametrize(("acts_on", "taken"), [(CLUSTER, 1), (None, 1), ("another-cluster", 0)])
async def test_an_incident_of_another_cluster_is_left_alone(acts_on: str | None, taken: int) -> None:
    responder = Responder(KafkaSettings(), policy(), [], [], cluster=acts_on)
    board = Received()
    work: Any = SimpleNamespace(state=board, owned=SimpleNamespace(caught_up=True))
    record: Any = SimpleNamespace(key=b"inc-1", value=encode(incident()))
    responder._read(work, INCIDENTS.name, record)
    assert len(board.incidents) == taken


@pytest.mark.parametrize(("acts_on", "taken"), [(CLUSTER, True), (None, True), ("another-cluster", False)])
@pytest.mark.parametrize("verb", [Verb.KILL, Verb.RELEASE, Verb.STOP])
async def test_who_speaks_to_another_cluster_is_told_that_it_does_not_count(
    acts_on: str | None, taken: bool, verb: Verb
) -> None:
    responder = Responder(KafkaSettings(), policy(), [], [], cluster=acts_on)
    board = PartitionState([], policy(), frozenset())
    said = Command("cmd-1", "", CLUSTER, verb, "ada", NOW, scope="node:node-03")
    work: Any = SimpleNamespace(state=board, owned=SimpleNamespace(caught_up=True))
    responder._read(work, COMMANDS.name, SimpleNamespace(key=b"c1", value=encode(said)))
    board.advance(NOW)
    changes = board.collect()
    (answer,) = [entry for entry in changes.timeline if answers_to(said)(entry)]
    if not taken:
        assert is_refusal(answer)
        assert "acts on another-cluster, not on c1" in answer.text
    assert bool(changes.controls) is (taken and verb is Verb.KILL)
