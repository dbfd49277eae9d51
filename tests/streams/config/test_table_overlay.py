from pathlib import Path
from typing import Any

import pytest

from faultline.replay.kafka_capture.surroundings import versions
from streams.config.settings import ResponderSettings
from streams.config.table_overlay import (
    ROOTS,
    VARIABLE,
    flat_name,
    laid_over,
    overlay_of,
    tables,
    unknown_files,
    value_changes,
)
from streams.config.yaml_tables import load_table
from streams.detect.catalog import FOLDER
from streams.detect.xid_catalog import XidCatalog
from streams.model.errors import ConfigError
from streams.model.signal import Severity

A = {"id": "a", "above": 1, "per": "1m"}
ROWS: dict[str, Any] = {"limit": 3, "rows": [A, {"id": "b", "above": 2}], "words": ["x", "y"]}
ONE_OF_TWO = {"codes": [{"codes": [2], "action": "reset"}]}
CODES: dict[str, Any] = {
    "codes": [{"codes": [1, 2], "action": "none", "cause": "old"}, {"codes": [3], "action": "reset"}]
}
NEW_CODE = {"codes": [9], "action": "x"}

OVERLAYS = {
    "a value": (ROWS, {"limit": 4}, {**ROWS, "limit": 4}),
    "rows by id": (
        ROWS,
        {"rows": [{"id": "b", "above": 9}, {"id": "c", "above": 7}]},
        {**ROWS, "rows": [A, {"id": "b", "above": 9}, {"id": "c", "above": 7}]},
    ),
    "a list of words": (ROWS, {"words": ["z"]}, {**ROWS, "words": ["z"]}),
    "one code of a row": (
        CODES,
        ONE_OF_TWO,
        {
            "codes": [
                {"codes": [1], "action": "none", "cause": "old"},
                {"codes": [2], "action": "reset", "cause": "old"},
                {"codes": [3], "action": "reset"},
            ]
        },
    ),
    "a new code": (CODES, {"codes": [NEW_CODE]}, {"codes": [*CODES["codes"], NEW_CODE]}),
}


@pytest.mark.parametrize("case", OVERLAYS)
def test_an_overlay_changes_what_it_names_and_nothing_else(case: str) -> None:
    table, given, after = OVERLAYS[case]
    before = repr(table)
    assert laid_over(table, given) == after
    assert repr(table) == before


def test_each_changed_value_is_named() -> None:
    after = laid_over(ROWS, {"rows": [{"id": "b", "above": 9}], "limit": 4})
    assert list(value_changes(ROWS, after)) == [("limit", "3 → 4"), ("rows.b.above", "2 → 9")]
    assert list(value_changes(CODES, laid_over(CODES, ONE_OF_TWO))) == [("codes.2.action", "none → reset")]


def overlay(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setenv(VARIABLE, str(folder))


def test_a_table_is_read_with_what_a_site_lays_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay(tmp_path, monkeypatch, xid="codes: [{codes: [79], severity: warning}]")
    found = load_table(FOLDER / "xid.yaml", XidCatalog)
    (row,) = (row for row in found.codes if 79 in row.codes)
    assert (row.severity, row.mnemonic) == (Severity.WARNING, "GPU_HAS_FALLEN_OFF_THE_BUS")


def test_an_overlay_is_checked_like_the_table_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay(tmp_path, monkeypatch, xid="codes: [{codes: [79], severity: loud}]")
    with pytest.raises(
        ConfigError, match=r"xid\.yaml over xid\.yaml: code 79: severity: 'loud' is none of info"
    ):
        load_table(FOLDER / "xid.yaml", XidCatalog)


def test_a_file_over_no_table_is_named_with_the_table_that_was_meant(tmp_path: Path) -> None:
    for name in ("lines/kernl.yaml", "policy/families.yaml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    assert unknown_files(tmp_path) == [
        f"{tmp_path}/lines/kernl.yaml: there is no table lines/kernl.yaml; did you mean lines/kernel.yaml?"
    ]


def test_a_folder_without_tables_is_a_mistake(tmp_path: Path) -> None:
    assert unknown_files(tmp_path) == [f"{tmp_path}: no *.yaml in it"]
    with pytest.raises(ConfigError, match="is not a directory"):
        unknown_files(tmp_path / "missing")


def test_an_overlay_changes_the_digest_of_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = versions(ResponderSettings()).catalog
    overlay(tmp_path, monkeypatch, xid="codes: [{codes: [79], severity: warning}]")
    assert versions(ResponderSettings()).catalog != before


def test_a_table_in_a_folder_may_be_given_without_one_as_in_a_config_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines.nccl.yaml").write_text("{}")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert overlay_of(ROOTS[0] / "lines" / "nccl.yaml") == tmp_path / "lines.nccl.yaml"
    assert overlay_of(ROOTS[0] / "lines" / "nic.yaml") is None
    assert unknown_files(tmp_path) == []
    (tmp_path / "lines.ncll.yaml").write_text("{}")
    (told,) = unknown_files(tmp_path)
    assert "lines.nccl.yaml" in told, "what was meant is suggested"


def test_no_two_tables_have_the_same_name_without_folders() -> None:
    names = [flat_name(table) for table in tables()]
    assert len(names) == len(set(names))
