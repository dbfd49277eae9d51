"""What decides besides the records is in a capture, and nothing that opens a door."""

from __future__ import annotations

from pathlib import Path

import yaml

from faultline.replay.kafka_capture.surroundings import versions, write_surroundings
from faultline.runtime.settings import Settings, load
from runbooks.language.loader import load as load_runbooks
from streams.config.settings import ResponderSettings

SETTINGS = {
    "cluster": "west",
    "kafka": {
        "bootstrap": "broker-7.example.com:9092",
        "security_protocol": "SASL_SSL",
        "sasl_username": "faultline",
        "sasl_password": "hunter2",
    },
    "responder": {"tickets_per_10_min": 4},
    "correlator": {"node_settle_s": 7},
}


def settings(folder: Path) -> Settings:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "gpu-off-bus.yaml").write_text(runbook("ours"))
    topology = folder / "topology.yaml"
    topology.write_text("leaf-03:\n  Ethernet12: {node: gpu-07, nic: mlx5_2}\n")
    values = SETTINGS | {
        "responder": {**SETTINGS["responder"], "runbook_dirs": [str(mine)]},  # type: ignore[dict-item]
        "inventory": {"topology_file": str(topology)},
    }
    path = folder / "faultline.yaml"
    path.write_text(yaml.safe_dump(values))
    return load(path)


def runbook(name: str) -> str:
    """A runbook of an installation, in a file that is called like one that ships."""
    shipped = next(book for book in load_runbooks() if book.id == "unknown")
    text = (Path(load_runbooks.__code__.co_filename).parents[1] / "library" / "unknown.yaml").read_text()
    assert shipped.id in text
    return text.replace("id: unknown", f"id: {name}", 1)


def test_settings_load_again_without_secrets_connections_and_paths(tmp_path: Path) -> None:
    made = settings(tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    write_surroundings(taken, made, str)
    text = (taken / "settings.yaml").read_text()
    for secret in ("hunter2", "broker-7", str(tmp_path)):
        assert secret not in text
    again = load(taken / "settings.yaml")
    assert again.cluster == "west"
    assert again.correlator == made.correlator
    assert again.responder == made.responder.model_copy(update={"runbook_dirs": ()})
    assert (taken / "topology.yaml").read_text() == (tmp_path / "topology.yaml").read_text()


def test_runbooks_are_those_that_are_loaded_with_the_installations_own(tmp_path: Path) -> None:
    made = settings(tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    write_surroundings(taken, made, str)
    assert load_runbooks([taken / "runbooks"], shipped=False) == load_runbooks(made.responder.runbook_dirs)
    assert "ours" in versions(made.responder).runbooks


def test_the_digest_of_the_catalog_is_the_same_each_time() -> None:
    assert versions(ResponderSettings()) == versions(ResponderSettings())
