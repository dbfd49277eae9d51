"""A capture may be made with a text editor: what is wrong in it is named by file and line, whichever command reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from streams.model.errors import BadInput

HEAD = '{"time":"2026-03-01T12:00:00Z","type":"ADDED","object":'
NODE_LINE = HEAD + '{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}}'


@pytest.mark.parametrize(
    ("file", "bad", "said"),
    [
        ("kube-objects.jsonl", HEAD + '{"apiVersion":"v1","metadata":{"name":"n2"}}}', "kind"),
        ("kube-objects.jsonl", HEAD + '{"apiVersion":"v1","kind":"Node","metadata":"n2"}}', "name"),
        ("kube-objects.jsonl", HEAD + '{"apiVersion":"v1","kind":"List","items":["n2"]}}', "no object"),
        (
            "inventory.jsonl",
            '{"partition":0,"offset":9,"timestamp":1e99,"key":"c1/node/n2","value":null}',
            "timestamp",
        ),
        (
            "raw.node-logs.jsonl",
            '{"partition":0,"offset":9,"timestamp":9999999999999999,"value":"x"}',
            "timestamp",
        ),
        (
            "raw.node-logs.jsonl",
            '{"partition":0,"offset":9,"timestamp":1772366400000,"value":"x","headers":[["a"]]}',
            "header",
        ),
        (
            "raw.node-logs.jsonl",
            '{"partition":0,"offset":9,"timestamp":1772366400000,"value":"x","headers":7}',
            "headers",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", [["replay"], ["capacity", "--capture"], ["shadow", "report", "--capture"]]
)
def test_one_bad_object_of_a_capture_is_named_by_file_and_line(
    tmp_path: Path, file: str, bad: str, said: str, command: list[str]
) -> None:
    if command[0] == "capacity" and file.startswith("raw."):
        return  # it reads none of them
    meta = '{"cluster":"c1","from":"2026-03-01T12:00:00Z","to":"2026-03-01T13:00:00Z","format":1}'
    (tmp_path / "meta.json").write_text(meta)
    (tmp_path / file).write_text(("" if file != "kube-objects.jsonl" else NODE_LINE) + "\n" + bad + "\n")
    asked = CliRunner().invoke(cli, [*command, str(tmp_path)])
    assert isinstance(asked.exception, BadInput), asked.exception
    assert f"{tmp_path / file}:2: " in str(asked.exception)
    assert said in str(asked.exception)


@pytest.mark.parametrize(
    ("bad", "said"),
    [('"key":"c1/node/n2","value":"{}"', "FactRecord"), ('"key":"n2","value":null', "CLUSTER/KIND/NAME")],
)
@pytest.mark.parametrize(
    "command", [["replay"], ["capacity", "--capture"], ["shadow", "report", "--capture"]]
)
def test_an_unreadable_fact_is_left_out_and_named_by_file_and_line(
    tmp_path: Path, bad: str, said: str, command: list[str]
) -> None:
    meta = '{"cluster":"c1","from":"2026-03-01T12:00:00Z","to":"2026-03-01T13:00:00Z","format":1}'
    (tmp_path / "meta.json").write_text(meta)
    (tmp_path / "inventory.jsonl").write_text(
        f'\n{{"partition":0,"offset":9,"timestamp":1772366400000,{bad}}}\n'
    )
    asked = CliRunner().invoke(cli, [*command, str(tmp_path)])
    assert asked.exit_code == 0, asked.output
    assert f"left out, as a dead letter: {tmp_path / 'inventory.jsonl'}:2: " in asked.stderr
    assert said in asked.stderr
