import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "k8s").rglob("*.md")])
FOLDERS = ("bench", "connectors", "docs", "faultline", "k8s", "runbooks", "sandbox", "streams", "tests")
MODULES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}


def shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Commands of ours that a page shows with their output."""
    for block in re.findall(r"^```text\n\$ faultline (.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        command, *lines = block.splitlines()
        yield command, [line for line in lines if line.strip() not in ("", "…")]


SHOWN = [(command, lines) for page in PAGES for command, lines in shown(page)]


@pytest.mark.parametrize(("command", "lines"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_shown_command_still_prints_what_is_shown(
    command: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(cli, command.split(), input="u\n")
    assert result.exit_code == 0, result.output
    printed = iter(result.stdout.splitlines())
    for line in lines:
        found = any(p.startswith(line[:-1]) if line.endswith("…") else p == line for p in printed)
        assert found, f"not printed (or not in this order): {line}"


def test_the_readme_shows_a_command_with_its_output() -> None:
    assert any(command.startswith("explain") for command, _ in SHOWN)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(
        r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    ):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def paths_named(text: str) -> Iterator[str]:
    """Paths below a folder of ours, wherever they are written; `*` is a pattern, as in a shell."""
    yield from re.findall(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./*-]*\w)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text().replace("\\_", "_")
    missing = {path for path in paths_named(text) if not any(ROOT.glob(path))}
    missing |= {name for name in re.findall(r"`(\w+\.py)`", text) if name not in MODULES}
    assert not missing, f"{page.name} names {sorted(missing)}"
