"""The files that a process decides by, as a mounted ConfigMap, git-sync, rsync and an editor write them."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

from faultline.runtime import wiring
from faultline.runtime.config_set import ConfigSet, read_set
from faultline.runtime.processes import PROCESSES
from faultline.runtime.reloadable import LIVE, RESTART, USES, change_for, differing, how_of
from faultline.runtime.setting_faults import every_key
from faultline.runtime.settings import Settings, edited, load
from streams.config.table_overlay import overlay_files, unknown_files
from streams.model.errors import ConfigError

BOOK = "id: own\nrevision: {}\n"


class ConfigMap:
    """A volume as the kubelet writes it: files are links through `..data`, which is swapped in one rename."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._number = folder, 0
        folder.mkdir()

    def write(self, **files: str) -> None:
        self._number += 1
        data = self.folder / f"..2026_03_02_{self._number}"
        data.mkdir()
        for name, text in files.items():
            (data / name.replace("__", ".")).write_text(text)
        new = self.folder / "..data_tmp"
        new.symlink_to(data.name)
        os.replace(new, self.folder / "..data")
        for name in files:
            link = self.folder / name.replace("__", ".")
            if not link.is_symlink():
                link.symlink_to(f"..data/{link.name}")


def test_a_swapped_config_map_is_another_version_and_the_same_content_is_not(tmp_path: Path) -> None:
    mounted = ConfigMap(tmp_path / "faultline")
    path = mounted.folder / "faultline.yaml"
    text = f"responder: {{runbook_dirs: [{mounted.folder}]}}\n"
    mounted.write(faultline__yaml=text, own__yaml=BOOK.format(1), REVISION="main@1a2b3c4\n")
    settings = load(path)
    first = read_set(path, settings)
    assert first.revision == "main@1a2b3c4"
    assert first.version == f"{first.digest}+main@1a2b3c4"
    mounted.write(faultline__yaml=text, own__yaml=BOOK.format(1), REVISION="main@1a2b3c4\n")
    assert read_set(path, settings) == first, "swapped, and nothing is different"
    mounted.write(faultline__yaml=text, own__yaml=BOOK.format(2), REVISION="main@5d6e7f8\n")
    second = read_set(path, settings)
    assert (second.settings, second.runbooks == first.runbooks) == (first.settings, False)


def test_a_checkout_that_git_sync_swaps_is_read_through_its_link(tmp_path: Path) -> None:
    one, two = "1a2b3c4d5e" * 4, "9f8e7d6c5b" * 4
    for commit in (one, two):
        (tmp_path / commit).mkdir()
        (tmp_path / commit / "faultline.yaml").write_text("cluster: west\n" if commit == one else "{}\n")
    link = tmp_path / "current"
    link.symlink_to(one)
    before = read_set(link / "faultline.yaml", Settings())
    (tmp_path / "next").symlink_to(two)
    os.replace(tmp_path / "next", link)
    after = read_set(link / "faultline.yaml", Settings())
    assert after.digest != before.digest
    assert (before.revision, after.revision) == (one[:12], two[:12])


def test_an_overlay_in_a_config_map_has_each_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = ConfigMap(tmp_path / "catalog")
    mounted.write(xid__yaml="{}\n")
    monkeypatch.setenv("FAULTLINE_CATALOG_DIR", str(mounted.folder))
    assert overlay_files() == [mounted.folder / "xid.yaml"]
    assert unknown_files(mounted.folder) == []


@pytest.mark.parametrize("line", ["", "  ", "a revision", "x" * 65, "$(reboot)"])
def test_a_revision_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "REVISION").write_text(line)
    (tmp_path / "faultline.yaml").write_text("{}")
    with pytest.raises(ConfigError, match="is no revision"):
        read_set(tmp_path / "faultline.yaml", Settings())


def test_a_file_that_vanishes_while_it_is_replaced_is_no_version(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_set(tmp_path / "faultline.yaml", Settings())


A, B = ConfigSet("s1", "b1", "c1", ""), ConfigSet("s2", "b1", "c1", "")


@pytest.mark.parametrize(
    ("process", "pair", "how"),
    [
        ("responder", "responder.mode=approve", "live"),
        ("responder", "responder.protect.nodes=[gpu-1]", "live"),
        ("responder", "responder.lease_s=11", "anew"),
        ("responder", "slack.debounce_s=3", "same"),
        ("chat", "slack.debounce_s=3", "anew"),
        ("chat", "responder.mode=approve", "same"),
        ("gateway", "responder.mode=approve", "anew"),
        ("detector", "detector.poll_ms=300", "anew"),
        ("detector", "kafka.bootstrap=b:1", "restart"),
        ("notifier", "cluster=east", "restart"),
    ],
)
def test_what_a_change_means_depends_on_what_the_process_uses(process: str, pair: str, how: str) -> None:
    old = Settings()
    change = change_for(process, (old, A), (edited(old, [pair]), B))
    assert change.how == how


def test_a_change_that_needs_a_restart_holds_back_what_could_be_live() -> None:
    old = Settings()
    new = edited(old, ["responder.mode=approve", "kafka.bootstrap=b:1"])
    change = change_for("responder", (old, A), (new, B))
    assert (change.how, change.keys) == ("restart", ("kafka.bootstrap",))


def test_runbooks_are_live_for_the_responder_and_the_catalog_begins_the_detector_anew() -> None:
    old = Settings()
    books, rows = ConfigSet("s1", "b2", "c1", ""), ConfigSet("s1", "b1", "c2", "")
    assert change_for("responder", (old, A), (old, books)).how == "live"
    assert change_for("detector", (old, A), (old, books)).how == "same"
    assert [change_for(p, (old, A), (old, rows)).how for p in ("detector", "correlator", "responder")] == [
        "anew",
        "anew",
        "same",
    ]


def test_secrets_are_compared_and_never_shown() -> None:
    old = edited(Settings(), ["slack.channel=C0INCIDENTS", "slack.token=xoxb-one"])
    new = edited(old, ["slack.token=xoxb-two"])
    assert list(differing(old.model_dump(), new.model_dump())) == ["slack.token"]


def test_every_section_that_the_wiring_reads_is_in_the_table() -> None:
    """A section that is missing there would change without its process noticing."""
    text = inspect.getsource(wiring)
    for process in PROCESSES:
        body = re.search(rf"async def _{process}\(.*?(?=\nasync def |\Z)", text, re.DOTALL)
        assert body is not None
        for section, key in re.findall(r"settings\.(\w+)(?:\.(\w+))?", body[0]):
            name = f"{section}.{key}" if key else section
            known = (*USES[process], *RESTART)
            assert any(f"{name}.".startswith(f"{one}.") or one.startswith(f"{name}.") for one in known), (
                f"{process} reads {name}"
            )


def test_every_setting_says_how_a_change_takes_effect() -> None:
    hows = {key: how_of(key) for key in every_key(Settings)}
    assert hows["responder.breaker.failures"] == "live"
    assert hows["kafka.ssl_cafile"] == "restart"
    assert hows["correlator.node_settle_s"] == "anew"
    assert all(key.split(".")[1] in dict(Settings().responder) for key in LIVE)
