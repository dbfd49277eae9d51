"""A set of files is loaded as a whole or refused as a whole, and only once it lies still."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from faultline.runtime import checked_copy
from faultline.runtime.config_set import ConfigSet
from faultline.runtime.reload import BeginAnew, LiveConfig, Reloader, starting_set
from faultline.runtime.runbook_files import of_responder
from faultline.runtime.settings import Settings, edited
from streams.config.table_overlay import COPY, ROOTS, overlay_of
from streams.model.errors import ConfigError
from streams.telemetry.registry import Metrics
from tests.testbed.waiting import eventually

BOOK = """\
id: {name}
revision: {revision}
owner: gpu-platform
mode: auto
description: Open a ticket for what this site alone has to know of.
match: incident.family == "application"
priority: 900
steps:
  - id: ticket
    action: open_ticket
    target: incident
"""


class Site:
    """A folder of settings and runbooks, the reloader of one process, and what it loaded and counted."""

    def __init__(self, folder: Path, process: str = "responder") -> None:
        self.folder, self.path = folder, folder / "faultline.yaml"
        (folder / "runbooks").mkdir()
        self.settings(responder={})
        settings, now = starting_set(self.path)
        self.outcomes: list[str] = []
        self.adopted: list[tuple[Settings, ConfigSet]] = []

        self.live = LiveConfig(now.version, self.adopt)
        self.reloader = Reloader(process, self.path, settings, now=now, live=self.live)
        self.begun_with = now

    async def adopt(self, new: Settings, found: ConfigSet) -> Callable[[], None]:
        return partial(self.adopted.append, (new, found))

    def settings(self, **sections: object) -> None:
        responder = {"runbook_dirs": [str(self.folder / "runbooks")]} | dict(sections.pop("responder"))  # type: ignore[call-overload]
        self.path.write_text(yaml.safe_dump({"responder": responder, **sections}))

    def runbook(self, name: str, text: str) -> None:
        (self.folder / "runbooks" / f"{name}.yaml").write_text(text)

    async def looks(self, count: int = 2) -> list[dict[str, object]]:
        with capture_logs() as lines:
            for _ in range(count):
                if (outcome := await self.reloader.look()) is not None:
                    self.outcomes.append(outcome)
        return [dict(line) for line in lines if line["log_level"] != "debug"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """Stands for the program that checks a set, where a test is about what follows from its answer."""

    def answers(faults: list[str]) -> None:
        async def told(_: Reloader) -> list[str]:
            return faults

        monkeypatch.setattr(Reloader, "_faults", told)

    return answers


async def test_a_valid_set_is_loaded_once_it_lies_still(
    site: Site, checked: Callable[[list[str]], None]
) -> None:
    checked([])
    site.settings(responder={"mode": "approve"})
    site.runbook("own", BOOK.format(name="own", revision=1))
    assert await site.looks(1) == [], "it may be written still"
    (line,) = await site.looks(1)
    assert line["event"] == "configuration loaded"
    ((settings, found),) = site.adopted
    assert (settings.responder.mode, site.outcomes) == ("approve", ["loaded"])
    assert site.reloader.now == found != site.begun_with
    assert await site.looks(3) == []


@pytest.mark.nightly
async def test_a_set_with_one_wrong_file_is_refused_as_a_whole_once_and_then_mended(site: Site) -> None:
    site.settings(responder={"mode": "auto"}, correlator={"retention_minutes": 1, "node_settle_s": 60})
    site.runbook("own", BOOK.format(name="own", revision=1).replace("open_ticket", "reboot_the_world"))
    (line,) = await site.looks(5)
    assert str(line["event"]).startswith("configuration NOT loaded")
    assert "reboot_the_world" in str(line["faults"])
    assert "outlast what is kept" in str(line["faults"]), "files that contradict each other are a fault, too"
    assert (site.outcomes, site.adopted) == (["refused"], [])
    assert site.reloader.settings.responder.mode == "shadow", "the valid half is not applied"
    site.settings(responder={"mode": "auto"})
    site.runbook("own", BOOK.format(name="own", revision=1))
    await site.looks()
    assert site.outcomes == ["refused", "loaded"]


async def test_a_half_written_file_is_waited_for(site: Site, checked: Callable[[list[str]], None]) -> None:
    checked([])
    whole = BOOK.format(name="own", revision=1)
    for end in range(40, len(whole), 40):
        site.runbook("own", whole[:end])
        assert await site.looks(1) == [], "another half at every look"
    site.runbook("own", whole)
    await site.looks()
    assert site.outcomes == ["loaded"]


async def test_a_change_that_needs_a_restart_is_told_and_nothing_of_it_applied(
    site: Site, checked: Callable[[list[str]], None]
) -> None:
    checked([])
    site.settings(responder={"mode": "auto"}, kafka={"bootstrap": "elsewhere:9092"})
    (line,) = await site.looks(4)
    assert line["needs_restart"] == ["kafka.bootstrap"]
    assert (site.outcomes, site.adopted) == (["needs_restart"], [])
    assert site.reloader.settings.responder.mode == "shadow"


async def test_with_a_revision_nothing_is_loaded_until_it_changes(
    tmp_path: Path, checked: Callable[[list[str]], None]
) -> None:
    checked([])
    (tmp_path / "REVISION").write_text("main@1\n")
    site = Site(tmp_path)
    site.settings(responder={"mode": "approve"})
    (line,) = await site.looks(4)
    assert "REVISION did not" in str(line["event"])
    assert site.outcomes == []
    (tmp_path / "REVISION").write_text("main@2\n")
    await site.looks()
    assert site.outcomes == ["loaded"]
    assert site.reloader.now.version.endswith("+main@2")


async def test_files_that_move_while_they_are_checked_are_not_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def moved(_: Reloader) -> list[str]:
        site.settings(responder={"mode": "auto"})
        return []

    site.settings(responder={"mode": "approve"})
    monkeypatch.setattr(Reloader, "_faults", moved)
    await site.looks()
    assert (site.adopted, site.outcomes) == ([], [])


@pytest.mark.parametrize("is_valid", [True, False])
async def test_what_is_there_only_while_it_is_taken_over_is_neither_in_force_nor_refused(
    site: Site, checked: Callable[[list[str]], None], is_valid: bool
) -> None:
    checked([])
    whole = BOOK.format(name="own", revision=1)
    site.runbook("own", whole)

    async def replaced(new: Settings, found: ConfigSet) -> Callable[[], None]:
        site.runbook("own", BOOK.format(name="own", revision=2) if is_valid else whole[:40])
        if not is_valid:
            raise ConfigError("own.yaml: a runbook without steps")
        return await site.adopt(new, found)

    site.live.adopt = replaced
    assert await site.looks() == []
    assert (site.adopted, site.outcomes) == ([], []), "nobody has checked what was read"
    site.runbook("own", whole)
    site.live.adopt = site.adopt
    await site.looks()
    ((_, found),) = site.adopted
    assert (site.reloader.now, site.outcomes) == (found, ["loaded"])


async def test_what_is_not_live_begins_anew_in_place(
    tmp_path: Path, checked: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked([])
    monkeypatch.setattr("faultline.runtime.reload.STAGGER_S", 0.0)
    site = Site(tmp_path, "detector")
    site.settings(responder={}, detector={"poll_ms": 300})
    with pytest.raises(BeginAnew) as begins:
        await site.looks()
    shutil.rmtree(begins.value.copy)


async def test_who_waits_to_begin_anew_does_not_with_files_that_came_meanwhile(
    tmp_path: Path, checked: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked([])
    site = Site(tmp_path, "detector")

    def waits(_least: float, _most: float) -> float:
        site.settings(responder={}, detector={"poll_ms": "soon"})
        return 0.0

    monkeypatch.setattr("faultline.runtime.reload.random.uniform", waits)
    site.settings(responder={}, detector={"poll_ms": 300})
    await site.looks()
    assert site.outcomes == []
    checked(["detector.poll_ms: not a number"])
    await site.looks()
    assert site.outcomes == ["refused"], "the good one between is never begun with, and the bad one told"


async def test_what_is_refused_is_told_for_each_content_and_again_after_a_good_one(
    site: Site, checked: Callable[[list[str]], None]
) -> None:
    checked(["responder.kill_switch: no boolean"])
    good = site.path.read_text()
    for text, outcomes in (
        ("responder: {kill_switch: tru}", ["refused"]),
        ("responder: {kill_switch: yess}", ["refused"]),
        (good, []),
        ("responder: {kill_switch: yess}", ["refused"]),
    ):
        site.path.write_text(text)
        site.outcomes.clear()
        (line,) = await site.looks(4)
        assert site.outcomes == outcomes, text
        assert str(line["event"]).startswith("configuration NOT loaded" if outcomes else "the files of the")


async def test_a_file_that_stays_away_is_told_once(site: Site) -> None:
    text = site.path.read_text()
    site.path.unlink()
    assert await site.looks(1) == [], "it may be replaced just now"
    (line,) = await site.looks(3)
    assert "cannot be read" in str(line["faults"])
    assert site.outcomes == ["refused"]
    site.path.write_text(text)
    (line,) = await site.looks(3)
    assert "in force again" in str(line["event"])


@pytest.mark.parametrize("text", ["", "# responder: {kill_switch: true}\n"])
async def test_an_emptied_file_is_no_wish_for_defaults(site: Site, text: str) -> None:
    """The true check finds nothing wrong with it."""
    site.path.write_text(text)
    (line,) = await site.looks(3)
    assert "is empty: every setting would fall to its default" in str(line["faults"])
    assert (site.outcomes, site.adopted) == (["refused"], [])


async def test_whoever_begins_anew_has_what_was_checked_whatever_lies_there_by_then(
    tmp_path: Path, checked: Callable[[list[str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked([])
    monkeypatch.setattr("faultline.runtime.reload.STAGGER_S", 0.0)
    rows = tmp_path / "catalog"
    (rows / "lines").mkdir(parents=True)
    (rows / "lines" / "nccl.yaml").write_text("{}\n")
    monkeypatch.setenv("FAULTLINE_CATALOG_DIR", str(rows))
    site = Site(tmp_path, "gateway")
    site.runbook("own", BOOK.format(name="own", revision=1))
    site.settings(responder={"mode": "approve"})
    with pytest.raises(BeginAnew) as begins:
        await site.looks()
    for file in (site.path, tmp_path / "runbooks" / "own.yaml", rows / "lines" / "nccl.yaml"):
        file.write_text("")
    monkeypatch.setattr(
        "faultline.runtime.checked_copy.os.environ", dict(os.environ)
    )  # as of the program that begins
    checked_copy.hand_on(begins.value.copy)
    begun = checked_copy.begun()
    assert begun is not None
    assert begun.settings.responder.mode == "approve"
    assert begun.settings.responder.runbook_dirs == (tmp_path / "runbooks",), "these it watches"
    (own,) = [book for book in of_responder(begun.to_work_with.responder) if book.id == "own"]
    assert own.revision == 1
    assert begun.found.version in str(begins.value)
    (table,) = (root / "lines" / "nccl.yaml" for root in ROOTS if (root / "lines" / "nccl.yaml").exists())
    with monkeypatch.context() as env:
        env.setenv(COPY, os.fspath(begins.value.copy / "catalog"))
        over = overlay_of(table)
        assert over is not None
        assert over.read_text() == "{}\n"
    checked_copy.drop()
    assert not begins.value.copy.exists()


async def test_which_version_is_in_force_and_what_became_of_others_is_counted(
    site: Site, checked: Callable[[list[str]], None]
) -> None:
    checked(["responder.mode: no mode"])
    metrics = Metrics("responder")
    site.settings(responder={"mode": "auto"}, reload_s=0.01)
    site.reloader.settings = edited(site.reloader.settings, ["reload_s=0.01"])
    watching = asyncio.create_task(site.reloader.watch(metrics))

    async def counted() -> bool:
        return 'config_reloads_total{outcome="refused"} 1.0' in exposed(metrics)

    await eventually(counted, "the refused set is counted")

    async def pending() -> bool:
        return "config_pending 1.0" in exposed(metrics)

    await eventually(pending, "what lies there is shown not to be in force")
    watching.cancel()
    assert f'config_info{{digest="{site.begun_with.version}"}} 1.0' in exposed(metrics)


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()
