"""`faultline runbook`: lints runbooks, shows their plans, runs their test cases, diffs two versions; and starts them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show, table
from faultline.cli.runbook_by_hand import continue_command, redo_command, replay_command, run_command
from streams.model.counted import many
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.replay.planned import Planned
    from runbooks.engine.case_result import CaseResult
    from runbooks.language.diff import RunbookChange
    from runbooks.language.lint import LintFinding
    from runbooks.language.loader import Loaded
    from runbooks.language.schema import Runbook


SHIPPED = "shipped"
_PATH = click.Path(path_type=Path, exists=True)
_MANY = click.argument("paths", nargs=-1, type=_PATH)
_DIRS = click.option(
    "--runbooks", "directories", multiple=True, type=_PATH,
    help="Additional runbook file or directory. Default: responder.runbook_dirs.",
)  # fmt: skip


@click.group(
    "runbook",
    cls=Group,
    epilog=examples(
        ("faultline runbook lint ./mine", "errors, and what is surely a mistake"),
        ("faultline runbook plan gpu_off_bus --fact xid=79", "what would be done"),
        ("faultline runbook diff shipped ./mine", "what changes, dangers first"),
    ),
)
def command() -> None:
    """Lint runbooks, show their plans, run their test cases, diff two versions, and start them by hand."""


@command.command(
    "lint",
    epilog=examples(
        ("faultline runbook lint", "all that the responder would read"),
        ("faultline runbook lint ./mine --strict", "for CI: warnings fail, too"),
        exits="0 valid, 1 a fault (or, with --strict, a warning), 2 bad input",
    ),
)
@_MANY
@click.option("--library/--no-library", default=True, help="Include the built-in runbooks.")
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")
@output_option
@click.pass_context
def lint_command(
    ctx: click.Context, paths: tuple[Path, ...], library: bool, strict: bool, output: str
) -> None:
    """Lint runbook files and directories; default: all that the responder would read.

    The responder does not start with a fault. Warnings name likely mistakes: a runbook that is never selected, an unused step or
    parameter, an incident type without a runbook. They are reported for the named files only. Approval groups are checked where
    the settings configure the responder; a step that requires a group without members is a fault.
    """
    from faultline.runtime.runbook_files import read_library
    from faultline.runtime.settings import load
    from runbooks.language.lint import lint
    from streams.correlate.policy.families import families

    settings = load(ctx.obj)
    everything = paths or settings.responder.runbook_dirs
    policy = settings.responder if "responder" in settings.model_fields_set else None
    found = read_library(everything, shipped=library)
    catalog = families().families
    everywhere = lint(found, catalog, complete=library, policy=policy)
    findings = [finding for finding in everywhere if not paths or _is_in(finding, paths)]
    faults = sum(finding.level == "fault" for finding in findings)
    summary = {"runbooks": len(found.loaded), "faults": faults, "warnings": len(findings) - faults}
    records = [{"record": f.level, "place": f.place, "message": f.message} for f in findings]
    show(output, [*records, {"record": "summary", **summary}], lambda: _show_findings(findings, summary))
    ctx.exit(EXIT_NO if faults or (strict and findings) else 0)


@command.command(
    "plan",
    epilog=examples(
        "faultline runbook plan gpu_off_bus --fact xid=79 --root node=gpu-07",
        ("faultline runbook plan docs/examples/gpu-off-bus", "for the incidents of a capture"),
        ("faultline incidents show inc-5d55 -o json | faultline runbook plan -", "for one of production"),
        exits="0 a plan for each, 1 none for one of them, 2 bad input",
    ),
)
@click.argument("source")
@_DIRS
@click.option(
    "--incident", "prefix", default="", help="Only incidents of the capture whose id starts with this."
)
@click.option(
    "--root",
    multiple=True,
    metavar="NAME=VALUE",
    help="Root cause of the sample incident: node, gpu, nic, job …",
)
@click.option("--fact", multiple=True, metavar="NAME=VALUE", help="Fact of the sample incident, e.g. xid=79.")
@output_option
@click.pass_context
def plan_command(
    ctx: click.Context, source: str, directories: tuple[Path, ...], prefix: str, root: tuple[str, ...],
    fact: tuple[str, ...], output: str,
) -> None:  # fmt: skip
    """Show which runbook is selected for an incident, why the others are not, and the plan with its targets and digest.

    SOURCE is a capture, a file with an incident as JSON (`faultline incidents show --output json`, - for standard input), or an
    incident type, for a sample incident of it.
    """
    from faultline.replay.planned import Installation, from_capture, from_family, from_json
    from faultline.runtime.runbook_files import valid_library
    from faultline.runtime.settings import load
    from streams.correlate.policy.families import families
    from streams.model.similar import guess

    settings = load(ctx.obj)
    books = valid_library(directories or settings.responder.runbook_dirs)
    path = Path(source)
    if path.is_dir():
        planned = from_capture(path, prefix, books.runbooks, settings)
    elif source == "-" or path.is_file():
        raw = click.get_binary_stream("stdin").read() if source == "-" else path.read_bytes()
        planned = from_json(raw, books.runbooks, Installation.of(settings))
    elif source in families().families:
        planned = from_family(source, root, fact, books.runbooks, Installation.of(settings))
    else:
        raise BadInput(
            f"{source}: not a capture, a file or an incident type{guess(source, families().families)}"
        )
    show(
        output,
        (line for one in planned for line in _plan_lines(one, books.loaded)),
        lambda: _show_plans(planned, books.loaded),
    )
    ctx.exit(0 if planned and all(one.plan for one in planned) else EXIT_NO)


@command.command(
    "test",
    epilog=examples(
        ("faultline runbook test", "the cases that ship"),
        ("faultline runbook test ./mine", "those beside your own runbooks"),
        exits="0 all passed, 1 one failed, 2 bad input",
    ),
)
@_MANY
@_DIRS
@output_option
@click.pass_context
def test_command(
    ctx: click.Context, paths: tuple[Path, ...], directories: tuple[Path, ...], output: str
) -> None:
    """Run the test cases (`NAME.cases.yaml`) of files and directories; default: the built-in ones."""
    from faultline.runtime.runbook_files import case_files, valid_library
    from faultline.runtime.settings import load
    from runbooks.language.loader import CASES

    beside = {path if path.is_dir() else path.parent for path in paths}
    books = valid_library([*(directories or load(ctx.obj).responder.runbook_dirs), *sorted(beside)])
    results = [(str(path), result) for path in case_files(paths) for result in _results(path, books.runbooks)]
    failed = sum(not result.passed for _, result in results)
    records: list[dict[str, Any]] = [
        {
            "record": "case", "file": file, "name": one.name, "passed": one.passed,
            "differences": list(one.differences),
        }
        for file, one in results
    ]  # fmt: skip
    summary = {"record": "summary", "cases": len(results), "failed": failed}
    show(output, [*records, summary], lambda: _show_results(results, failed))
    if not results:
        raise BadInput(f"no *{CASES} found")
    ctx.exit(EXIT_NO if failed else 0)


@command.command(
    "diff",
    epilog=examples(
        "faultline runbook diff shipped ./mine",
        ("faultline runbook diff ./old.yaml ./new.yaml -o json", "for scripts"),
        exits="0 no difference, 1 a difference, 2 bad input",
    ),
)
@click.argument("old")
@click.argument("new")
@output_option
@click.pass_context
def diff_command(ctx: click.Context, old: str, new: str, output: str) -> None:
    """Show how NEW behaves differently from OLD: each a file, a directory, or `shipped` for the built-in runbooks.

    Overrides and fragments are applied first. Dangers are listed first: new destructive steps, other targets, fewer approvals,
    no rollback. Exit code 1 when there is any difference.
    """
    from runbooks.language.diff import compare

    before, after = _books(old), _books(new)
    names = sorted(
        {*before, *after} if SHIPPED not in (old, new) else set(after if old == SHIPPED else before)
    )
    changes = [(name, change) for name in names for change in compare(before.get(name), after.get(name))]
    records: list[dict[str, Any]] = [
        {"record": change.weight, "runbook": name, "where": change.where, "text": change.text}
        for name, change in changes
    ]
    summary = {"record": "summary", "runbooks": len(names), **_weights(changes)}
    rows = ((change.weight, name, change.where, change.text) for name, change in changes)
    headings = ("", "runbook", "where", "change")
    show(output, [*records, summary], lambda: table(headings, rows, empty="no difference"))
    ctx.exit(EXIT_NO if changes else 0)


def _show_findings(findings: Iterable[LintFinding], summary: Mapping[str, int]) -> None:
    for finding in findings:
        click.echo(f"{finding.place}: {finding.level}: {finding.message}")
    runbooks, faults, warnings = summary.values()
    click.echo(f"{many(runbooks, 'runbook')}, {many(faults, 'fault')}, {many(warnings, 'warning')}", err=True)


def _show_results(results: Sequence[tuple[str, CaseResult]], failed: int) -> None:
    for file, result in results:
        if not result.passed:
            click.echo(f"{file}: {result.name}")
            for line in result.differences:
                click.echo(f"    {line}")
    click.echo(f"{many(len(results), 'case')}, {failed} failed")


def _is_in(finding: LintFinding, paths: Iterable[Path]) -> bool:
    file = Path(finding.file)
    return any(file == path or file.parent == path for path in paths)


def _results(path: Path, books: tuple[Runbook, ...]) -> Iterator[CaseResult]:
    from runbooks.engine.case_result import run_case
    from runbooks.language.cases import Cases
    from runbooks.language.loader import read
    from runbooks.language.yaml_source import parse

    cases = parse(Cases, read(path, str(path)), str(path))
    for case in cases.cases:
        yield run_case(case, books, cases.inventory)


def _books(name: str) -> dict[str, Runbook]:
    """Runbooks by id. A file that overrides or includes built-in ones is read together with them."""
    from faultline.runtime.runbook_files import read_library, valid_library

    if name == SHIPPED:
        found = valid_library(()).loaded
    elif Path(name).exists():
        path = Path(name)
        alone = read_library([path], shipped=False)
        found = alone.loaded if not alone.faults else valid_library([path]).loaded
        found = {key: one for key, one in found.items() if _is_from(one, path)}
    else:
        raise BadInput(f"{name}: no such file or directory (`{SHIPPED}` means the built-in runbooks)")
    return {key: one.runbook for key, one in found.items()}


def _is_from(one: Loaded, path: Path) -> bool:
    return any(
        Path(file) == path or Path(file).parent == path for file in (one.file, one.overridden_in) if file
    )


def _weights(changes: list[tuple[str, RunbookChange]]) -> dict[str, int]:
    dangers = sum(change.weight == "danger" for _, change in changes)
    return {"dangers": dangers, "notes": len(changes) - dangers}


def _plan_lines(one: Planned, books: dict[str, Loaded]) -> Iterator[dict[str, Any]]:
    from streams.model.codec import encode_plain

    taken = one.choice.runbook
    yield {
        "record": "choice", "incident": one.incident.id, "family": one.incident.family,
        "runbook": taken.id if taken else None, "why": one.choice.why,
        "rejected": [
            {"runbook": name, "why": why, "unmet": list(one.unmet.get(name, ()))} for name, why in one.choice.rejected
        ],
    }  # fmt: skip
    if one.refused:
        yield {"record": "refused", "incident": one.incident.id, "reason": one.refused}
    if one.plan is None or taken is None:
        return
    head: dict[str, Any] = encode_plain(one.plan)
    steps = head.pop("steps")
    yield {"record": "plan", "incident": one.incident.id, "inventory": one.inventory, **head}
    for step in steps:
        yield {"record": "step", **step}
    for origin in books[taken.id].foreign():
        yield {"record": "origin", "key": origin.key, "value": origin.value, "place": origin.place}


def _show_plans(planned: Iterable[Planned], books: dict[str, Loaded]) -> None:
    for one in planned:
        _show_plan(one, books)


def _show_plan(one: Planned, books: dict[str, Loaded]) -> None:
    click.echo(f"{one.incident.id}  {one.incident.title}")
    click.echo(f"{one.choice.why}")
    if one.refused:
        click.echo(f"not started, manual action required: {one.refused}")
    if one.plan is not None:
        given = ", ".join(f"{name} {value}" for name, value in one.plan.parameters.items())
        click.echo(f"mode {one.plan.mode}, revision {one.plan.runbook_revision}, digest {one.plan.digest}")
        click.echo(f"inventory: {one.inventory}" + (f"; parameters: {given}" if given else ""))
        click.echo()
        rows = (
            (
                s.id, s.action + (" *" if s.destructive else ""), s.target, ", ".join(s.needs),
                " ".join(f"{k}={orjson.dumps(v).decode()}" for k, v in s.params.items()), f"{s.deadline_s:g} s", s.on_failure,
                f"{s.approval_group or 'any approver'} x{s.quorum}" if s.approval else "",
            )
            for s in one.plan.steps
        )  # fmt: skip
        headings = ("step", "action", "target", "needs", "params", "deadline", "on failure", "approval")
        table(headings, rows, empty="the plan has no steps")
        for line in one.plan.left_out:
            click.echo(f"left for manual handling: {line}")
        for line in one.plan.would_evict:
            click.echo(f"would evict: {line}")
        assert one.choice.runbook is not None
        if foreign := books[one.choice.runbook.id].foreign():
            click.echo()
            table(
                ("value", "", "from"),
                ((origin.key, origin.value, origin.place) for origin in foreign),
                empty="",
            )
    click.echo()
    rejected = (
        (name, why if not (parts := one.unmet.get(name)) else f"not met: {'; '.join(parts)}")
        for name, why in one.choice.rejected
    )
    table(("not selected", "reason"), rejected, empty="no other runbook")
    click.echo()


for _by_hand in (run_command, continue_command, redo_command, replay_command):
    command.add_command(_by_hand)
