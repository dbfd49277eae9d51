"""What decides besides the records is in a capture, and nothing that opens a door."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin

import orjson
import pytest
import yaml
from pydantic import BaseModel, SecretStr

from faultline.replay.kafka_capture.surroundings import DECIDES, plain_settings, versions, write_surroundings
from faultline.replay.planned import actions_of
from faultline.replay.redaction.pseudonyms import KEY_BYTES
from faultline.replay.redaction.redaction import Learning
from faultline.replay.what_if.decide import group_window_s
from faultline.runtime.settings import Settings, load
from runbooks.language.loader import load as load_runbooks
from streams.config.notifier_settings import SinkSettings
from streams.config.settings import ResponderSettings
from streams.model.record import RawRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

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
    "kubernetes": {"kubeconfig": "/tmp/broker-7/config"},
    "archive": {"url": "s3://bucket/p?access_key=broker-7&secret_key=hunter2"},
    "notifier": {"sinks": {"pager": {"kind": "pagerduty", "key": "hunter2", "group_window_s": 30}}},
    "node_work": {
        "reboot_node": "/etc/broker-7/reboot.yaml",
        "diagnostics": "/etc/broker-7/diagnostics",
        "redfish": {
            "address": "https://{node}.broker-7",
            "user_file": "/broker-7",
            "password_file": "/hunter2",
        },
    },
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
    assert actions_of(again) == actions_of(made)
    assert group_window_s(again) == group_window_s(made) == 30
    assert again.correlator == made.correlator
    assert again.responder == made.responder.model_copy(update={"runbook_dirs": ()})
    assert (taken / "topology.yaml").read_text() == (tmp_path / "topology.yaml").read_text()


def canaries(model: type[BaseModel], path: str = "") -> Any:
    """A section in which every setting holds its own name, whatever it should hold."""
    return model.model_construct(
        **{name: canary(field.annotation, f"{path}{name}") for name, field in model.model_fields.items()}
    )


def canary(annotation: Any, path: str) -> Any:
    parts = [get_origin(annotation) or annotation, *get_args(annotation)]
    section = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
    value: Any = f"[{path}]" if section is None else canaries(section, f"{path}.")
    if SecretStr in parts:
        return SecretStr(value)
    if Mapping in parts:
        return {f"[{path}]": value}
    return (value,) if tuple in parts else value


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_only_settings_that_a_replay_decides_by_are_in_a_capture() -> None:
    full = canaries(Settings)
    sink = canaries(SinkSettings, "notifier.sinks.").model_copy(update={"kind": "pagerduty"})
    full.notifier.__dict__["sinks"] = {"pager": sink}
    written = yaml.safe_dump(plain_settings(full))
    found = set(re.findall(r"\[([a-z0-9_.]+)\]", written))
    decides = {f"{section}.{name}" for section, names in DECIDES.items() for name in names}
    assert {".".join(name.split(".")[:2]) for name in found} == {"cluster", "notifier.sinks", *decides}
    assert {name for name in found if name.startswith("notifier")} == {
        "notifier.sinks.page_shadow",
        "notifier.sinks.group_window_s",
    }
    assert not [name for name in decides if re.search("dir|url|file|host|key|secret|token", name)]


def test_names_of_settings_stay_when_people_and_processes_are_called_like_them(tmp_path: Path) -> None:
    learning = Learning("west", bytes(range(KEY_BYTES)))
    for actor in ("correlator", "responder", "approvers", "cordon", "gpu-off-bus", "Ada Byron (U0000001)"):
        learning.learn(RawRecord("timeline", 0, 0, NOON, None, orjson.dumps({"actor": actor})))
    path = tmp_path / "faultline.yaml"
    approvers = ["slack:S0ONCALL", "Ada Byron (U0000001)"]
    path.write_text(
        yaml.safe_dump(
            {
                "cluster": "west",
                "correlator": {"node_settle_s": 7},
                "responder": {"mode": "auto", "approvers": approvers},
                "kubernetes": {"kubeconfig": "/home/ada/kubeconfig"},
                "node_work": {"reset_gpu": "/srv/jobs/reset.yaml"},
            }
        )
    )
    made = load(path)
    learning.learn_document(plain_settings(made))
    write_surroundings(tmp_path, made, learning.learned().text)
    text = (tmp_path / "settings.yaml").read_text()
    for name in ("Ada", "Byron", "U0000001", "S0ONCALL", "/home", "/srv"):
        assert name not in text
    again = load(tmp_path / "settings.yaml")
    assert again.correlator == made.correlator
    assert again.responder.approvers[0].startswith("slack:")
    assert again.responder == made.responder.model_copy(update={"approvers": again.responder.approvers})
    assert again.node_work.offers("reset_gpu"), "where its template was is not told, that there was one is"


def test_runbooks_are_those_that_are_loaded_with_the_installations_own(tmp_path: Path) -> None:
    made = settings(tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    write_surroundings(taken, made, str)
    assert load_runbooks([taken / "runbooks"], shipped=False) == load_runbooks(made.responder.runbook_dirs)
    assert "ours" in versions(made.responder).runbooks


def test_the_digest_of_the_catalog_is_the_same_each_time() -> None:
    assert versions(ResponderSettings()) == versions(ResponderSettings())
