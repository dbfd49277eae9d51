from types import SimpleNamespace
from typing import Any

import pytest

from runbooks.responder import Responder
from streams.model.codec import encode
from streams.model.incident import Incident
from streams.model.settings import KafkaSettings
from streams.topics import INCIDENTS
from tests.runbooks.scenes import CLUSTER, incident, policy


class Board:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []

    def take_incident(self, told: Incident) -> None:
        self.incidents.append(told)


@pytest.mark.parametrize(("acts_on", "taken"), [(CLUSTER, 1), (None, 1), ("another-cluster", 0)])
async def test_an_incident_of_another_cluster_is_left_alone(acts_on: str | None, taken: int) -> None:
    responder = Responder(KafkaSettings(), policy(), [], [], cluster=acts_on)
    board = Board()
    work: Any = SimpleNamespace(board=board, owned=SimpleNamespace(caught_up=True))
    record: Any = SimpleNamespace(key=b"inc-1", value=encode(incident()))
    responder._read(work, INCIDENTS.name, record)
    assert len(board.incidents) == taken
