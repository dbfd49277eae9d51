"""Secrets in files: what is in them counts as a variable would, and is in no message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faultline.runtime.secret_files import LARGEST_BYTES
from faultline.runtime.settings import load
from streams.model.errors import ConfigError


@pytest.fixture(autouse=True)
def _channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_SLACK__CHANNEL", "C0INCIDENTS")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Secret as a kubelet mounts it: links into a dated folder, which is exchanged as a whole."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    monkeypatch.setenv("FAULTLINE_SECRETS_DIR", str(tmp_path))
    put(tmp_path, "FAULTLINE_SLACK__TOKEN", "xoxb-of-the-folder\n")
    return tmp_path


def put(folder: Path, name: str, content: str) -> None:
    (folder / "..2026" / name).write_text(content)
    (folder / name).symlink_to(Path("..data") / name)


def token() -> str | None:
    found = load().slack.token
    return found.get_secret_value() if found else None


def test_a_mounted_secret_is_read_by_the_names_of_its_keys(mounted: Path) -> None:
    assert token() == "xoxb-of-the-folder"
    assert "xoxb" not in str(os.environ)


def test_a_variable_goes_before_a_file(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINE_SLACK__TOKEN", "xoxb-of-the-environment")
    assert token() == "xoxb-of-the-environment"


def test_one_file_can_be_named_for_one_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("xoxb-of-a-file")
    monkeypatch.setenv("FAULTLINE_SLACK__TOKEN_FILE", str(tmp_path / "token"))
    assert token() == "xoxb-of-a-file"


def test_a_setting_that_names_a_file_itself_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLINE_INVENTORY__TOPOLOGY_FILE", str(tmp_path / "later.yaml"))
    assert load().inventory.topology_file == tmp_path / "later.yaml"


def test_a_key_of_the_secret_that_is_no_setting_is_named(mounted: Path) -> None:
    put(mounted, "FAULTLINE_SLAK__TOKEN", "xoxb-hidden")
    with pytest.raises(ConfigError, match="there is no setting `slak`") as caught:
        load()
    assert "hidden" not in str(caught.value)


def test_other_keys_of_the_secret_are_left_alone(mounted: Path) -> None:
    put(mounted, "tls.key", "not a setting")
    assert token() == "xoxb-of-the-folder"


@pytest.mark.parametrize("how", ["missing", "folder", "fifo", "not text", "endless"])
def test_a_file_that_cannot_be_a_secret_is_refused_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    file = tmp_path / "token"
    match how:
        case "folder":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "not text":
            file.write_bytes(b"hidden\xff")
        case "endless":
            file.write_text("hidden" * LARGEST_BYTES)
    monkeypatch.setenv("FAULTLINE_SLACK__TOKEN_FILE", str(file))
    with pytest.raises(ConfigError, match="FAULTLINE_SLACK__TOKEN: ") as caught:
        load()
    assert "hidden" not in str(caught.value)
